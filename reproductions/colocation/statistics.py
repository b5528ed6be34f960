"""Decides when a mean is known well enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over repeats.

    Attributes:
        sd: sample standard deviation; NaN for one repeat.
        half_width: of the 95 % confidence interval (Student), relative to the mean; infinite for
            one repeat, and where the mean is 0.
    """

    value: float
    sd: float
    repeats: int
    half_width: float

    def tight(self, tolerance: float) -> bool:
        return self.half_width <= tolerance


def mean_of(values: Sequence[float]) -> Mean:
    """Return mean, spread and confidence of independent repeats. Raises ValueError if there are
    none."""
    y = np.asarray(values, dtype=float)
    if y.size == 0:
        raise ValueError("no measurement")
    value = float(y.mean())
    if y.size == 1:
        return Mean(value, math.nan, 1, math.inf)
    sd = float(y.std(ddof=1))
    half = float(stdtrit(y.size - 1, 0.975)) * sd / math.sqrt(y.size)
    return Mean(value, sd, int(y.size), half / abs(value) if value else math.inf)


def ratio_of(together: Sequence[float], alone: Sequence[float]) -> Mean:
    """Return the mean of `together` divided by the mean of `alone`, with its uncertainty: relative
    uncertainties add in quadrature. Raises ValueError if either is empty, or the mean of `alone` is
    not above 0.
    """
    top, bottom = mean_of(together), mean_of(alone)
    if bottom.value <= 0:
        raise ValueError("the job alone made no progress: a relative speed has no meaning")
    return Mean(
        top.value / bottom.value,
        top.sd / bottom.value,
        top.repeats,
        math.hypot(top.half_width, bottom.half_width),
    )
