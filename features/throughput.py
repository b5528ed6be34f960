"""How long a job will run, by how much its command asks for and how fast its earlier runs were.

total = start-up + amount x seconds a unit. Earlier runs are those of the same user and script. The
logarithm of seconds a unit is a Gaussian process over them: a level of the script, what its other
arguments add, a slope by GPUs, one by batch size, a slow drift, noise. How much the arguments add,
how noisy runs are and how long the start-up takes is weighed by how well it explains the runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import exp, log
from statistics import NormalDist, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from features.amounts import Work
from features.job import Job
from features.progress import Progress

KEPT = 16  # runs of a script
LATEST = 3  # of them are in the text
WIDEST = 1.0  # error of ln(total) above which nothing is predicted
FAR = 0.1  # error of asking for e times as much as any run did
BATCH = 32.0  # where none is named

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

_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 25) for i in range(25)])
_EIGHT_OF_TEN = NormalDist().inv_cdf(0.9)


class Ran(NamedTuple):
    """A run that completed: what its command asked for, with how many GPUs, and how long it ran."""

    work: Work
    gpus: int
    total_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """A duration by command and earlier runs.

    Attributes:
        total_s: seconds. error: of its logarithm, which lies within 1.28 times that in eight of
            ten cases.
        words: what it rests on.
    """

    total_s: float
    error: float
    words: str

    def text(self) -> str:
        """In words: "asks for 90 epochs; its last 3 runs took 8.0 min an epoch"."""
        return self.words


@lru_cache(maxsize=4096)
def asked(work: Work, gpus: int, runs: tuple[Ran, ...]) -> Asked | None:
    """How long a job lasts with a command that asks for `work`; None: not known.

    Args:
        runs: of the same script by the same user, with the same unit; oldest first.
    """
    if not runs:
        return None
    everyone = [*runs, Ran(work, gpus, 0.0)]
    gap = min(abs(log(work.amount / ran.work.amount)) for ran in runs)
    total, error = _posterior(everyone)
    error = (error**2 + (FAR * gap) ** 2) ** 0.5
    if error > WIDEST:
        return None
    latest = runs[-LATEST:]
    usual = median(ran.total_s / ran.work.amount for ran in latest)
    here = total / work.amount
    some = f"its last {len(latest)} runs" if len(latest) > 1 else "its last run"
    words = f"asks for {_many(work)}; {some} took {in_words(usual)} {_each(work)}"
    if not 0.9 < here / usual < 1.1:
        words += f", this one should take {in_words(here)}"
    return Asked(total, error, words)


def _posterior(everyone: list[Ran]) -> tuple[float, float]:
    """The total of the last, which is yet to run, and the error of its logarithm."""
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
    return exp(float(weight @ logs)), _error(logs, spread**0.5, weight)


def _error(
    middle: NDArray[np.float64], deviation: NDArray[np.float64], weight: NDArray[np.float64]
) -> float:
    """Of a weighted mixture of normal distributions, what the standard deviation is of one: by
    eight of ten cases. The few runs that are wholly otherwise would set the standard deviation."""
    points = (middle[:, None] + deviation[:, None] * _NORMAL).ravel()
    order = np.argsort(points)
    below = np.cumsum(np.repeat(weight, len(_NORMAL))[order]) / len(_NORMAL)
    low, high = points[order][np.searchsorted(below, (0.1, 0.9))]
    return float(high - low) / (2 * _EIGHT_OF_TEN)


def _kernel(
    everyone: list[Ran], noise: NDArray[np.float64], effect: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prior mean, [runs], and covariance, [grid, runs, runs], of ln(seconds a unit)."""
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


def _many(work: Work) -> str:
    return f"{work.amount:,g} {work.unit}" + ("" if work.amount == 1 else "s")


def _each(work: Work) -> str:
    return "an epoch" if work.unit == "epoch" else "a step"


def in_words(seconds: float) -> str:
    """A duration: "9.3 s", "12.0 min"."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def shares(runs: Iterable[Ran], job: Job, progress: Progress) -> list[float]:
    """How much of the maximum that a job states its script's earlier runs took, at its pace.

    Of runs that asked for as much, with as many GPUs; none where it counts something else.
    """
    work = job.work
    if work is None or work.unit != progress.unit or abs(work.amount - progress.of) > 1.0:
        return []
    alike = (ran for ran in runs if ran.gpus == job.gpus and ran.work.amount == work.amount)
    return [ran.total_s / progress.total_s for ran in alike]
