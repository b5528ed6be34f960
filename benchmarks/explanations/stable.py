"""Measures whether the main reasons of a prediction stay the main ones when the model is fitted
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from features.spec import Value
from models.bundle import Bundle
from pipeline.online import OnlineEstimator
from scheduler.explain.terms import thoughts

FIRST = 3  # that are compared
ROWS = 100  # latest ended jobs that are explained by either model


class Refitted(OnlineEstimator):
    """An estimator that compares each newly fitted model with the one before it.

    Attributes:
        agreed: for each job that two fits explained, how far its first reasons agree, from 0 to 1,
            as they are shown to users (terms grouped by topic).
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.agreed: list[float] = []

    def use(self, bundle: Bundle) -> None:
        before: Bundle | None = getattr(self, "bundle", None)
        super().use(bundle)
        if before is not None:
            for row in self._rows[-ROWS:]:
                self.agreed.append(agreement(leading(before, row), leading(bundle, row)))


def leading(bundle: Bundle, row: Sequence[Value]) -> list[str]:
    """Return the names of the `FIRST` largest reasons of the prediction for `row`, the largest
    first."""
    told = bundle.duration.explain(row).terms
    named = zip(bundle.duration.term_names, told, strict=True)
    return [thought.text for thought in thoughts(list(named))][:FIRST]


def agreement(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the average overlap of two rankings, from 0 to 1: the mean over depths 1, 2, ... of
    the share that their first entries have in common.
    """
    depth = max(len(one), len(other))
    shares = [len({*one[:k]} & {*other[:k]}) / k for k in range(1, depth + 1)]
    return sum(shares) / depth if depth else 1.0
