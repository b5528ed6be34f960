"""Jobs that start only after others have ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from features.job import Job
from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.core.dependencies import RECENT_S, Dependencies
from scheduler.core.nodes import KnownJob
from scheduler.explain.reasons import sentence
from scheduler.policies.fifo import Fifo
from scheduler.testing.builders import Desk, Sample, a_job, a_stage, actions, cluster_of
from tests.reproductions.baselines.lucid import lucid


def after(job_id: str, *, gpus: int = 1, success: str = "", any_end: str = "") -> Sample:
    sample = a_job(job_id, gpus=gpus)
    return replace(sample, job=replace(sample.job, after=success, after_any=any_end))


def test_it_starts_once_the_other_has_ended_and_that_time_is_no_waiting() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("first"))
    [wait] = desk.submit(after("second", success="first"), now=10.0)
    assert (wait.action, wait.reason, wait.blocker) == (
        Action.WAIT, Reason.DEPENDENCY_NOT_MET, "first",
    )  # fmt: skip
    assert sentence(wait) == "starts only after job first has ended, as its owner asked"
    assert sentence(wait, []) == "starts only after another job has ended, as its owner asked"
    assert desk.wake(20.0) == [], "GPUs are free, and it does not start"
    assert actions(desk.end("first", now=50.0)) == [
        (Action.ENQUEUE, "second"), (Action.START, "second"),
    ]  # fmt: skip
    assert desk.core.jobs["second"].submit_time == 50.0 - 10.0


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.NODE_FAIL, State.TIMEOUT])
def test_what_needs_success_never_starts_after_a_failure_and_what_takes_any_end_does(
    state: State,
) -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("first", state=state))
    desk.submit(after("strict", success="first"), after("any", any_end="first"), now=1.0)
    decided = desk.end("first", now=2.0)
    assert [(d.job_id, d.action) for d in decided if d.job_id == "any"][-1][1] is Action.START
    [never] = [d for d in decided if d.job_id == "strict"]
    assert (never.action, never.reason) == (Action.WAIT, Reason.DEPENDENCY_NEVER_MET)
    assert "did not end successfully" in sentence(never)
    blocked = desk.core.waiting.blocked("strict")
    assert blocked is not None
    assert blocked.never
    # hours later, long after the end is otherwise forgotten
    for hour in range(1, 4):
        now = hour * 2 * RECENT_S
        desk.submit(a_job(f"more{hour}"), now=now)
        desk.end(f"more{hour}", now=now + 1.0)
    desk.core.waiting.hold("strict", 9 * RECENT_S)
    desk.core.waiting.release("strict", 9 * RECENT_S + 1.0)
    assert [d.reason for d in desk.core.decide(9 * RECENT_S + 1.0)][-1] is (
        Reason.DEPENDENCY_NEVER_MET
    )


def test_the_end_of_one_that_waited_or_was_refused_counts_as_no_success() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("runs", gpus=8), a_job("waits", gpus=8))
    desk.submit(after("next", success="waits"), after("other", any_end="waits"), now=1.0)
    desk.core.withdrawn("waits", 2.0)
    decided = {d.job_id: d.reason for d in desk.core.decide(2.0)}
    assert decided["next"] is Reason.DEPENDENCY_NEVER_MET
    assert decided["other"] is Reason.GPUS_BUSY
    decided = {
        d.job_id: d.reason
        for d in desk.submit(a_job("huge", gpus=99), after("late", success="huge"), now=3.0)
    }
    assert decided == {
        "huge": Reason.INVALID_REQUEST, "late": Reason.DEPENDENCY_NEVER_MET,
    }  # fmt: skip


def test_of_several_each_has_to_end() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("a"), a_job("b"))
    desk.submit(after("c", success="a, b"), now=1.0)
    assert [(d.reason, d.blocker) for d in desk.end("a", now=2.0) if d.job_id == "c"] == [
        (Reason.DEPENDENCY_NOT_MET, "b")
    ]
    assert (Action.START, "c") in actions(desk.end("b", now=3.0))


@pytest.mark.parametrize(
    ("job_id", "success", "ended", "reason"),
    [
        ("a_2", "", "a_0", Reason.ARRAY_LIMIT),
        ("a_2", "a_0", "", Reason.DEPENDENCY_NOT_MET),
        ("a_2", "b", "a_0", Reason.DEPENDENCY_NOT_MET),
        ("c_2", "", "a_0", Reason.DEPENDENCY_NOT_MET),
        ("c", "", "a_0", Reason.DEPENDENCY_NOT_MET),
        ("c", "", "b", Reason.DEPENDENCY_NOT_MET),
    ],
)
def test_only_what_waits_for_the_end_of_a_task_of_its_array_is_at_its_limit(
    job_id: str, success: str, ended: str, reason: Reason
) -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("a_0"), a_job("b"))
    queued = after(job_id, success=success, any_end=ended)
    assert [d.reason for d in desk.submit(queued, now=1.0)] == [reason]


def test_held_meanwhile_it_starts_only_when_it_is_released_too() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("a"), after("b", success="a"))
    desk.core.waiting.hold("b", 10.0)
    desk.core.decide(10.0)
    assert desk.core.jobs["b"].submit_time == 10.0
    desk.end("a", now=20.0)
    assert "b" not in desk.core.cluster.runs
    desk.core.waiting.release("b", 30.0)
    assert actions(desk.core.decide(30.0))[-1] == (Action.START, "b")
    assert desk.core.jobs["b"].submit_time == 30.0


def test_a_change_adds_and_takes_away_what_it_waits_for() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("runs", gpus=8), a_job("b", gpus=8))
    desk.core.waiting.change(after("b", gpus=8, success="runs").job, 1.0)
    assert [d.reason for d in desk.core.decide(1.0)] == [Reason.DEPENDENCY_NOT_MET]
    assert not len(desk.core.queues["vc"])
    desk.core.waiting.change(a_job("b", gpus=8).job, 2.0)
    assert Reason.REQUEST_CHANGED in [d.reason for d in desk.core.decide(2.0)]
    desk.submit(after("c", success="runs"), now=3.0)
    desk.core.withdrawn("c", 4.0)
    assert desk.core.waiting.blocked("c") is None
    desk.end("runs", now=5.0)
    assert "b" in desk.core.cluster.runs


def test_it_is_profiled_after_the_others_have_ended_and_not_before() -> None:
    desk = Desk(lucid(), cluster_of(nodes=2, profiling=1), stage=a_stage())
    desk.submit(a_job("a", for_=1e6), after("b", success="a"))
    assert "b" not in desk.core.cluster.runs
    desk.end("a", now=200.0)  # its profile is known, it runs
    assert "b" not in desk.core.cluster.runs
    assert (Action.PROFILE, "b") in actions(desk.end("a", now=1e6))


@pytest.mark.parametrize(("failed", "starts"), [("", True), ("a", False)])
def test_it_goes_on_in_another_core(failed: str, starts: bool) -> None:
    """The jobs it waited for have ended meanwhile, or one of them failed before."""
    desk = Desk(Fifo(), cluster_of())
    known = KnownJob(job=after("b", success="a").job, order=1, depends_since=100.0, failed=failed)
    desk.core.nodes.adopt(known, 300.0)
    assert (
        "b" in {d.job_id for d in desk.core.decide(300.0) if d.action is Action.START}
    ) is starts
    if starts:
        assert desk.core.jobs["b"].submit_time == 200.0, "100 to 300"
    else:
        blocked = desk.core.waiting.blocked("b")
        assert blocked is not None
        assert blocked.never


def _alone(core: Core, job: Job) -> None:
    core.nodes.adopt(KnownJob(job=job, order=1, queued_before=True), 300.0)


def _in_line(core: Core, job: Job) -> None:
    core.nodes.line_up([core.nodes.adopt_waiting(job, 1, 300.0)])


@pytest.mark.parametrize("take_over", [_alone, _in_line])
def test_one_taken_over_from_a_queue_starts_as_soon_as_the_others_end(
    take_over: Callable[[Core, Job], None],
) -> None:
    """The job that it named runs again, and it was held and released meanwhile."""
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("again", gpus=8))
    take_over(desk.core, after("b", any_end="again").job)
    assert [d.reason for d in desk.core.decide(300.0)] == [Reason.GPUS_BUSY]
    desk.core.waiting.hold("b", 310.0)
    desk.core.waiting.release("b", 320.0)
    *_, wait = desk.core.decide(320.0)
    assert (wait.job_id, wait.reason) == ("b", Reason.DEPENDENCY_NOT_MET)
    assert actions(desk.end("again", now=330.0)) == [(Action.ENQUEUE, "b"), (Action.START, "b")]


def test_ends_nobody_waits_for_are_forgotten_after_an_hour() -> None:
    known = Dependencies()
    for i in range(1000):
        known.ended(f"job{i}", True, i * 60.0)
    assert len(known._ends) <= RECENT_S / 60.0 + 1


def test_many_ends_are_forgotten_at_once_in_little_time() -> None:
    """After a pause of an hour. With a plain dictionary each removal at the front passed over all
    earlier ones: 5 s for 100,000 ends, two minutes for 500,000, in which nothing was decided."""
    known = Dependencies()
    for number in range(100_000):
        known.ended(f"j{number}", True, 0.0)
    begun = time.process_time()
    known.ended("later", True, RECENT_S + 1.0)
    assert time.process_time() - begun < 2.0
    assert [one.job_id for one in known.remember()] == ["later"]
