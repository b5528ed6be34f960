"""Calibrating intervals on the latest days: what the distribution promised against what came.

For every job predicted lately, the fitted chance that it would have ended by the time it did is a
number between 0 and 1. Were the fit right these would be uniform; their observed distribution is
the map from promised to fitted levels (distributional conformal prediction). A job still running
says only that its number is larger than that of its elapsed time, so the distribution is
estimated as a survival curve with censoring: Kaplan and Meier, JASA 1958. Without that, the
latest days would hold too many short jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.bundle import Calibration

Floats = NDArray[np.float64]

# Classes of gang size: 1; 2 to 4; 5 to 8; more.
GPUS_UP_TO = (1, 4, 8)
LEVELS = 101
# A class with fewer jobs than this leans on all jobs by the share it lacks.
LEAST = 300
DAYS = 10.0


def calibrate(
    level: Floats,
    ended: NDArray[np.bool_],
    gpus: NDArray[np.int64],
    *,
    gpus_up_to: Sequence[int] = GPUS_UP_TO,
) -> Calibration:
    """The map from promised to fitted levels.

    Args:
        level: fitted chance to have ended by the end (or by now), (n,), in [0, 1].
        ended: whether it has, (n,).
        gpus: gang sizes, (n,).
        gpus_up_to: see `Calibration`.

    Without a single ended job the fitted distribution is taken at its word.
    """
    everyone = _quantiles(level, ended)
    rows = []
    for k in range(len(gpus_up_to) + 1):
        mine = np.searchsorted(np.array(gpus_up_to), gpus, side="left") == k
        trust = min(1.0, int((mine & ended).sum()) / LEAST)
        own = _quantiles(level[mine], ended[mine]) if trust else everyone
        rows.append(trust * own + (1.0 - trust) * everyone)
    return Calibration(tuple(gpus_up_to), np.array(rows))


def _quantiles(level: Floats, ended: NDArray[np.bool_]) -> Floats:
    """Levels at which the Kaplan-Meier distribution reaches 0, 1/(m-1), ..., 1, (m,)."""
    grid = np.linspace(0.0, 1.0, LEVELS)
    if not ended.any():
        return grid
    order = np.lexsort((~ended, level))  # of a tie, the ends come first
    level, ended = level[order], ended[order]
    at_risk = np.arange(len(level), 0, -1)
    alive = np.cumprod(1.0 - ended / at_risk)
    x = np.concatenate([[0.0], level[ended], [1.0]])
    y = np.concatenate([[0.0], 1.0 - alive[ended], [1.0]])
    # Flat stretches of the map have many inverses; a hair of slope picks one.
    y = np.maximum.accumulate(y) + 1e-9 * np.arange(len(y))
    found = np.interp(grid * y[-1], y, x)
    return np.maximum.accumulate(np.clip(found, 0.0, 1.0))
