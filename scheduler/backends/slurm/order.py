"""Priorities that make Slurm take jobs in a given order, changing as few as can be.

Slurm takes the highest first. Jobs whose priorities fall in the order wanted keep them; the others
get one between their neighbours'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

GAP = 1_000  # between priorities given anew
TOP = 4_294_901_759  # the highest that Slurm's own plugins give


def priorities(order: Sequence[tuple[str, int]]) -> dict[str, int]:
    """New priorities of the jobs that need one.

    Args:
        order: (job, its priority now), first to go first. 0 = none yet.
    """
    kept = _longest_falling([priority for _, priority in order])
    given: dict[str, int] = {}
    at, ceiling = 0, None
    for fence in [*kept, len(order)]:
        between = order[at:fence]
        floor = order[fence][1] if fence < len(order) else 0
        if between:
            top = ceiling if ceiling is not None else min(floor + GAP * (len(between) + 1), TOP + 1)
            step = min(GAP, (top - floor) // (len(between) + 1))
            if step < 1:
                return _anew(order)
            start = floor + step * len(between) if fence < len(order) else top - step
            for place, (job, _) in enumerate(between):
                given[job] = start - step * place
        at, ceiling = fence + 1, floor
    return given


def _anew(order: Sequence[tuple[str, int]]) -> dict[str, int]:
    """All priorities anew, evenly, from no lower than the highest there is."""
    step = min(GAP, TOP // (len(order) + 1))
    highest = max(step * len(order), min(TOP, max(priority for _, priority in order)))
    new = {job: highest - step * place for place, (job, _) in enumerate(order)}
    return {job: new[job] for job, priority in order if new[job] != priority}


def _longest_falling(values: Sequence[int]) -> list[int]:
    """Indices of a longest strictly falling subsequence of positive values."""
    ends: list[int] = []  # negated last value of the best subsequence of each length
    last: list[int] = []
    before: list[int] = [-1] * len(values)
    for index, value in enumerate(values):
        if value <= 0:
            continue
        length = bisect_left(ends, -value)
        before[index] = last[length - 1] if length else -1
        if length == len(ends):
            ends.append(-value)
            last.append(index)
        else:
            ends[length], last[length] = -value, index
    found: list[int] = []
    index = last[-1] if last else -1
    while index >= 0:
        found.append(index)
        index = before[index]
    return found[::-1]
