"""What is printed as the cause of a wait is what the decision read: turned round, the job starts.

Each scene is built twice: as it is, and with nothing else changed than what its sentence names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.pairs import TablePairPredictor
from scheduler.explain.words import sentence_of
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo
from scheduler.testing.builders import Desk, Sample, a_job, cluster_of, pellucid

HOUR = 3600.0
Scene = Callable[[bool], tuple[Desk, list[Decision]]]


def limited(sample: Sample, seconds: float) -> Sample:
    return replace(sample, job=replace(sample.job, time_limit_s=seconds))


def sharing(*, share: bool, mem: float) -> tuple[Desk, list[Decision]]:
    """A job that may join another on the one GPU that there is."""
    predictor = TablePairPredictor({"runs": 0, "j": 0}, lambda a, b: (0.95, 0.95))
    policy = pellucid(predictor)
    policy.remembers = False  # a profile is set below that nobody was notified of
    desk = Desk(policy, cluster_of(gpus=1))
    runs, own = a_job("runs"), a_job("j", at=2.0, mem=mem)
    desk.submit(runs)
    assert runs.work.profile is not None
    desk.core.observed("runs", runs.work.profile, 1.0)
    found = desk.submit(replace(own, job=replace(own.job, share=share)), now=2.0)
    desk.core.jobs["j"].profile = own.work.profile
    return desk, found + desk.wake(3.0)


def busy(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(gpus=4))
    desk.submit(a_job("runs", gpus=2 if turned else 3))
    return desk, desk.submit(a_job("j", gpus=2))


def in_line(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(gpus=4))
    desk.submit(a_job("runs", gpus=2))
    ahead = () if turned else (a_job("ahead", gpus=4),)
    return desk, desk.submit(*ahead, a_job("j", gpus=1))


def scattered(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(nodes=2, gpus=4))
    desk.submit(a_job("one", gpus=3), a_job("other", gpus=2 if turned else 3))
    return desk, desk.submit(a_job("j", gpus=2))


def drained(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(gpus=4))
    desk.core.nodes.set_open(0, turned)
    return desk, desk.submit(a_job("j"))


def held(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    desk.submit(a_job("j"))
    desk.core.waiting.hold("j", 1.0, Reason.HELD_BY_OWNER)
    found = desk.core.decide(1.0)
    if turned:
        desk.core.waiting.release("j", 2.0)
    return desk, found + desk.end("runs", now=3.0)


def depends(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Fifo(), cluster_of(gpus=2))
    first, second = a_job("first"), a_job("j")
    desk.submit(first)
    found = desk.submit(replace(second, job=replace(second.job, after="first")))
    return desk, found + (desk.end("first", now=9.0) if turned else desk.wake(9.0))


def kept(turned: bool) -> tuple[Desk, list[Decision]]:
    policy = pellucid(max_wait_s=HOUR, overload=16.0, backfill=0.0)
    desk = Desk(policy, cluster_of(gpus=8))
    desk.submit(a_job("long", gpus=4))
    desk.submit(a_job("wide", gpus=8, at=1.0), now=1.0)
    desk.wake(2 * HOUR)
    if turned:
        desk.core.withdrawn("wide", 2 * HOUR)
    return desk, desk.submit(a_job("j", gpus=4, at=2 * HOUR), now=2 * HOUR)


def delays(turned: bool) -> tuple[Desk, list[Decision]]:
    desk = Desk(Easy(), cluster_of(gpus=4))
    desk.submit(limited(a_job("runs", gpus=3), 1000.0))
    desk.submit(limited(a_job("first", gpus=4), 1000.0))
    return desk, desk.submit(limited(a_job("j"), 500.0 if turned else 5000.0))


SCENES: dict[Reason, Scene] = {
    Reason.GPUS_BUSY: busy,
    Reason.BEHIND_HIGHER_PRIORITY: in_line,
    Reason.GPUS_FRAGMENTED: scattered,
    Reason.NODE_DRAINED: drained,
    Reason.HELD_BY_OWNER: held,
    Reason.DEPENDENCY_NOT_MET: depends,
    Reason.RESERVED_FOR_STARVING_JOB: kept,
    Reason.WOULD_DELAY_FIRST: delays,
    Reason.SHARING_OPTED_OUT: lambda turned: sharing(share=turned, mem=1000.0),
    Reason.MEMORY_GUARD: lambda turned: sharing(share=True, mem=1000.0 if turned else 24_000.0),
}
BLOCKED = {Reason.BEHIND_HIGHER_PRIORITY: "ahead", Reason.WOULD_DELAY_FIRST: "first",
           Reason.DEPENDENCY_NOT_MET: "first"}  # fmt: skip


@pytest.mark.parametrize("reason", SCENES)
def test_a_printed_cause_turned_round_lets_the_job_start(reason: Reason) -> None:
    scene = SCENES[reason]
    desk, found = scene(False)
    waits = [d for d in found if d.job_id == "j" and d.action is Action.WAIT]
    assert waits[-1].reason is reason
    assert "j" not in desk.cluster.runs
    if reason in BLOCKED:
        assert f"job {BLOCKED[reason]}" in sentence_of(waits[-1]), "what is turned is named"
    desk, _ = scene(True)
    assert "j" in desk.cluster.runs
