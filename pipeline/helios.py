"""Helios' QSSF estimates, learned while a trace is replayed: the forest is fitted anew each week.

Training needs LightGBM, so this lives here and is handed to the decision core as an estimator.
"""

from __future__ import annotations

import numpy as np

from features.job import Job
from features.schema import State
from scheduler.core.estimates import Estimate
from scheduler.policies.helios import HeliosEstimator

WEEK_S = 7 * 86_400.0


class OnlineHelios(HeliosEstimator):
    """The blend of `scheduler.policies.helios`, with a forest fitted on the jobs that have ended.

    Args:
        refit_s: seconds of simulated time between fits.
        min_rows: ended jobs before the first.
        seed: of the fits.
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
        from models.training.helios import HeliosForest

        jobs = [job for job, _ in self._past]
        seconds = np.array([duration_s for _, duration_s in self._past])
        model = HeliosForest(jobs, seconds, seed=self.seed)
        self.forest = lambda job, now: float(model.predict([job])[0])
        self.fits += 1
