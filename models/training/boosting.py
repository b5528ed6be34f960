"""Boosting that comes out the same on every processor."""

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

    Turn its acceleration off and round the target, so that processors agree. With AVX interpret
    boosts in float32 by default: predictions then differ by up to 2 %, and no time is saved on
    frames like ours. A last bit of the target may decide between two equally good splits.
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
