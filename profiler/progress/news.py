"""Reading in the output of a running command how far it is, and saying so when that is news."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, log

from features.progress import Progress
from profiler.progress.tail import Tail

EARLIEST_S = 10.0  # nothing is reported before
WIDEST = 1.0  # standard deviation of ln(total) beyond which nothing is reported
SAME = 0.1  # a total that differs by more, of its logarithm, is news
EVERY, MOST_S = 0.02, 60.0  # share of its time after which it is looked at again; at most
APART, LEAST_S = 0.05, 30.0  # share of its time between two reports; at least
ASTRAY = 10.0  # factor left of what was reported, where its output makes no sense any more


class Follower:
    """Follows the output of one attempt."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._before: Progress | None = None
        self._due_s = 0.0

    def look(self, at_s: float, *, last: bool = False) -> Progress | None:
        """What is new of how long it will run; None: nothing.

        Args:
            at_s: seconds since it began.
            last: it is about to be stopped.
        """
        if at_s < self._due_s and not last:
            return None
        self._due_s = at_s + min(MOST_S, EVERY * at_s)
        self._tail.look(at_s)
        found, before = self._tail.progress(at_s), self._before
        if at_s < EARLIEST_S or (found is None and before is None):
            return None
        if found is None or found.error > WIDEST or not isfinite(found.high_s):
            if before is None or before.error > WIDEST:
                return None
            total_s = max(before.total_s, at_s)  # taken back
            found = replace(before, low_s=total_s / ASTRAY, high_s=total_s * ASTRAY, at_s=at_s)
        elif before is not None:
            apart = last or at_s - before.at_s >= max(LEAST_S, APART * at_s)
            moved = abs(log(found.total_s / before.total_s)) > SAME
            if not apart or not (moved or found.error < 0.5 * before.error):
                return None
        self._before = replace(found, at_s=at_s)
        return self._before
