"""Jobs that are held, released and changed while they wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.progress import Progress
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.nodes import KnownJob
from scheduler.core.profiling import ProfilingStage, WaitingStage
from scheduler.explain.reasons import sentence
from scheduler.policies.fifo import Fifo
from scheduler.testing.builders import Desk, a_job, a_stage, actions, cluster_of, pellucid
from tests.reproductions.baselines.lucid import lucid

BOUND_S = 1000.0


def told(decisions: list[Decision]) -> list[tuple[Action, Reason, str]]:
    return [(d.action, d.reason, d.job_id) for d in decisions]


def a_full_desk(overload: float = 16.0) -> Desk:
    """A node of 8 GPUs, all of which one job holds."""
    desk = Desk(pellucid(max_wait_s=BOUND_S, overload=overload), cluster_of())
    desk.submit(a_job("runs", gpus=8, for_=1e6))
    return desk


def left_s(desk: Desk, job_id: str, now: float) -> float:
    promise = desk.core.policy.promise(desk.core.jobs[job_id], now)
    assert promise is not None
    return promise.soonest_s


def test_a_held_job_is_passed_by_and_starts_when_it_is_released() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("runs", gpus=8))
    desk.submit(a_job("a", gpus=8), a_job("b", gpus=8), now=1.0)
    desk.core.waiting.hold("a", 2.0)
    held = desk.core.decide(2.0)
    assert told(held[:1]) == [(Action.WAIT, Reason.HELD_BY_OWNER, "a")]
    assert sentence(held[0]) == "its owner holds it back"
    assert actions(desk.end("runs", now=3.0)) == [(Action.START, "b")]
    assert desk.end("b", now=4.0) == []
    desk.core.waiting.release("a", 5.0)
    assert told(desk.core.decide(5.0)) == [
        (Action.ENQUEUE, Reason.RELEASED, "a"),
        (Action.START, Reason.EXCLUSIVE_GPUS, "a"),
    ]


def test_who_is_held_is_remembered() -> None:
    desk, again = a_full_desk(), a_full_desk()
    for one in (desk, again):
        one.submit(a_job("a"), a_job("b"), now=1.0)
    desk.core.waiting.hold("a", 2.0)
    memory = desk.core.waiting.remember()
    again.core.waiting.restore(memory)
    assert again.core.waiting.held() == ["a"]
    assert again.core.waiting.remember() == memory


def test_holding_or_releasing_again_changes_nothing() -> None:
    desk = a_full_desk()
    desk.submit(a_job("a"), now=1.0)
    desk.core.waiting.release("a", 2.0)
    assert desk.core.decide(2.0) == []
    desk.core.waiting.hold("a", 3.0)
    desk.core.waiting.hold("a", 4.0, Reason.HELD_BY_OPERATOR)
    desk.core.decide(4.0)
    assert desk.core.jobs["a"].held_since == 3.0
    desk.core.waiting.release("a", 5.0)
    assert desk.core.jobs["a"].submit_time == 2.0
    desk.core.waiting.hold("runs", 6.0)
    assert not desk.core.waiting.is_held("runs")
    assert "runs" in desk.core.cluster.runs
    desk.core.waiting.hold("a", 7.0)
    desk.core.withdrawn("a", 8.0)
    assert not desk.core.waiting.is_held("a")
    assert "a" not in desk.core.jobs


@pytest.mark.parametrize("overload", [1.0, 1.5, 16.0])
def test_so_it_is_by_the_clock_of_an_overloaded_cluster(overload: float) -> None:
    desk = a_full_desk(overload)
    desk.submit(a_job("a", gpus=8), a_job("b", gpus=8), now=0.0)
    before = left_s(desk, "a", 600.0)
    job = desk.core.jobs["a"].job
    desk.core.waiting.change(replace(job, share=False), 600.0)
    desk.core.decide(600.0)
    assert left_s(desk, "a", 600.0) == pytest.approx(before)
    desk.core.waiting.hold("a", 600.0)
    desk.core.decide(600.0)
    desk.core.waiting.change(replace(job, share=True), 700.0)
    desk.core.waiting.release("a", 900.0)
    desk.core.decide(900.0)
    assert left_s(desk, "a", 900.0) == pytest.approx(before)
    assert left_s(desk, "b", 900.0) <= left_s(desk, "a", 900.0) - 299.0


def test_gpus_are_no_longer_kept_for_a_job_that_is_held_once_its_profiling_run_ends() -> None:
    policy, stage = pellucid(max_wait_s=100.0, overload=1.0), WaitingStage(limit_s=2000.0)
    desk = Desk(policy, cluster_of(nodes=2, profiling=1), stage=stage)
    desk.submit(a_job("runs", gpus=8, for_=1e6))
    desk.submit(a_job("b", gpus=8, for_=1e6), now=1.0)  # in the partition at once, "a" after it
    desk.submit(a_job("a", gpus=6, for_=1e6), now=2.0)
    desk.wake(1000.0)
    desk.end("b", now=2001.0)
    desk.end("runs", now=2100.0)
    kept = desk.core.policy.reservation("vc")
    assert desk.run("a").profiling
    assert kept is not None
    assert kept[0] == "a"
    desk.core.waiting.hold("a", 2150.0)
    desk.core.decide(2150.0)
    assert actions(desk.end("a", now=4001.0)) == [(Action.START, "b")]


@pytest.mark.parametrize("to", [{"gpus": 4}, {"share": False}, {"time_limit_s": 60.0}])
def test_a_job_that_is_changed_keeps_what_it_waited(to: dict[str, float]) -> None:
    desk = a_full_desk()
    desk.submit(a_job("a", gpus=8), a_job("b", gpus=8), now=0.0)
    job = desk.core.jobs["a"].job
    desk.core.waiting.change(replace(job, **to), 600.0)
    (changed, *_) = desk.core.decide(600.0)
    assert (changed.action, changed.reason) == (Action.ENQUEUE, Reason.REQUEST_CHANGED)
    assert left_s(desk, "a", 600.0) == 400.0
    assert desk.core.jobs["a"].submit_time == 0.0
    assert [q.job.job_id for q in desk.core.queues["vc"]] == ["a", "b"]


def test_a_job_moves_to_another_virtual_cluster_with_what_it_waited() -> None:
    desk = Desk(
        pellucid(max_wait_s=BOUND_S, overload=16.0), cluster_of(nodes={"vc": 1, "other": 1})
    )
    desk.submit(a_job("runs", gpus=8, for_=1e6), a_job("busy", gpus=8, vc="other", for_=1e6))
    desk.submit(a_job("a", gpus=8), now=0.0)
    job = desk.core.jobs["a"].job
    desk.core.waiting.change(replace(job, vc="other"), 600.0)
    desk.core.decide(600.0)
    assert [len(desk.core.queues[vc]) for vc in ("vc", "other")] == [0, 1]
    assert left_s(desk, "a", 600.0) == 400.0
    assert [d.vc for d in desk.wake(1001.0) if d.action is Action.RESERVE] == ["other"]
    assert actions(desk.end("busy", now=1100.0)) == [(Action.START, "a")]


def test_a_job_changed_to_what_cannot_be_waits_until_it_can() -> None:
    desk = a_full_desk()
    desk.submit(a_job("a", gpus=8), now=0.0)
    job = desk.core.jobs["a"].job
    desk.core.waiting.change(replace(job, gpus=9), 1.0)
    assert desk.core.decide(1.0)[-1].reason is Reason.VC_TOO_SMALL
    desk.core.waiting.change(replace(job, gpus=2), 2.0)
    desk.core.decide(2.0)
    assert actions(desk.end("runs", now=3.0)) == [(Action.START, "a")]


def test_a_profile_is_not_of_another_number_of_gpus() -> None:
    desk = Desk(lucid(), cluster_of(nodes=2, profiling=1), stage=a_stage(max_gpus=4))
    desk.submit(a_job("runs", gpus=8, for_=1e6), a_job("a", gpus=4, for_=1e6), now=0.0)
    desk.end("a", now=200.0)
    job = desk.core.jobs["a"].job
    desk.core.waiting.change(replace(job, time_limit_s=60.0), 201.0)
    assert desk.core.jobs["a"].profile is not None
    desk.core.waiting.change(replace(job, gpus=2), 202.0)
    assert desk.core.jobs["a"].profile is None
    assert actions(desk.core.decide(202.0))[-1] == (Action.PROFILE, "a")


def test_one_that_is_looked_at_is_held_when_that_is_over() -> None:
    stage = ProfilingStage(limit_s=200.0)
    desk = Desk(lucid(), cluster_of(nodes=2, profiling=1), stage=stage)
    assert actions(desk.submit(a_job("a", for_=1e6))) == [(Action.PROFILE, "a")]
    desk.core.waiting.hold("a", 10.0)
    assert told(desk.core.decide(10.0)) == [(Action.WAIT, Reason.HELD_BY_OWNER, "a")]
    assert desk.end("a", now=200.0) == []
    desk.core.waiting.release("a", 300.0)
    assert actions(desk.core.decide(300.0)) == [(Action.ENQUEUE, "a"), (Action.START, "a")]
    assert desk.core.jobs["a"].submit_time == 100.0, "held from 200 to 300"


def test_one_that_was_looked_at_and_is_held_over_an_upgrade_is_not_looked_at_again() -> None:
    stage = ProfilingStage(limit_s=200.0)
    desk = Desk(lucid(), cluster_of(nodes=2, profiling=1), stage=stage)
    own = Progress(900.0, 800.0, 1000.0, 1, 9, "epoch", 100.0, 100.0, "tqdm")
    job = a_job("a", for_=1e6).job
    known = KnownJob(job=job, order=1, profiled=True, held_since=200.0, progress=own)
    desk.core.nodes.adopt(known, 300.0)
    assert desk.core.jobs["a"].progress == own
    desk.core.waiting.release("a", 400.0)
    assert actions(desk.core.decide(400.0)) == [(Action.ENQUEUE, "a"), (Action.START, "a")]


def test_one_that_waits_to_be_looked_at_is_held_there() -> None:
    desk = Desk(lucid(), cluster_of(nodes=2, profiling=1), stage=a_stage())
    desk.submit(a_job("runs", gpus=8, for_=1e6), a_job("a", gpus=8, for_=1e6))
    desk.core.waiting.hold("a", 10.0)
    desk.core.decide(10.0)
    assert actions(desk.end("runs", now=200.0)) == [
        (Action.ENQUEUE, "runs"),
        (Action.START, "runs"),
    ]
    desk.core.waiting.release("a", 300.0)
    assert actions(desk.core.decide(300.0)) == [(Action.PROFILE, "a")]
