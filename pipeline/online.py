"""A GA2M refitted every day on ended and on running jobs: what a fit adds to the histories.

Until the first fit the histories speak for themselves (`FeatureState.outlook`); every fit is
blended with them by the jobs seen, so there is no step from one to the other. It is a yardstick
(`--durations ga2m`): schedules by the histories alone were shorter (docs/models.md).
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pandas as pd

from features.job import Job
from features.schema import State
from features.spec import Value
from features.state import FeatureState
from models.bundle import Bundle
from scheduler.core.estimates import (
    COLD_START,
    OF_HISTORIES,
    BundleEstimator,
    Estimate,
    FeatureEstimator,
)

DAY_S = 86_400.0
# What a refit looks at: size, bursts and wider histories were no better (docs/models.md).
FAMILIES = ("survival",)
TRAINS = find_spec("interpret") is not None  # the extra `train` is installed


class OnlineEstimator(BundleEstimator):
    """Histories first, then a GA2M trained on what is known, refitted every `refit_s`.

    Causal: a row is taken when a job joins its queue; it is learned from once the job has ended,
    and while it runs as one that has lasted so long.

    Args:
        refit_s: seconds of simulated time between refits.
        min_rows: ended jobs before the first fit.
        preset: how hard to fit, `models.training.duration.PRESETS`.
        seed: of the fits.
    """

    name = "ga2m"

    def __init__(
        self,
        *,
        refit_s: float = DAY_S,
        min_rows: int = 500,
        preset: str = "online",
        seed: int = 0,
    ):
        FeatureEstimator.__init__(self, FeatureState(FAMILIES))
        self.refit_s = refit_s
        self.min_rows = min_rows
        self.preset = preset
        self.seed = seed
        self.descriptions[COLD_START] = OF_HISTORIES
        self.fits = 0
        self._trained = False
        self._next_fit: float | None = None
        self._waiting: dict[str, tuple[float, list[Value]]] = {}  # rows of jobs not ended
        self._started: dict[str, float] = {}  # of those, the ones that run
        self._rows: list[list[Value]] = []
        self._durations: list[float] = []
        self._times: list[float] = []

    @property
    def observed(self) -> int:
        """Ended jobs to learn from so far."""
        return len(self._rows)

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        super().ended(job_id, state, duration_s, now)
        self._started.pop(job_id, None)
        taken = self._waiting.pop(job_id, None)
        if taken is None:
            return  # it ended while being profiled: its queue, and so its order, never mattered
        time, row = taken
        self._rows.append(row)
        self._durations.append(duration_s)
        self._times.append(time)

    def enqueued(self, job: Job, now: float) -> Estimate:
        if self._next_fit is None:
            self._next_fit = now + self.refit_s
        elif now >= self._next_fit:
            self._next_fit += self.refit_s * ((now - self._next_fit) // self.refit_s + 1)
            if len(self._rows) >= self.min_rows:
                self._refit(now)
        row = self.state.row(job, now)
        self._waiting[job.job_id] = now, row
        return self._said(job, row, now)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self._said(job, self.state.row(job, now), now)

    def _said(self, job: Job, row: list[Value], now: float) -> Estimate:
        return self.scored(row) if self._trained else self.from_histories(job, now)

    def started(self, job_id: str, now: float) -> None:
        super().started(job_id, now)
        self._started[job_id] = now

    def stopped(self, job_id: str, now: float) -> None:
        super().stopped(job_id, now)
        self._started.pop(job_id, None)

    def _refit(self, now: float) -> None:
        from models.training.duration import fit_duration

        specs = self.state.features
        running = [job for job in self._started if job in self._waiting]
        rows = [*self._rows, *(self._waiting[job][1] for job in running)]
        times = np.array([*self._times, *(self._waiting[job][0] for job in running)])
        durations = np.array([*self._durations, *(np.nan for _ in running)])
        elapsed = np.array([*self._durations, *(now - self._started[job] for job in running)])
        frame = pd.DataFrame(
            {
                spec.name: pd.Series(
                    [row[i] for row in rows],
                    dtype="float64" if spec.kind == "continuous" else object,
                )
                for i, spec in enumerate(specs)
            }
        )
        order = np.argsort(times, kind="stable")
        fitted = fit_duration(
            frame.iloc[order].reset_index(drop=True),
            durations[order],
            times[order],
            specs,
            seed=self.seed,
            preset=self.preset,
            elapsed_s=elapsed[order],
        )
        self.use(Bundle(duration=fitted.model, metadata=dict(fitted.metadata)))
        self._trained = True
        self.fits += 1
