"""Computes priorities with which Slurm takes jobs in a given order, without lifting any of them
above other jobs.

Slurm takes the highest priority first. The priorities that the jobs have already are exchanged
among them, so that no other job is passed by one that was behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def priorities(order: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Return new priorities for the jobs that need one, by job id; {} where the jobs are in order
    already.

    Args:
        order: pairs (job id, its present priority, at least 1), in the wanted order.
    """
    now = [priority for _, priority in order]
    if all(before > after for before, after in pairwise(now)):
        return {}
    dealt: list[int] = []
    for priority in sorted(now, reverse=True):  # at the bottom, where none is below, they tie
        dealt.append(max(1, min(priority, dealt[-1] - 1)) if dealt else priority)
    given = zip(order, dealt, strict=True)
    return {job: new for (job, old), new in given if new != old}
