"""Estimators of durations that refit their models every day while a trace is replayed. They show
what a fitted model adds to the histories of similar jobs.

Until the first fit, the histories alone predict (`FeatureState.outlook`). Every fit, except
that of `lightgbm`, is blended with them by the number of jobs seen, so that predictions do not
jump. All are baselines (`--durations ga2m`, `lightgbm-blended`, `lightgbm`); their results are
in docs/policy-figures.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from math import expm1
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
    knows_limits,
)

if TYPE_CHECKING:
    import pandas as pd

DAY_S = 86_400.0
# What a refit looks at: size, bursts and wider histories were no better (docs/models.md).
FAMILIES = ("survival",)
TRAINS = find_spec("interpret") is not None  # the extra `train` is installed


class OnlineEstimator(BundleEstimator):
    """Predicts durations by the histories of similar jobs, and once enough jobs have ended by a
    GA2M (additive model) trained on the jobs so far. The model is fitted again when the first
    job joins a queue after each `refit_s` seconds.

    It uses no knowledge of the future. The features of a job are taken when it joins its queue.
    A fit learns from the jobs that have ended, and from those that run: of these it knows only
    that they last longer than they have run so far.

    Args:
        min_rows: number of ended jobs before the first fit.
        seed: seed of the fits.
    """

    name = "ga2m"
    refit_s = DAY_S  # of simulated time, between refits

    def __init__(self, *, min_rows: int = 500, seed: int = 0):
        FeatureEstimator.__init__(self, FeatureState(FAMILIES))
        self.min_rows = min_rows
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
        """Return the number of ended jobs to learn from so far."""
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
        return self._answer(job, row, now)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self._answer(job, self.state.row(job, now), now)

    def _answer(self, job: Job, row: list[Value], now: float) -> Estimate:
        if not self._trained:
            return self.from_histories(job, now)
        limited = knows_limits(self.bundle)
        return self.refined(self.scored(row), job, now, limited=limited)

    def started(self, job_id: str, now: float) -> None:
        super().started(job_id, now)
        self._started[job_id] = now

    def stopped(self, job_id: str, now: float) -> None:
        super().stopped(job_id, now)
        self._started.pop(job_id, None)

    def _refit(self, now: float) -> None:
        from models.training.duration import fit_duration

        running = [job for job in self._started if job in self._waiting]
        frame = self._frame([*self._rows, *(self._waiting[job][1] for job in running)])
        times = np.array([*self._times, *(self._waiting[job][0] for job in running)])
        durations = np.array([*self._durations, *(np.nan for _ in running)])
        elapsed = np.array([*self._durations, *(now - self._started[job] for job in running)])
        order = np.argsort(times, kind="stable")
        fitted = fit_duration(
            frame.iloc[order].reset_index(drop=True),
            durations[order],
            times[order],
            self.state.features,
            seed=self.seed,
            preset="online",
            elapsed_s=elapsed[order],
        )
        self.use(Bundle(duration=fitted.model, metadata=dict(fitted.metadata)))
        self._trained = True
        self.fits += 1

    def _frame(self, rows: Sequence[Sequence[Value]]) -> pd.DataFrame:
        import pandas as pd

        columns = {}
        for i, spec in enumerate(self.state.features):
            dtype = "float64" if spec.kind == "continuous" else object
            columns[spec.name] = pd.Series([row[i] for row in rows], dtype=dtype)
        return pd.DataFrame(columns)


class LightGbmEstimator(OnlineEstimator):
    """Predicts durations by LightGBM instead of the GA2M, refitted as often, on the feature rows of
    ended jobs only.

    Args:
        blends: whether predictions are blended with the histories by the number of jobs seen, as
            the GA2M's are. If False, LightGBM alone predicts once it is fitted.
    """

    def __init__(self, *, blends: bool, seed: int = 0, min_rows: int = 500):
        super().__init__(seed=seed, min_rows=min_rows)
        self.name = "lightgbm-blended" if blends else "lightgbm"
        self.blends = blends
        self._weight = 0.0
        self._model: Callable[[pd.DataFrame], NDArray[np.float64]] | None = None

    def _answer(self, job: Job, row: list[Value], now: float) -> Estimate:
        if self._model is None:
            return self.from_histories(job, now)
        from models.training.duration import LIKE

        frame = self._frame([row])
        value = self._weight * float(self._model(frame)[0])
        if self.blends:
            value += (1.0 - self._weight) * float(frame[list(LIKE)].to_numpy(np.float64).sum())
        return self.refined(Estimate(max(0.0, expm1(value))), job, now)

    def _refit(self, now: float) -> None:
        from models.training.baselines import fit_lightgbm
        from models.training.duration import EVIDENCE

        self._model = fit_lightgbm(
            self._frame(self._rows),
            np.array(self._durations),
            self.state.features,
            seed=self.seed,
            objective="l2",
        )
        self._weight = len(self._rows) / (len(self._rows) + EVIDENCE) if self.blends else 1.0
        self.fits += 1
