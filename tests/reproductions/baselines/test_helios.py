"""Helios' estimates: who is like whom, and the blend."""

from __future__ import annotations

import numpy as np
import pytest

from features.job import Job
from features.schema import State
from reproductions.baselines.helios import HeliosEstimator, OnlineHelios, RollingMean
from reproductions.baselines.helios_forest import HeliosForest


def job(user: str = "ann", name: str = "", gpus: int = 1, job_id: str = "j") -> Job:
    return Job(job_id, 0.0, gpus, user=user, name=name)


@pytest.fixture
def rolling() -> RollingMean:
    mean = RollingMean()
    mean.add("ann", "train-resnet", 1, 100.0)
    mean.add("ann", "train-resnet", 4, 900.0)
    mean.add("ann", "eval", 1, 5.0)
    mean.add("bob", "train-resnet", 1, 300.0)
    return mean


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (job("ann", "train-resnet", 1), 100.0),  # the user's, of that name and size
        (job("ann", "train-resnet", 8), 500.0),  # of that name, of any size
        (job("cy", "train-resnet", 1), 1300.0 / 3),  # everybody's of that name
        (job("ann", "train-resnets", 4), 900.0),  # of the name most like it
        (job("ann", "zzz", 1), 1005.0 / 3),  # the user's
        (job("cy", "zzz", 1), 1305.0 / 4),  # all
        (job("bob", "", 1), 300.0),  # a nameless job: the user's
    ],
)
def test_the_nearest_jobs_speak(rolling: RollingMean, asked: Job, expected: float) -> None:
    assert rolling(asked) == pytest.approx(expected)


def test_run_numbers_do_not_make_a_new_name() -> None:
    mean = RollingMean()
    mean.add("ann", "run_17", 1, 40.0)
    assert mean(job("ann", "run_18")) == 40.0
    assert RollingMean()(job()) is None


def ended(estimator: HeliosEstimator, seconds: float, gpus: int = 1) -> None:
    estimator.submitted(job(gpus=gpus, job_id="past"), 0.0)
    estimator.ended("past", State.COMPLETED, seconds, seconds)


def test_a_tenth_of_the_mean_and_nine_of_the_forest() -> None:
    estimator = HeliosEstimator(lambda job, now: 1000.0)
    assert estimator.gpu_s(job(gpus=2), 0.0) == 2000.0, "nothing has ended yet"
    ended(estimator, 100.0)
    assert estimator.gpu_s(job(gpus=2), 0.0) == pytest.approx(0.1 * 100.0 + 0.9 * 2000.0)
    assert estimator.estimate(job(gpus=2), 0.0).seconds == pytest.approx(905.0)


@pytest.mark.parametrize("predicted", [0.0, -5.0, None])
def test_without_a_usable_forest_the_mean_alone(predicted: float | None) -> None:
    estimator = HeliosEstimator(lambda job, now: predicted)
    ended(estimator, 100.0, gpus=4)
    assert estimator.gpu_s(job(gpus=2), 0.0) == 400.0


# --- the forest -----------------------------------------------------------------------------------


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
