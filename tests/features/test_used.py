"""What the earlier runs of a script used of their maximum widens a statement, then centres it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.commands import work_of
from features.job import Job
from features.progress import EARLY, Progress, tempered
from features.schema import State
from scheduler.core.estimates import HistoriesEstimator

SAID = Progress(10_000.0, 9_700.0, 10_300.0, 10, 100, "epoch", 100.0, 1_000.0, "epoch")


def test_one_run_that_stopped_early_widens() -> None:
    found = tempered(SAID, [0.3])
    assert found.low_s <= 3_000 < found.total_s < 10_300 == found.high_s
    assert EARLY in found.doubts
    assert "may stop early" in found.text()


def test_several_centre() -> None:
    found = tempered(SAID, [0.3, 0.4, 0.35])
    assert found.total_s == pytest.approx(3_500.0)
    assert found.low_s < 3_000
    assert found.high_s == SAID.high_s


@pytest.mark.parametrize("shares", [[], [1.02, 0.95, 0.9], [0.05, 0.08]])
def test_runs_that_used_it_or_that_it_has_outlived_say_nothing(shares: list[float]) -> None:
    assert tempered(SAID, shares) == SAID


def test_a_doubt_that_its_output_shows_is_not_doubled() -> None:
    doubted = replace(SAID, doubts=EARLY)
    assert tempered(doubted, [0.3]) == doubted


def job(name: str, epochs: int, gpus: int = 1) -> Job:
    work = work_of(["python", "train.py", "--epochs", str(epochs)])
    return Job(job_id=name, submit_time=0.0, gpus=gpus, user="ada", vc="vc", work=work)


def test_the_histories_remember_what_a_script_took() -> None:
    estimator = HistoriesEstimator()
    for i, took_s in enumerate((3_000.0, 3_600.0, 3_300.0)):
        estimator.submitted(job(f"{i}", 100), 10_000.0 * i)
        estimator.started(f"{i}", 10_000.0 * i)
        estimator.ended(f"{i}", State.COMPLETED, took_s, 10_000.0 * i + took_s)
    found = estimator.tempered(job("now", 100), SAID)
    assert found.total_s == pytest.approx(3_300.0)
    for other in (job("of more", 200), job("on more", 100, gpus=2)):
        assert estimator.tempered(other, SAID) == SAID
    steps = replace(SAID, unit="step")
    assert estimator.tempered(job("in steps", 100), steps) == steps
