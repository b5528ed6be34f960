"""Receipts: the inputs of a job's distribution of durations, so that a reader can compute its
numbers again.

A receipt stands for 64 equally likely durations of a job, which follow from it like this:

1. `own` of them come from the job's own hazards, at evenly spaced levels of the share that lasts
   longer than `outlived_s`. `ended` are the shares that have ended by 0 s, by each of `EDGES_S`
   of `features.survival` and by two weeks; between these, interpolate by straight lines in
   ln(1 + seconds). `shift` is added to that logarithm.
2. The others are (1 + `predicted_s`) times each of `ratios`, less one second.
3. None lies below `outlived_s` or above `most_s`.
4. Each claim, in order, puts `points` of all durations between its two bounds, and thins out the
   rest evenly. Those `points` are picked evenly from the durations that lay there before or, with
   `even`, are evenly spaced in ln(1 + seconds).

Median and p90 are at levels .5 and .9 of the result, where point i of n is at level (i + 1/2) / n,
with straight lines between; odds are the share of the points above.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, inf, log1p
from typing import Any

from features.survival import EDGES_S

LONGEST_S = 1_209_600.0  # nothing is expected to run longer than two weeks
DIGITS = 9  # significant digits with which a number is kept

Plain = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ClaimMoved:
    """What a claim (bounds on a job's duration) changed in the equally likely durations.

    Attributes:
        low_s, high_s: the bounds, seconds.
        points: number of durations within the bounds afterwards.
        even: whether these are evenly spaced in the logarithm; otherwise they are picked from those
            that lay there before.
    """

    low_s: float
    high_s: float
    points: int
    even: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The inputs from which equally likely durations of a job are computed; the module's text says
    how.

    Attributes:
        outlived_s: seconds that the job had outlived.
        predicted_s: its predicted duration, seconds.
        most_s: no duration is longer, seconds.
        ratios: (1 + true) over (1 + predicted) durations of earlier predictions.
        own: number of durations that come from its own hazards (chances to end, by time).
        ended: shares of similar jobs that have ended, by each moment; () where `own` is 0.
        shift: what other terms of the score add to the logarithm of each of those durations.
        claims: what claims (stated bounds on the duration) of its last runs and of its owner
            changed.
    """

    outlived_s: float
    predicted_s: float
    most_s: float
    ratios: tuple[float, ...]
    own: int = 0
    ended: tuple[float, ...] = ()
    shift: float = 0.0
    claims: tuple[ClaimMoved, ...] = ()

    def durations(self) -> list[float]:
        """Return the equally likely durations, in seconds, ascending."""
        logs, n = (0.0, *map(log1p, EDGES_S), log1p(LONGEST_S)), self.own
        found = [(1.0 + self.predicted_s) * ratio - 1.0 for ratio in self.ratios]
        if n:
            at = log1p(self.outlived_s) - self.shift if self.outlived_s > 0 else -inf
            passed = _along(logs, self.ended, at)
            levels = [passed + (1.0 - passed) * (i + 0.5) / n for i in range(n)]
            found += [expm1(_along(self.ended, logs, one) + self.shift) for one in levels]
        found = sorted(max(min(one, self.most_s), self.outlived_s) for one in found)
        for claim in self.claims:
            low, high, points = claim.low_s, claim.high_s, claim.points
            inside = [one for one in found if low <= one <= high]
            others = [one for one in found if not low <= one <= high]
            if claim.even:
                least, most = log1p(max(low, self.outlived_s)), log1p(high)
                steps = [(i + 0.5) / len(found) for i in range(len(found))]
                inside = [expm1(least + (most - least) * step) for step in steps]
            found = sorted(_picked(inside, points) + _picked(others, len(found) - points))
        return found

    def plain(self) -> Plain:
        """Return this receipt (the inputs of a job's durations) as a tuple of plain values, the
        form in which it is stored."""
        return (
            _kept(self.outlived_s),
            _kept(self.predicted_s),
            _kept(self.most_s),
            tuple(map(_kept, self.ratios)),
            self.own,
            tuple(map(_kept, self.ended)),
            _kept(self.shift),
            tuple((_kept(c.low_s), _kept(c.high_s), c.points, c.even) for c in self.claims),
        )

    @classmethod
    def read(cls, plain: Sequence[Any]) -> Receipt | None:
        """Return the receipt (the inputs of a job's durations) from the tuple that `plain`
        returned; None for an empty tuple."""
        if not plain:
            return None
        outlived_s, predicted_s, most_s, ratios, own, ended, shift, claims = plain
        return cls(
            outlived_s=outlived_s,
            predicted_s=predicted_s,
            most_s=most_s,
            ratios=tuple(ratios),
            own=own,
            ended=tuple(ended),
            shift=shift,
            claims=tuple(ClaimMoved(*claim) for claim in claims),
        )


def _along(across: Sequence[float], up: Sequence[float], at: float) -> float:
    """Return the value of `up` at the position `at` of the ascending `across`, interpolated by
    straight lines. Beyond the ends, return the first or the last value."""
    place = min(max(1, bisect_left(across, at)), len(across) - 1)
    low, rise = across[place - 1], across[place] - across[place - 1]
    share = min(1.0, max(0.0, (at - low) / rise)) if rise > 0 else 1.0
    return up[place - 1] + share * (up[place] - up[place - 1])


def _picked(points: Sequence[float], n: int) -> list[float]:
    """Return `n` of the points, picked evenly in their order."""
    return [points[int((i + 0.5) * len(points) / n)] for i in range(n)]


def _kept(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
