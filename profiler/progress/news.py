"""Read the progress of a running command from its output, and report it when it has changed
enough.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite, log

from features.amounts import Amount
from features.progress import Progress, Z
from profiler.progress.names import EVERY, MOST_S, TERMS, Terms
from profiler.progress.tail import Tail

WIDEST = 1.0  # standard deviation of ln(total) beyond which nothing is reported
NARROWER = 0.7  # an error that is less than so much of the last one is news
SAME = 0.1  # a total that differs by more, of its logarithm, is news
APART = 0.05  # share of its time between two reports
YOUNG = 1 / 3  # the same of a job that has not run for long
AGAIN = 2.0  # times the total at which it was taken back, after which that is too little
ASTRAY = 10.0  # factor left of what was reported, where its output makes no sense any more


class Follower:
    """Reads the output of one attempt, and tells when its progress has changed."""

    def __init__(self, tail: Tail, terms: Terms = TERMS) -> None:
        self._tail, self._terms = tail, terms
        self._before: Progress | None = None
        self._due_s = 0.0

    def asks(self, amount: Amount) -> None:
        """Set the amount of training that the job's command states. Called when the amount becomes
        known after the job began.
        """
        self._tail.asks(amount)

    def look(self, at_s: float, *, last: bool = False) -> Progress | None:
        """Read the output. Return the progress where it has changed enough to report, else None.

        Args:
            at_s: seconds since it began.
            last: it is about to be stopped.
        """
        if at_s < self._due_s and not last:
            return None
        self._due_s = at_s + min(MOST_S, EVERY * at_s)
        self._tail.look(at_s)
        found, before = self._tail.progress(at_s), self._before
        if at_s < self._terms.earliest_s or (found is None and before is None):
            return None
        if found is None or found.error > WIDEST or not isfinite(found.high_s):
            if before is None or (before.error > WIDEST and at_s < AGAIN * before.total_s):
                return None
            total_s = max(before.total_s, at_s)  # taken back
            low_s, high_s = total_s / ASTRAY, total_s * ASTRAY
            found = replace(before, total_s=total_s, low_s=low_s, high_s=high_s, at_s=at_s)
        elif before is not None:
            least_s = min(self._terms.least_s, YOUNG * at_s)
            apart = last or at_s - before.at_s >= max(least_s, APART * at_s)
            moved = abs(log(found.total_s / before.total_s)) > SAME
            if not apart or not (moved or found.error < NARROWER * before.error):
                return None
        self._before = replace(found, at_s=at_s)
        return self._before

    def beside(self, at_s: float, for_s: float) -> Beside | None:
        """Return a measurement of the job's pace beside another job that now shares its GPUs.
        Return None where its pace alone is not known.

        Args:
            at_s: seconds since it began.
            for_s: how long to measure, seconds.
        """
        self._tail.look(at_s)
        alone = self._tail.progress(at_s)
        if alone is None or _pace_error(alone) > self._terms.firm:
            return None
        return Beside(alone, self._tail.afresh(), at_s + for_s, self._terms.firm)


class Beside:
    """Measures the pace of one attempt beside another, against its pace alone.

    Args:
        alone: the attempt's progress while it had its GPUs for itself.
        tail: reads what the attempt has written since.
        until_s: when enough was seen, seconds since the attempt began.
        firm: largest relative standard error of a pace that is compared.
    """

    def __init__(self, alone: Progress, tail: Tail, until_s: float, firm: float) -> None:
        self.until_s, self._firm = until_s, firm
        self._alone = alone
        self._tail = tail

    def speed(self, at_s: float) -> float | None:
        """Return the job's speed relative to alone, at most 1, or None where what was written so
        far does not tell.
        """
        self._tail.look(at_s)
        alone, now = self._alone, self._tail.progress(at_s)
        if now is None or (now.source, now.unit) != (alone.source, alone.unit):
            return None
        if abs(now.of - alone.of) > 1.0:  # by one: counted from 0, as only its beginning shows
            return None
        return min(1.0, alone.unit_s / now.unit_s) if _pace_error(now) <= self._firm else None


def _pace_error(progress: Progress) -> float:
    """Return the relative standard error of the seconds a unit takes; infinite if none are
    counted.
    """
    left_s = (progress.of - progress.done) * progress.unit_s
    if progress.unit == "eta" or left_s <= 0:
        return inf
    # whether there is more than one such count is no doubt of the pace, but widens the total;
    # what follows the steps of an epoch, and was not seen yet, is one
    side_s = progress.low_s if progress.unit in ("step", "percent") else progress.high_s
    return abs(1.0 - (side_s - progress.at_s) / left_s) / Z
