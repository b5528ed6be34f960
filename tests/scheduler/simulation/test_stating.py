"""Jobs that say how long they will have run, in simulation: who, when, and how wrong."""

from __future__ import annotations

import random
from math import log
from pathlib import Path
from statistics import median, stdev

import pytest

from features.job import Job
from features.schema import State
from pipeline.traces.synthetic.generate import default_config, write
from pipeline.worlds import open_scenario
from pipeline.worlds.venus import TrackError
from scheduler.core.durations import Stated, seconds_of
from scheduler.core.estimates import HistoriesEstimator
from scheduler.simulation.stating import Stating, stating, with_commands
from scheduler.simulation.work import Work

HOUR = 3600.0


def test_all_jobs_of_a_user_say_it_or_none_and_each_is_wrong_in_its_own_way() -> None:
    jobs = [Job(f"j{i}", float(i), 1, user=f"u{i % 100}", vc="vc") for i in range(10_000)]
    work = {job.job_id: Work(HOUR) for job in jobs}
    found = stating(jobs, work, 0.6, 0.1, 7)
    users = {job.user for job in jobs if job.job_id in found.off}
    assert 45 <= len(users) <= 75
    assert len(found.off) == 100 * len(users)
    assert stdev(found.off.values()) == pytest.approx(0.1, rel=0.05)
    assert stating(jobs, work, 0.6, 0.1, 7) == found != stating(jobs, work, 0.6, 0.1, 8)
    nameless = [Job(job.job_id, job.submit_time, 1, vc="vc") for job in jobs]
    assert len(stating(nameless, work, 0.6, 0.1, 7).off) == pytest.approx(6_000, rel=0.05)
    assert not stating(jobs, work, 0.0, 0.1, 7).off


def test_what_is_said_is_surer_the_more_is_done_and_holds_the_truth() -> None:
    said = Stating(0.2, {"a": 0.2})
    early, late = (said.progress("a", 10 * HOUR, ran_s) for ran_s in (HOUR, 9 * HOUR))
    assert early is not None
    assert late is not None
    assert log(early.total_s / (10 * HOUR)) > 3 * log(late.total_s / (10 * HOUR)) > 0
    assert early.error > 3 * late.error
    assert early.low_s < 10 * HOUR < early.high_s
    assert said.progress("b", 10 * HOUR, HOUR) is None


def test_what_was_stopped_says_how_far_it_is_of_the_whole() -> None:
    jobs = [Job(f"j{i}", float(i), 1, user="u", vc="vc") for i in range(1_000)]
    work = {
        job.job_id: Work(HOUR, State.FAILED if i % 2 else State.COMPLETED)
        for i, job in enumerate(jobs)
    }
    found = stating(jobs, work, 1.0, 0.1, 7)
    assert set(found.whole_s) == {f"j{i}" for i in range(1, 1_000, 2)}
    assert all(HOUR <= whole_s <= 20 * HOUR for whole_s in found.whole_s.values())
    half = Stating(0.1, {"a": 0.0}, {"a": 4 * HOUR}).progress("a", HOUR, HOUR / 2)
    assert half is not None
    assert half.total_s == pytest.approx(4 * HOUR)


def test_commands_and_completed_runs_of_the_script_say_how_long_a_job_lasts() -> None:
    """For scripts of any speed and slope; before one has completed nothing is known."""
    draw = random.Random(3)
    jobs = [Job(f"j{i}", float(i), draw.choice([1, 2, 4]), user=f"u{i % 3}") for i in range(60)]
    work = {job.job_id: Work(draw.uniform(600, 40 * HOUR)) for job in jobs}
    asking = list(with_commands(jobs, work, stating(jobs, work, 1.0, 0.05, 0), 0))
    paces = {
        (job.user, job.gpus): work[job.job_id].duration_s / job.work.amount
        for job in asking
        if job.work
    }
    assert len({round(paces[f"u{i}", 1]) for i in range(3)}) == 3
    assert all(paces[f"u{i}", 4] < 0.8 * paces[f"u{i}", 1] for i in range(3)), "GPUs speed it up"
    estimator, off = HistoriesEstimator(), []
    for i, job in enumerate(asking):
        estimator.submitted(job, job.submit_time)
        seconds = estimator.estimate(job, job.submit_time).seconds
        assert isinstance(seconds, Stated) == (i >= 3)
        off.append(abs(log(seconds_of(seconds) / work[job.job_id].duration_s)))
        estimator.started(job.job_id, job.submit_time)
        estimator.ended(job.job_id, State.COMPLETED, work[job.job_id].duration_s, job.submit_time)
    assert median(off[30:]) < 0.15
    of_one = [
        log(work[job.job_id].duration_s / job.work.amount)
        for job in asking
        if job.work and (job.user, job.gpus) == ("u0", 1)
    ]
    assert 0.01 < stdev(of_one) < 0.1, "runs of a script differ as what jobs say is wrong"
    nobody = stating(jobs, work, 0.0, 0.05, 0)
    assert list(with_commands(jobs, work, nobody, 0)) == jobs


def test_a_world_has_the_commands_of_those_who_are_readable(tmp_path: Path) -> None:
    write(default_config("small"), tmp_path / "trace")
    says = {
        commands: open_scenario(tmp_path / "trace", readable=0.5, readable_commands=commands)
        for commands in (False, True)
    }
    states = says[True].states
    assert states is not None
    asks = {job.job_id for job in says[True].workload.jobs if job.work is not None}
    assert asks == set(states.off)
    assert 0 < len(asks) < len(says[True].workload.jobs)
    assert all(job.work is None for job in says[False].workload.jobs)


@pytest.mark.parametrize(("option", "value"), [("readable", 1.5), ("readable_error", 0.0)])
def test_shares_and_errors_that_cannot_be_are_refused(option: str, value: float) -> None:
    with pytest.raises(TrackError, match=option.replace("_", "-")):
        open_scenario(Path(__file__), **{"readable": 0.5, option: value})


def test_commands_of_nobody_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackError, match="--readable-commands: say of how many users"):
        open_scenario(tmp_path, readable_commands=True)
