"""EASY backfill: who may pass the first in line, and who may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec, Run
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.policies.easy import FIRST_S, Easy, EasySettings
from scheduler.testing.builders import Sample, a_job, cluster_of, play

HOUR = 3600.0


def told(
    *jobs: tuple[str, int, float | None], easy: Easy | None = None
) -> dict[str, tuple[Action, Reason, str | None]]:
    """The last decision on each job of (id, GPUs, limit), all submitted at 0 in this order."""
    core = Core(Cluster(ClusterSpec({"v": 1})), easy or Easy())
    found = {}
    for job_id, gpus, limit in jobs:
        core.submitted(Job(job_id, 0.0, gpus, vc="v", time_limit_s=limit), 0.0)
        for d in core.decide(0.0):
            found[d.job_id] = d.action, d.reason, d.blocker
    return found


def test_a_job_passes_the_first_in_line_when_its_limit_says_it_cannot_delay_it() -> None:
    found = told(("long", 6, 10 * HOUR), ("head", 4, HOUR), ("brief", 2, 9 * HOUR))
    assert found["head"][:2] == (Action.WAIT, Reason.GPUS_BUSY)
    assert found["brief"][0] is Action.START


def test_a_job_that_could_delay_the_first_waits_and_is_told_so() -> None:
    found = told(("long", 6, 10 * HOUR), ("head", 8, HOUR), ("slow", 2, 11 * HOUR))
    assert found["slow"] == (Action.WAIT, Reason.WOULD_DELAY_FIRST, "head")
    found = told(("long", 6, 10 * HOUR), ("head", 8, HOUR), ("unlimited", 2, None))
    assert found["unlimited"][0] is Action.WAIT


@pytest.mark.parametrize(("until_free_s", "passes"), [(250.0, True), (150.0, False)])
def test_without_limits_a_users_last_two_jobs_tell_how_long_the_next_one_runs(
    until_free_s: float, passes: bool
) -> None:
    """Two of 100 s and 300 s have ended: 200 s are expected of the third."""
    earlier = [a_job(at=0, for_=seconds, user="quick") for seconds in (100, 300)]
    long = limited(a_job(gpus=6, at=500, for_=500 + until_free_s, user="slow"))
    head = limited(a_job(gpus=8, at=999, user="slow"))
    third = a_job("third", gpus=2, at=1_000, for_=10, user="quick")
    played = play(Easy(), cluster_of(), *earlier, long, head, third)
    assert (played.result("third").start_time == 1_000) is passes


def test_a_job_that_runs_longer_than_predicted_is_taken_to_run_as_long_again() -> None:
    easy = Easy()
    run = Run(a_job(user="new").job, "vc", 0.0, 0, (0,), (1,))
    assert easy._left(run, FIRST_S - 10) == 10
    assert easy._left(run, 2 * FIRST_S) == 2 * FIRST_S


def limited(sample: Sample) -> Sample:
    """The same job with a time limit that it keeps exactly."""
    return replace(sample, job=replace(sample.job, time_limit_s=sample.work.duration_s))


def test_a_fixed_limit_may_be_set_for_all_without_one() -> None:
    found = told(
        ("long", 6, None),
        ("head", 8, HOUR),
        ("brief", 2, HOUR),
        easy=Easy(EasySettings(default_limit_s=10 * HOUR)),
    )
    assert found["brief"][0] is Action.START


def test_a_job_that_needs_none_of_the_reserved_gpus_passes_whatever_its_limit() -> None:
    found = told(("long", 5, 10 * HOUR), ("head", 5, HOUR), ("slow", 3, None))
    assert found["slow"][0] is Action.START
