"""Estimates durations as Helios' QSSF (SC'21) does: from past similar jobs, blended with a forest
of decision trees.

The forest is fitted again each week of a simulation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from difflib import get_close_matches

import numpy as np

from features.job import Job
from features.names import normalise
from features.schema import State
from scheduler.core.estimates import Estimate, Estimator

ROLLING_WEIGHT = 0.1  # of the rolling mean; the rest is the forest's
SIMILAR = 0.6  # Ratcliff-Obershelp ratio from which names are alike
MATCHES = 2
WEEK_S = 7 * 86_400.0
UNKNOWN_GPU_S = 600.0  # of a job before any has ended

# Predicted seconds of a job; None where the forest cannot say.
Forest = Callable[[Job, float], float | None]


class RollingMean:
    """Predicts a job's GPU-time as the mean over the most similar ended jobs.

    These are the user's jobs of the same name; if some have the same number of GPUs, only those; if
    the user has none, everybody's jobs of that name. For an unknown name, the two most similar
    names are used. Failing that, the user's mean is used, and for a new user the mean of all. Names
    that differ only in numbers, dates or hashes count as one name here; the published code compares
    them unchanged.
    """

    def __init__(self) -> None:
        self._sums: dict[Hashable, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        self._names: dict[str, None] = {}
        self._alike: dict[str, list[str]] = {}  # names never seen -> names most like them

    def add(self, user: str, name: str, gpus: int, gpu_s: float) -> None:
        """Add an ended job to the means."""
        name = normalise(name)
        if name and name not in self._names:
            self._names[name] = None
            self._alike.clear()
        for key in (("name", name, user, gpus), ("name", name, user), ("name", name)):
            if name:
                self._put(key, gpu_s)
        self._put(("user", user), gpu_s)
        self._put("all", gpu_s)

    def __call__(self, job: Job) -> float | None:
        """Return predicted GPU-seconds, or None before any job has ended."""
        names = self._like(normalise(job.name))
        for keys in (
            [("name", name, job.user, job.gpus) for name in names],
            [("name", name, job.user) for name in names],
            [("name", name) for name in names],
            [("user", job.user)],
            ["all"],
        ):
            mean = self._mean(keys)
            if mean is not None:
                return mean
        return None

    def _put(self, key: Hashable, gpu_s: float) -> None:
        n, total = self._sums[key]
        self._sums[key] = n + 1, total + gpu_s

    def _mean(self, keys: Iterable[Hashable]) -> float | None:
        found = [self._sums[key] for key in keys if key in self._sums]
        n = sum(count for count, _ in found)
        return sum(total for _, total in found) / n if n else None

    def _like(self, name: str) -> list[str]:
        if not name:
            return []
        if name in self._names:
            return [name]
        if name not in self._alike:
            self._alike[name] = get_close_matches(name, self._names, MATCHES, SIMILAR)
        return self._alike[name]


class HeliosEstimator(Estimator):
    """Estimates by nine tenths of the forest's prediction and a tenth of the rolling mean; by the
    rolling mean alone where the forest fails.

    Args:
        forest: function that predicts the seconds of a job at a given time; None: the rolling mean
            alone.
    """

    name = "helios"

    def __init__(self, forest: Forest | None = None):
        super().__init__()
        self.forest = forest
        self.rolling = RollingMean()
        self._jobs: dict[str, Job] = {}

    def submitted(self, job: Job, now: float) -> None:
        self._jobs[job.job_id] = job

    def changed(self, job: Job, now: float) -> None:
        self._jobs[job.job_id] = job

    def withdrawn(self, job_id: str, now: float) -> None:
        self._jobs.pop(job_id, None)

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        job = self._jobs.pop(job_id)
        self.rolling.add(job.user, job.name, job.gpus, duration_s * job.gpus)

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(self.gpu_s(job, now) / job.gpus)

    def gpu_s(self, job: Job, now: float) -> float:
        """Return the predicted GPU-seconds of a job; `UNKNOWN_GPU_S` if neither the forest nor the
        rolling mean predicts any."""
        rolling = self.rolling(job)
        seconds = self.forest(job, now) if self.forest is not None else None
        if seconds is None or seconds <= 0:
            return UNKNOWN_GPU_S if rolling is None else rolling
        forest = seconds * job.gpus
        if rolling is None:
            return forest
        return ROLLING_WEIGHT * rolling + (1.0 - ROLLING_WEIGHT) * forest


class OnlineHelios(HeliosEstimator):
    """A HeliosEstimator whose forest is fitted repeatedly, during a simulation, on the jobs that
    have ended.

    Args:
        refit_s: seconds of simulated time between two fits.
        min_rows: number of ended jobs before the first fit.
        seed: seed of the fits.
    """

    def __init__(self, *, refit_s: float = WEEK_S, min_rows: int = 500, seed: int = 0):
        super().__init__()
        self.refit_s = refit_s
        self.min_rows = min_rows
        self.seed = seed
        self.fits = 0
        self._next_fit = float("-inf")
        self._past: list[tuple[Job, float]] = []

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        self._past.append((self._jobs[job_id], duration_s))
        super().ended(job_id, state, duration_s, now)

    def enqueued(self, job: Job, now: float) -> Estimate:
        if now >= self._next_fit and len(self._past) >= self.min_rows:
            self._fit()
            self._next_fit = now + self.refit_s
        return super().enqueued(job, now)

    def _fit(self) -> None:
        from reproductions.baselines.helios_forest import HeliosForest  # loads LightGBM

        jobs = [job for job, _ in self._past]
        seconds = np.array([duration_s for _, duration_s in self._past])
        model = HeliosForest(jobs, seconds, seed=self.seed)
        self.forest = lambda job, now: float(model.predict([job])[0])
        self.fits += 1
