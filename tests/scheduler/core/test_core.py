"""The decision core driven by hand: queues, refusals, reasons, and a random walk."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from features.schema import State
from reproductions.baselines.qssf import Qssf
from reproductions.baselines.srtf import Srtf
from scheduler.core.arrivals import RecentForecaster
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import ConstantEstimator
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage, Scaling
from scheduler.core.queue import Queue, QueuedJob
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.testing.builders import Desk, Likes, Sample, a_job, actions, cluster_of
from scheduler.testing.worlds import WatchedCore
from tests.reproductions.baselines.lucid import lucid

# --- the queue ------------------------------------------------------------------------------------


def queued(key: float, seq: int) -> QueuedJob:
    entry = QueuedJob(a_job().job, seq)
    entry.key = key
    return entry


@settings(max_examples=100)
@given(keys=st.lists(st.sampled_from([0.0, 1.0, 2.5, float("inf")]), max_size=12), data=st.data())
def test_a_queue_is_sorted_by_key_then_arrival(keys: list[float], data: st.DataObject) -> None:
    queue = Queue()
    entries = [queued(key, seq) for seq, key in enumerate(keys)]
    for entry in data.draw(st.permutations(entries)):
        queue.add(entry)
    expected = sorted(entries, key=lambda q: (q.key, q.seq))
    assert list(queue) == expected
    assert [queue.position(q) for q in expected] == list(range(1, len(expected) + 1))
    gone = data.draw(st.sets(st.sampled_from(range(len(entries)))) if entries else st.just(set()))
    for index in gone:
        queue.remove(entries[index])
    assert list(queue) == [q for q in expected if entries.index(q) not in gone]


def test_a_queue_refuses_to_remove_a_stranger() -> None:
    queue = Queue()
    queue.add(queued(0.0, 0))
    with pytest.raises(ValueError, match="is not in this queue"):
        queue.remove(queued(0.0, 0))


def test_a_queue_sorts_what_replaces_its_content() -> None:
    queue = Queue()
    a, b = queued(2.0, 0), queued(1.0, 1)
    queue.replace([a, b])
    assert list(queue) == [b, a]


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
    assert refusal.sentence() == f"asks for {asked}; this virtual cluster has {limit}"


def test_a_job_for_which_lent_nodes_leave_no_room_is_refused() -> None:
    """It would wait for ever: nodes lent from the start do not come back."""
    desk = Desk(Fifo(), cluster_of(nodes=2, profiling=1))
    assert [d.reason for d in desk.submit(a_job(gpus=9))] == [Reason.INVALID_REQUEST]


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
    assert behind.sentence() == "number 2 in line, behind job head"


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


def test_nothing_is_decided_when_nothing_happened() -> None:
    desk = Desk(Fifo(), cluster_of())
    assert desk.core.decide(0.0) == []
    assert desk.wake(10.0) == []
    assert desk.core.next_wake(10.0) is None


def test_virtual_clusters_do_not_wait_for_each_other() -> None:
    desk = Desk(Fifo(), cluster_of(nodes={"a": 1, "b": 1}))
    desk.submit(a_job("one", gpus=8, vc="a"), a_job("two", gpus=8, vc="a"))
    started = desk.submit(a_job("other", gpus=8, vc="b"))
    assert (Action.START, "other") in actions(started)
    assert desk.run("other").nodes == (1,)


def test_a_policy_that_needs_the_truth_says_so() -> None:
    desk = Desk(Srtf(), cluster_of())
    desk.submit(a_job(gpus=8))
    with pytest.raises(LookupError, match="needs the truth"):
        desk.submit(a_job(gpus=8))


def test_a_policy_that_needs_an_estimate_says_so() -> None:
    core = Core(cluster_of(), Qssf())
    with pytest.raises(LookupError, match="none estimator has no estimate for job x"):
        core.submitted(a_job("x").job, 0.0)


# --- a random walk --------------------------------------------------------------------------------

POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": lambda: Fifo(),
    "fifo-skip": lambda: FifoSkip(),
    "qssf": lambda: Qssf(),
    "lucid": lambda: lucid(Likes()),
    "lucid-by-forecast": lambda: lucid(Likes(), RecentForecaster(), quiet_jobs=0.4),
}


class Walk(RuleBasedStateMachine):
    """Submissions, ends, wakes and decisions in any order; every job in exactly one place."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)), nodes=st.integers(2, 4), scaling=st.booleans()
    )
    def begin(self, policy: str, nodes: int, scaling: bool) -> None:
        made: Policy = POLICIES[policy]()
        lender = Scaling("a", grow_above=1, grow_every_s=1.0, shrink_below=1, shrink_every_s=2.0)
        stage = ProfilingStage(max_gpus=4, scaling=lender if scaling else None)
        self.core = WatchedCore(
            cluster_of(
                nodes={"a": nodes, "b": 1},
                gpus=4,
                profiling={"a": 1 if made.capabilities.profiles else 0},
            ),
            made,
            ConstantEstimator(),
            profiling=stage if made.capabilities.profiles else None,
        )
        self.samples: dict[str, Sample] = {}
        self.gone: set[str] = set()
        self.now = 0.0
        self.decided: list[Decision] = []

    @rule(
        gpus=st.integers(0, 10),
        vc=st.sampled_from(["a", "a", "a", "b", "elsewhere"]),
        mem=st.sampled_from([1_000.0, 20_000.0]),
    )
    def submit(self, gpus: int, vc: str, mem: float) -> None:
        sample = a_job(f"j{len(self.samples)}", gpus=gpus, vc=vc, mem=mem, at=self.now)
        self.samples[sample.id] = sample
        self.core.submitted(sample.job, self.now)

    @precondition(lambda self: self.core.cluster.runs)
    @rule(data=st.data(), ends=st.booleans())
    def leave(self, data: st.DataObject, ends: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.core.cluster.runs)))
        self.stop(job_id, ends)

    def stop(self, job_id: str, ends: bool) -> None:
        if self.core.cluster.runs[job_id].profiling and not ends:
            self.core.profile_ended(job_id, self.samples[job_id].work.profile, self.now)
        else:
            self.core.ended(job_id, State.COMPLETED, 1.0, self.now)
            self.gone.add(job_id)

    @rule(seconds=st.sampled_from([0.0, 1.0, 0.5, 700.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.core.wake(self.now)

    @rule()
    def decide(self) -> None:
        self.take(self.core.decide(self.now))

    def take(self, decisions: list[Decision]) -> None:
        self.decided.extend(decisions)
        self.gone.update(d.job_id for d in decisions if d.action is Action.REFUSE)
        assert not any(d.action is Action.PREEMPT for d in decisions)
        assert all(d.time <= self.now for d in decisions)

    @invariant()
    def nobody_is_lost_or_in_two_places(self) -> None:
        if not hasattr(self, "core"):
            return
        waiting = [q.job.job_id for queue in self.core.queues.values() for q in queue]
        running = list(self.core.cluster.runs)
        places = waiting + running
        assert len(places) == len(set(places))
        assert not self.gone & set(places)
        of_vc = [job_id for runs in self.core.runs_by_vc.values() for job_id in runs]
        profiled = [i for i, run in self.core.cluster.runs.items() if run.profiling]
        assert sorted(of_vc + profiled) == sorted(running)

    def teardown(self) -> None:
        """Let everything end: then nobody is left, and everyone was dealt with once."""
        if not hasattr(self, "core"):
            return
        self.take(self.core.decide(self.now))
        for _ in range(20 * len(self.samples) + 20):
            if self.core.cluster.runs:
                self.stop(next(iter(self.core.cluster.runs)), ends=False)
            else:
                wake = self.core.next_wake(self.now)
                if self.gone == set(self.samples) or wake is None:
                    break
                self.now = wake
                self.core.wake(wake)
            self.take(self.core.decide(self.now))
        assert self.gone == set(self.samples)
        started = [d.job_id for d in self.decided if d.action in (Action.START, Action.PACK)]
        assert len(started) == len(set(started))
        assert [d.seq for d in self.decided] == list(range(len(self.decided)))


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=40, stateful_step_count=30)
