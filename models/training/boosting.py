"""Fits boosted models so that every processor gives the same result."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd
from interpret import develop
from interpret.utils._native import Native
from numpy.typing import NDArray

from models.training.settled import on_grid

ACCELERATION = "acceleration"


def boost(ebm: Any, frame: pd.DataFrame, y: NDArray[Any], bags: NDArray[Any]) -> None:
    """Fit `ebm`, an explainable boosting machine of interpret's, in place.

    interpret's acceleration is turned off and the target rounded, so that all processors give the
    same model. With AVX, interpret boosts in float32 by default: predictions then differ by up to 2
    %, and no time is saved on tables of this size. The target is rounded because its last bit may
    decide between two equally good splits.
    """
    before = develop.get_option(ACCELERATION)
    develop.set_option(ACCELERATION, Native.AccelerationFlags_NONE)
    try:
        with warnings.catch_warnings():
            # Missing values are expected and have a bin of their own; all-missing columns too.
            warnings.filterwarnings("ignore", message="Missing values detected")
            warnings.filterwarnings("ignore", message="All-NaN slice encountered")
            ebm.fit(frame, on_grid(y), bags=bags)
    finally:
        develop.set_option(ACCELERATION, before)
