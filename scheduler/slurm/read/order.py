"""Computes priorities that make Slurm take jobs in a given order, without lifting any above other
jobs.

Slurm takes the highest first. The priorities that the jobs have are dealt again among them, so that
no job outside is passed by one that Slurm had behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def priorities(order: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return new priorities of the jobs that need one; none where they are in order already.

    Args:
        order: (job, its priority now, at least 1), first to go first.
    """
    now = [priority for _, priority in order]
    if all(before > after for before, after in pairwise(now)):
        return {}
    dealt: list[int] = []
    for priority in sorted(now, reverse=True):  # at the bottom, where none is below, they tie
        dealt.append(max(1, min(priority, dealt[-1] - 1)) if dealt else priority)
    given = zip(order, dealt, strict=True)
    return {job: new for (job, old), new in given if new != old}
