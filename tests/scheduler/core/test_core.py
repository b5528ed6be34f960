"""The decision core driven by hand: refusals and reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reproductions.baselines.qssf import Qssf
from reproductions.baselines.srtf import Srtf
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.explain.reasons import sentence
from scheduler.policies.fifo import Fifo
from scheduler.testing.builders import Desk, Sample, a_job, cluster_of

# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "limit"),
    [
        (a_job("x", gpus=17), 16),
        (a_job("x", gpus=0), 16),
        (a_job("x", gpus=-1), 16),
        (a_job("x", gpus=1, vc="nowhere"), 0),
    ],
)
def test_an_impossible_request_is_refused_with_its_numbers(sample: Sample, limit: int) -> None:
    (refusal,) = Desk(Fifo(), cluster_of(nodes=2)).submit(sample)
    assert (refusal.action, refusal.reason) == (Action.REFUSE, Reason.INVALID_REQUEST)
    assert (refusal.need, refusal.limit) == (sample.job.gpus, limit)
    asked = "1 GPU" if sample.job.gpus == 1 else f"{sample.job.gpus} GPUs"
    assert sentence(refusal) == f"asks for {asked}; this virtual cluster has {limit}"


def test_a_job_for_which_lent_nodes_leave_no_room_is_refused() -> None:
    """It would wait for ever: nodes lent from the start do not come back."""
    desk = Desk(Fifo(), cluster_of(nodes=2, profiling=1))
    assert [d.reason for d in desk.submit(a_job(gpus=9))] == [Reason.INVALID_REQUEST]


@pytest.mark.parametrize("places_cpus", [False, True])
def test_a_job_without_gpus_is_too_small_now_and_later_alike(places_cpus: bool) -> None:
    policy = Fifo()
    policy.capabilities = replace(policy.capabilities, places_cpus=places_cpus)
    nodes = Desk(policy, cluster_of(nodes=2)).core.nodes
    nodes.change(1, None)
    for gpus, fits in ((0, places_cpus), (8, True), (17, False)):
        job = a_job(gpus=gpus).job
        assert (nodes.too_large(job), nodes.too_large_once_changed(job)) == (not fits, not fits)


def test_a_policy_hears_of_every_job_that_leaves_without_having_ended() -> None:
    """Cancelled while it waited, given GPUs and never begun, and one that the cluster has no room
    for any more: whatever a policy keeps of a job goes with it."""

    class Listens(Fifo):
        def __init__(self) -> None:
            self.gone: list[str] = []

        def withdrawn(self, job_id: str, now: float) -> None:
            self.gone.append(job_id)

    policy = Listens()
    desk = Desk(policy, cluster_of(nodes=2))
    desk.submit(
        *(a_job(name, gpus=8) for name in ("runs", "ends", "waits")), a_job("wide", gpus=16)
    )
    desk.core.withdrawn("runs", 1.0, Reason.NOT_STARTED)
    desk.core.withdrawn("waits", 1.0)
    desk.core.nodes.change(0, None)
    desk.core.decide(2.0)
    assert policy.gone == ["runs", "waits", "wide"]
    desk.end("ends", now=3.0)
    assert policy.gone == ["runs", "waits", "wide"]


def test_a_job_cannot_be_submitted_twice() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("x"))
    with pytest.raises(ValueError, match="job x was submitted twice"):
        desk.submit(a_job("x"))


# --- reasons --------------------------------------------------------------------------------------


def test_the_head_waits_for_gpus_and_the_rest_behind_it() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("running", gpus=6))
    head, behind = [
        d for d in desk.submit(a_job("head", gpus=4), a_job("next")) if d.action is Action.WAIT
    ]
    assert (head.job_id, head.reason) == ("head", Reason.GPUS_BUSY)
    assert (head.need, head.free, head.limit, head.position) == (4, 2, 8, 1)
    assert (behind.job_id, behind.reason) == ("next", Reason.BEHIND_HIGHER_PRIORITY)
    assert (behind.blocker, behind.position) == ("head", 2)
    assert sentence(behind) == "number 2 in line, behind job head"


def test_gpus_that_are_free_but_scattered_are_called_so() -> None:
    desk = Desk(Fifo(), cluster_of(nodes=2))
    desk.submit(a_job("a", gpus=5), a_job("b", gpus=5))
    (wait,) = [d for d in desk.submit(a_job("c", gpus=6)) if d.action is Action.WAIT]
    assert wait.reason is Reason.GPUS_FRAGMENTED
    assert (wait.need, wait.free) == (6, 6)


def test_a_wait_is_recorded_when_its_reason_changes_and_only_then() -> None:
    desk = Desk(Fifo(), cluster_of())
    desk.submit(a_job("a", gpus=8), a_job("b", gpus=8), a_job("c", gpus=8))
    assert desk.wake(1.0) == []
    assert desk.wake(2.0) == []
    decisions = desk.end("a", now=3.0)
    assert [(d.action, d.job_id, d.reason) for d in decisions] == [
        (Action.START, "b", Reason.EXCLUSIVE_GPUS),
        (Action.WAIT, "c", Reason.GPUS_BUSY),
    ]


def test_a_policy_that_needs_an_estimate_or_the_truth_says_so() -> None:
    core = Core(cluster_of(), Qssf())
    with pytest.raises(LookupError, match="none estimator has no estimate for job x"):
        core.submitted(a_job("x").job, 0.0)
    desk = Desk(Srtf(), cluster_of())
    desk.submit(a_job(gpus=8))
    with pytest.raises(LookupError, match="needs the truth"):
        desk.submit(a_job(gpus=8))
