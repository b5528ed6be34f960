"""The gradient-boosted half of Helios."""

from __future__ import annotations

import numpy as np

from features.job import Job
from features.schema import State
from reproductions.baselines.helios import OnlineHelios
from reproductions.baselines.helios_forest import HeliosForest

DAY_S = 86_400.0


def jobs(count: int) -> list[Job]:
    """Two users, one of whom runs ten times as long."""
    return [
        Job(f"j{i}", 1.6e9 + 3600.0 * i, 1 + i % 2, user="ab"[i % 2], vc="v", name=f"run-{i}")
        for i in range(count)
    ]


def durations(of: list[Job]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([100.0 if job.user == "a" else 1000.0 for job in of])


def test_the_forest_learns_who_runs_long() -> None:
    past = jobs(400)
    forest = HeliosForest(past, durations(past))
    short, long = forest.predict(jobs(2))
    assert abs(short - 100.0) < 10.0
    assert abs(long - 1000.0) < 10.0
    stranger = Job("s", 1.6e9, 1, user="nobody", vc="elsewhere", name="unheard of")
    assert 50.0 < forest.predict([stranger])[0] < 1100.0


def test_the_forest_is_fitted_while_a_trace_is_replayed() -> None:
    estimator = OnlineHelios(min_rows=100, refit_s=7 * DAY_S)
    for job, seconds in zip(jobs(400), durations(jobs(400)), strict=True):
        estimator.submitted(job, job.submit_time)
        estimator.enqueued(job, job.submit_time)
        end = job.submit_time + float(seconds)
        estimator.ended(job.job_id, State.COMPLETED, float(seconds), end)
    assert estimator.fits == 2, "after a hundred jobs, and a week later"
    assert abs(estimator.estimate(jobs(2)[1], 2e9).seconds - 1000.0) < 60.0
