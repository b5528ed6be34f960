"""The gradient-boosted half of Helios, and its forecast of nodes."""

from __future__ import annotations

import numpy as np

from features.job import Job
from features.schema import State
from models.training.helios import HeliosForest, NodeForecaster, node_features, table_forecast
from pipeline.helios import OnlineHelios

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
        estimator.estimate(job, job.submit_time)
        end = job.submit_time + float(seconds)
        estimator.ended(job.job_id, State.COMPLETED, float(seconds), end)
    assert estimator.fits == 2, "after a hundred jobs, and a week later"
    assert abs(estimator.estimate(jobs(2)[1], 2e9).seconds - 1000.0) < 60.0


def series(days: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    time = 1.6e9 + 600.0 * np.arange(days * 144)
    daily = 50.0 + 30.0 * np.sin(2 * np.pi * time / DAY_S)
    return np.round(daily + np.random.default_rng(0).normal(0, 1, len(time))), time


def test_the_forecast_follows_the_day() -> None:
    values, time = series(14)
    forecaster = NodeForecaster(values[:1440], time[:1440], (18,))
    rows = np.arange(1440, len(values) - 18)
    truth = np.array([values[i + 1 : i + 19].mean() for i in rows])
    error = np.abs(forecaster.predict(values, time, 18)[rows] - truth).mean()
    assert error < 0.3 * np.abs(values[rows] - truth).mean(), "better than that nothing changes"


def test_no_forecast_looks_ahead() -> None:
    values, time = series(10)
    forecaster = NodeForecaster(values[:1000], time[:1000], (6, 12))
    whole = forecaster.predict(values, time, 6)
    other = np.where(np.arange(len(values)) > 1200, 0.0, values)
    assert np.array_equal(forecaster.predict(other, time, 6)[:1201], whole[:1201])
    cut = node_features(values[:1201], time[:1201])
    assert cut.equals(node_features(other, time).iloc[:1201])
    ask = table_forecast(forecaster, values, time, (6, 12))
    assert ask(values[:101].tolist(), 6) == whole[100]
