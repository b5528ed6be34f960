"""Profiling beside the clock, as the published settings grant it."""

from __future__ import annotations

from reproductions.published.free_profiling import FreeProfiling, LoanSchedule, profile_all
from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action, Reason
from scheduler.core.profiling import ProfilingStage, Scaling
from scheduler.core.quirks import NONE
from scheduler.policies.fifo import Fifo
from scheduler.simulation.work import Workload
from scheduler.testing.builders import (
    Desk,
    Likes,
    Sample,
    a_job,
    a_spec,
    a_stage,
    actions,
    cluster_of,
    play,
)
from tests.reproductions.baselines.lucid import lucid

LOANS = [(100.0, Action.LEND, "vc"), (300.0, Action.RETURN, "vc")]


def the_pass(*samples: Sample, stage: ProfilingStage, nodes: int = 2) -> FreeProfiling:
    spec = a_spec(nodes=nodes)
    workload = Workload("w", [s.job for s in samples], {s.id: s.work for s in samples}, spec)
    return profile_all(workload, lambda: Cluster(spec, {"vc": 1}), stage, NONE)


def test_the_pass_finds_who_ends_there_and_how_long_everyone_waited() -> None:
    found = the_pass(
        a_job("long", gpus=8, for_=1000),
        a_job("short", gpus=8, for_=50, at=20),
        a_job("wide", gpus=9, for_=5),
        stage=a_stage(limit=200),
    )
    assert list(found.ended) == ["short"]
    assert (found.ended["short"].start_time, found.ended["short"].end_time) == (200, 250)
    assert found.ended["short"].queue_s == 180
    assert found.waited_s == {"long": 0, "short": 180}
    assert found.loans == []


def test_the_pass_finds_when_nodes_are_lent() -> None:
    jobs = [a_job(f"j{i}", gpus=8, for_=60) for i in range(5)]
    scaling = Scaling("vc", grow_above=2, grow_every_s=10, shrink_below=2, shrink_every_s=100)
    found = the_pass(*jobs, stage=ProfilingStage(scaling=scaling), nodes=3)
    # two at a time from the first instant: 0-60, 60-120, 120-180; nobody waits at 200
    assert found.loans == [(0.0, Action.LEND, "vc"), (200.0, Action.RETURN, "vc")]
    assert [found.waited_s[f"j{i}"] for i in range(5)] == [0, 0, 60, 60, 120]


def test_afterwards_jobs_are_known_at_submission_and_only_loans_happen() -> None:
    sample = a_job("x", mem=77.0)
    schedule = LoanSchedule([], {"x": sample.work.profile} if sample.work.profile else {})
    desk = Desk(lucid(Likes()), cluster_of(nodes=2, profiling=1), stage=schedule)
    enqueue, start = desk.submit(sample)
    assert (enqueue.action, enqueue.reason) == (Action.ENQUEUE, Reason.SUBMITTED)
    assert start.action is Action.START
    known = desk.core.jobs["x"].profile
    assert known is not None
    assert known.gpu_mem_mib == 77.0


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


def test_a_return_is_noticed_whatever_the_core_was_called_for() -> None:
    desk = Desk(Fifo(), cluster_of(nodes={"vc": 2, "other": 1}), stage=LoanSchedule(LOANS, {}))
    desk.submit(a_job("a", gpus=8))
    desk.wake(100.0)
    desk.submit(a_job("b", gpus=8), now=150.0)
    assert (Action.START, "b") in actions(desk.submit(a_job("c", vc="other"), now=300.0))


def test_a_loan_is_skipped_when_no_node_is_idle() -> None:
    desk = Desk(Fifo(), cluster_of(nodes=1), stage=LoanSchedule(LOANS, {}))
    desk.submit(a_job("a", gpus=1))
    desk.wake(100.0)
    assert desk.cluster.pools["vc"].gpus == 8
    desk.end("a", now=200.0)
    desk.wake(300.0)
    assert desk.cluster.pools["vc"].gpus == 8
    desk.cluster.validate()


def test_a_simulation_keeps_the_schedule() -> None:
    played = play(
        Fifo(),
        cluster_of(nodes=2),
        a_job("a", gpus=8, for_=1000),
        a_job("b", gpus=8, for_=10, at=150),
        stage=LoanSchedule(LOANS, {}),
    )
    assert (played.result("b").start_time, played.result("b").end_time) == (300, 310)


def test_the_pass_tells_no_one_they_wait_behind_somebody() -> None:
    """Its queues are served by nobody: a wait recorded there would be an invention."""
    found = the_pass(*[a_job(f"j{i}", for_=1000) for i in range(3)], stage=a_stage(limit=200))
    assert [d.reason for d in found.decisions if d.action is Action.WAIT] == []
