"""Free profiling, as the published settings grant it."""

from __future__ import annotations

from reproductions.published.free_profiling import FreeProfiling, LoanSchedule, profile_all
from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action
from scheduler.core.profiling import ProfilingStage
from scheduler.policies.fifo import Fifo
from scheduler.simulation.quirks import NONE
from scheduler.simulation.work import Workload
from scheduler.testing.builders import (
    Desk,
    Sample,
    a_job,
    a_spec,
    a_stage,
    actions,
    cluster_of,
)

LOANS = [(100.0, Action.LEND, "vc"), (300.0, Action.RETURN, "vc")]


def the_pass(*samples: Sample, stage: ProfilingStage, nodes: int = 2) -> FreeProfiling:
    spec = a_spec(nodes=nodes)
    workload = Workload("w", [s.job for s in samples], {s.id: s.work for s in samples}, spec)
    return profile_all(workload, lambda: Cluster(spec, {"vc": 1}), stage, NONE)


def test_a_scheduled_loan_takes_a_node_and_its_return_lets_the_next_job_in() -> None:
    desk = Desk(Fifo(), cluster_of(nodes=2), stage=LoanSchedule(LOANS, {}))
    assert desk.core.next_wake(0.0) == 100.0
    desk.submit(a_job("a", gpus=8))
    desk.wake(100.0)
    assert desk.cluster.pools["vc"].gpus == 8
    assert Action.START not in [d.action for d in desk.submit(a_job("b", gpus=8), now=150.0)]
    assert desk.core.next_wake(150.0) == 300.0
    assert (Action.START, "b") in actions(desk.wake(300.0))
    assert desk.core.next_wake(300.0) is None


def test_a_loan_is_skipped_when_no_node_is_idle() -> None:
    desk = Desk(Fifo(), cluster_of(nodes=1), stage=LoanSchedule(LOANS, {}))
    desk.submit(a_job("a", gpus=1))
    desk.wake(100.0)
    assert desk.cluster.pools["vc"].gpus == 8
    desk.end("a", now=200.0)
    desk.wake(300.0)
    assert desk.cluster.pools["vc"].gpus == 8
    desk.cluster.validate()


def test_the_pass_tells_no_one_they_wait_behind_somebody() -> None:
    """Its queues are served by nobody: a wait recorded there would be an invention."""
    found = the_pass(*[a_job(f"j{i}", for_=1000) for i in range(3)], stage=a_stage(limit=200))
    assert [d.reason for d in found.decisions if d.action is Action.WAIT] == []
