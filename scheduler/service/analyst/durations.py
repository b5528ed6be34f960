"""How long a job will last, as a distribution, given how long it has lasted already.

A prediction of a training job's duration is off by a factor of several. What is kept, for
predictions of about the same size, is the ratio of true to predicted duration of the latest ended
jobs; the distribution of a job is its prediction times those ratios, of a job that runs only those
that have not been outlived (the conformal argument of `orchestrator.outlook`). It works
over any predictor, a bundle's or the histories', and over none.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from math import exp, log1p
from statistics import NormalDist

from scheduler.core.durations import EDGES_S

POINTS = 64  # quantiles a distribution is described by
LONGEST_S = 1_209_600.0  # nothing is expected to run longer than two weeks
TYPICAL_S = 600.0  # predicted of a job nobody has a prediction for

Quantiles = Sequence[float]  # total durations, seconds, at levels (i + 1/2) / n


class Ratios:
    """ln(true / predicted) of the last `window` ended jobs, ascending."""

    def __init__(self, window: int):
        self._window = window
        self._recent: deque[float] = deque()
        self.ascending: list[float] = []

    def add(self, ratio: float) -> None:
        self._recent.append(ratio)
        insort(self.ascending, ratio)
        if len(self._recent) > self._window:
            del self.ascending[bisect_right(self.ascending, self._recent.popleft()) - 1]


class Durations:
    """Distributions of durations, learned from ended jobs.

    Args:
        window: ratios remembered per range of predictions.
        spread, weight: belief before anything has ended: standard deviation of ln(true /
            predicted), worth this many ended jobs; it fades.
        tail: of those still running, how many ended jobs the belief is worth that what has lasted
            for t will last for another t in half the cases.
    """

    def __init__(
        self, *, window: int = 2000, spread: float = 1.5, weight: int = 20, tail: float = 2.0
    ):
        prior = NormalDist(0.0, spread)
        self._prior = [prior.inv_cdf((i + 0.5) / weight) for i in range(weight)]
        self._tail = tail
        self._ranges = [Ratios(window) for _ in range(len(EDGES_S) + 1)]
        self.observed = 0

    def learn(self, predicted_s: float | None, duration_s: float) -> None:
        """A job predicted at `predicted_s` (None: not predicted) ran `duration_s` seconds."""
        predicted = TYPICAL_S if predicted_s is None else predicted_s
        self._range(predicted).add(log1p(max(0.0, duration_s)) - log1p(predicted))
        self.observed += 1

    def quantiles(
        self,
        predicted_s: float | None,
        elapsed_s: float = 0.0,
        limit_s: float | None = None,
    ) -> Quantiles:
        """Total duration of a job that has run `elapsed_s`, none of it beyond `limit_s`.

        Less than 0 (it began by a clock that is ahead of ours) counts as 0.
        """
        elapsed_s = max(0.0, elapsed_s)
        predicted = TYPICAL_S if predicted_s is None else predicted_s
        scale = 1.0 + predicted
        seen = self._range(predicted).ascending
        if len(seen) < 10 * len(self._prior):
            seen = sorted(seen + self._prior)
        lived = log1p(elapsed_s) - log1p(predicted)
        first = bisect_right(seen, lived) if elapsed_s > 0 else 0
        left = len(seen) - first
        own = POINTS
        if elapsed_s > 0:
            own = round(POINTS * left / (left + self._tail))
        points = [scale * exp(seen[first + int((i + 0.5) * left / own)]) - 1 for i in range(own)]
        rest = POINTS - own
        points += [(1.0 + elapsed_s) * rest / (rest - i - 0.5) - 1 for i in range(rest)]
        longest = max(LONGEST_S, 1.5 * elapsed_s) if limit_s is None else limit_s
        points = [max(min(point, longest), elapsed_s) for point in points]
        points.sort()
        return points

    def _range(self, predicted_s: float) -> Ratios:
        return self._ranges[bisect_right(EDGES_S, predicted_s)]


def at_level(quantiles: Quantiles, level: float) -> float:
    """The quantile at a level between 0 and 1, by straight lines; flat beyond the ends."""
    place = level * len(quantiles) - 0.5
    low = int(place) if place > 0 else 0
    if low >= len(quantiles) - 1:
        return quantiles[-1]
    share = max(0.0, place - low)
    return quantiles[low] * (1.0 - share) + quantiles[low + 1] * share
