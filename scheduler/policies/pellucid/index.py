"""The order of waiting jobs: one number for a whole predictive distribution, in seconds.

`point` is the prediction itself, `expected` the mean of its distribution, and `gittins` the
smallest ratio, over how long one would be willing to look, of the time it takes to the chance that
the job ends in it (Gittins, 1979; Aalto, Ayesta and Righter, Queueing Systems 2009). A distribution
here is a prediction times the ratios of `Outlook`, so each is a factor per range of predictions:
one more term of the additive score in ln(1 + seconds).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import log

from scheduler.core.decisions import Evidence
from scheduler.core.durations import Outlook


def expected(sizes: Sequence[float]) -> float:
    """Mean of equally likely sizes."""
    return sum(sizes) / len(sizes)


def gittins(sizes: Sequence[float]) -> float:
    """The Gittins index of a job that has not run: min over t of E[min(S, t)] / P(S <= t).

    Args:
        sizes: equally likely, ascending.
    """
    n, done, best = len(sizes), 0.0, float("inf")
    for k, size in enumerate(sizes, 1):
        done += size
        best = min(best, (done + (n - k) * size) / k)
    return best


_FACTORS: dict[str, Callable[[Sequence[float]], float]] = {
    "point": lambda ratios: 1.0,
    "expected": expected,
    "gittins": gittins,
}
ORDERS = tuple(_FACTORS)


@lru_cache(maxsize=256)  # ratios of a range stay the same from one refresh of it to the next
def _factor(order: str, ratios: tuple[float, ...]) -> float:
    return _FACTORS[order](ratios)


class Index:
    """What a predicted duration counts as in the order of the queue.

    Raises ValueError for an unknown order.
    """

    def __init__(self, order: str, outlook: Outlook):
        if order not in _FACTORS:
            raise ValueError(f"order is {order!r}; use one of {', '.join(ORDERS)}")
        self.order = order
        self._outlook = outlook

    def seconds(self, predicted_s: float) -> float:
        """The index of a job predicted to run `predicted_s`."""
        if self.order == "point":
            return predicted_s
        return (1.0 + predicted_s) * _factor(self.order, self._outlook.ratios(predicted_s)) - 1.0

    def evidence(self, predicted_s: float) -> Evidence:
        """The index, and the term it adds to the score: ln(1 + index) is score plus term."""
        if self.order == "point":
            return ()
        factor = _factor(self.order, self._outlook.ratios(predicted_s))
        return (
            ("order", self.order),
            ("index_s", self.seconds(predicted_s)),
            ("index_term", log(factor)),
        )
