"""The duration of a script's next run, predicted from its earlier runs: the numeric part of
`features.throughput`."""

from __future__ import annotations

from itertools import product
from math import log
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from features import portable
from features.amounts import Ran

# what may be, with how likely it is before anything ran: noise, effect of arguments; how much of
# the shortest run is its start-up, where one of more than half a minute is less likely
_NOISE = {0.02: 0.3, 0.06: 0.4, 0.2: 0.18, 0.6: 0.08, 2.0: 0.04}
_WORDS = {0.02: 0.25, 0.1: 0.25, 0.4: 0.25, 1.0: 0.25}
_START = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
_START_S = 30.0
_GRID = [(n, w, s) for (n, w), s in product(product(_NOISE, _WORDS), _START)]
_PRIOR = np.array([_NOISE[n] * _WORDS[w] * (1 - s) ** 2 for n, w, s in _GRID])
_LEVEL_S, _LEVEL = 60.0, 4.0  # seconds a unit of a script nobody ran, and the error of that
# slopes of ln(seconds a unit) over ln(GPUs) and ln(batch size), and the error of each
_SLOPES = {"epoch": ((-0.8, 0.4), (-0.2, 0.35)), "step": ((0.1, 0.4), (0.8, 0.35))}

BATCH = 32.0  # where none is named
_EIGHT_OF_TEN = NormalDist().inv_cdf(0.9)
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 25) for i in range(25)])


def posterior(everyone: list[Ran]) -> tuple[float, float]:
    """Return (predicted duration in seconds, standard error of its logarithm) of the last run in
    `everyone`, which has not run yet.

    Args:
        everyone: the completed runs of the script, oldest first, then the run to predict.
    """
    n = len(everyone) - 1
    total = np.array([ran.total_s for ran in everyone[:-1]])
    amount = np.array([ran.work.amount for ran in everyone])
    noise, effect, share = np.array(_GRID).T
    start = share * total.min()
    left = total - start[:, None]
    own = np.log(left / amount[:-1]) - log(_LEVEL_S)
    mean, covariance = _kernel(everyone, noise, effect)
    off = own - mean[:-1]
    inner = covariance[:, :n, :n]
    root = np.linalg.cholesky(inner)
    white = np.linalg.solve(root, off[:, :, None])[:, :, 0]
    likely = (
        -0.5 * (white**2).sum(1)
        - np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        + np.log(total / left).sum(1)
        + np.log(_PRIOR / (1 + start / _START_S))
    )
    weight = np.exp(likely - likely.max())
    weight /= weight.sum()
    across = np.linalg.solve(root, covariance[:, :n, n:])[:, :, 0]
    unit = mean[-1] + (white * across).sum(1) + log(_LEVEL_S)
    spread = np.maximum(covariance[:, n, n] - (across**2).sum(1), 1e-6)
    logs = np.log(start + amount[-1] * np.exp(unit))
    return portable.exp(float(weight @ logs)), _error(logs, spread**0.5, weight)


def _error(
    middle: NDArray[np.float64], deviation: NDArray[np.float64], weight: NDArray[np.float64]
) -> float:
    """Return the spread of a weighted mixture of normal distributions: half the width of its middle
    80 %, scaled to be the standard deviation of a single normal one. The true standard deviation
    would depend too much on a few unusual runs."""
    points = (middle[:, None] + deviation[:, None] * _NORMAL).ravel()
    order = np.argsort(points)
    below = np.cumsum(np.repeat(weight, len(_NORMAL))[order]) / len(_NORMAL)
    low, high = points[order][np.searchsorted(below, (0.1, 0.9))]
    return float(high - low) / (2 * _EIGHT_OF_TEN)


def _kernel(
    everyone: list[Ran], noise: NDArray[np.float64], effect: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the prior of ln(seconds per unit of work): its mean, an array [runs], and its
    covariance, an array [grid, runs, runs].

    Args:
        everyone: all runs, the one to predict last.
        noise, effect: standard deviations to try, one of each per point of the grid: of a run, and
            of what its other arguments add.
    """
    gpus = np.log([ran.gpus for ran in everyone])
    batch = np.log([(ran.work.batch or BATCH) / BATCH for ran in everyone])
    (by_gpus, gpus_error), (by_batch, batch_error) = _SLOPES[everyone[-1].work.unit]
    words = np.array([ran.work.words for ran in everyone])
    rest = np.array([ran.work.rest for ran in everyone])
    same = 0.5 * (words[:, None] == words) + 0.5 * (rest[:, None] == rest)
    order = np.arange(1.0, len(everyone) + 1)
    drift = 0.1 * np.minimum(order[:, None], order) + np.eye(len(everyone))
    fixed = (
        _LEVEL**2 + gpus_error**2 * np.outer(gpus, gpus) + batch_error**2 * np.outer(batch, batch)
    )
    covariance = fixed + effect[:, None, None] ** 2 * same + noise[:, None, None] ** 2 * drift
    return by_gpus * gpus + by_batch * batch, covariance
