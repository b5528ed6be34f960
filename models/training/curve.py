"""The mean of a duration from the log-odds to outlast a few thresholds.

Straight lines in log-odds over ln(1 + seconds) between the thresholds, and from them to the ends.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Where the distribution starts and ends: hardly any job ends at once, or lasts 30 days.
_ENDS = (0.0, float(np.log1p(30 * 86_400.0)))
_SURE = float(np.log(0.9995 / 0.0005))
_GRID = 256


class Curve:
    """Distributions over common thresholds (seconds, increasing)."""

    def __init__(self, thresholds_s: Iterable[float]) -> None:
        self._x = np.array([_ENDS[0], *np.log1p(tuple(thresholds_s)), _ENDS[1]])

    def level_of(self, logits: Floats, seconds: Floats) -> Floats:
        """Chance that each of n jobs ends within `seconds` (n,), (n,)."""
        y = self._curve(logits)
        x = np.clip(np.log1p(seconds), self._x[0], self._x[-1])
        i = np.clip(np.searchsorted(self._x, x, side="right") - 1, 0, len(self._x) - 2)
        at = np.arange(len(y))
        share = (x - self._x[i]) / (self._x[i + 1] - self._x[i])
        return _sigmoid(-np.asarray(y[at, i] + share * (y[at, i + 1] - y[at, i])))

    def mean_log(self, logits: Floats, elapsed_s: Floats) -> Floats:
        """Mean of ln(1 + seconds) of n jobs, (n,), of those that last beyond `elapsed_s` (n,)."""
        y = self._curve(logits)
        grid = np.linspace(float(self._x[0]), float(self._x[-1]), _GRID)
        i = np.clip(np.searchsorted(self._x, grid, side="right") - 1, 0, len(self._x) - 2)
        share = (grid - self._x[i]) / (self._x[i + 1] - self._x[i])
        alive = _sigmoid(y[:, i] * (1 - share) + y[:, i + 1] * share)
        width = grid[1] - grid[0]
        slabs = (alive[:, 1:] + alive[:, :-1]) / 2 * width
        area = np.zeros(alive.shape)
        area[:, 1:] = np.cumsum(slabs, axis=1)
        total = np.asarray(area[:, -1])
        lived = np.asarray(np.clip(np.log1p(elapsed_s), grid[0], grid[-1]), dtype=np.float64)
        now_alive = 1.0 - self.level_of(logits, elapsed_s)
        at = np.arange(len(y))
        cell = np.minimum((lived / width).astype(np.intp), _GRID - 1)
        gone: Floats = area[at, cell] + (alive[at, cell] + now_alive) / 2 * (lived - grid[cell])
        left = np.asarray(np.maximum(total - gone, 0.0) / now_alive, dtype=np.float64)
        return lived + left

    def _curve(self, logits: Floats) -> Floats:
        """Log-odds at the ends and thresholds, (n, thresholds + 2), falling strictly."""
        n = len(logits)
        inside = np.clip(logits, -_SURE, _SURE)
        curve: Floats = np.concatenate(
            [np.full((n, 1), _SURE), inside, np.full((n, 1), -_SURE)], axis=1
        )
        return curve - np.linspace(0.0, 1e-5, curve.shape[1])


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))
