"""Finds the fewest submissions of a generated site with which an answer is still wrong in the same
way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def fewest(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a small subset of the items that still fails, from which no item can be left out
    (ddmin: Zeller and Hildebrandt 2002). Subsets that passed once are not tried again, since
    daemons vary from run to run.

    Raises ValueError: the items as given do not fail.
    """
    kept, pieces = list(items), 2
    if not fails(kept):
        raise ValueError("no such fault this time")
    while len(kept) > 1:
        size = -(-len(kept) // pieces)
        for begin in range(0, len(kept), size):
            rest = kept[:begin] + kept[begin + size :]
            if rest and fails(rest):
                kept, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(kept), 2 * pieces)
    return kept
