"""EASY backfill: who may pass the first in line, and who may not."""

from __future__ import annotations

from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.policies.easy import Easy

HOUR = 3600.0


def told(*jobs: tuple[str, int, float | None]) -> dict[str, tuple[Action, Reason, str | None]]:
    """The last decision on each job of (id, GPUs, limit), all submitted at 0 in this order."""
    core = Core(Cluster(ClusterSpec({"v": 1})), Easy())
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


def test_a_job_that_needs_none_of_the_reserved_gpus_passes_whatever_its_limit() -> None:
    found = told(("long", 5, 10 * HOUR), ("head", 5, HOUR), ("slow", 3, None))
    assert found["slow"][0] is Action.START
