"""The contract would notice: policies that break it, each in one way, are each caught."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Reason
from scheduler.core.policy import Policy, in_order, skipping
from scheduler.core.queue import QueuedJob
from scheduler.core.rules import PolicyViolation
from scheduler.core.turn import Turn
from scheduler.service.log.fold import encoded
from scheduler.testing import policy as contract
from scheduler.testing.builders import UserMeans, a_job
from scheduler.testing.worlds import Watched, WatchedCore, World, a_cluster, watch

WORLD = World(
    ClusterSpec({"vca": 2}, 4),
    (
        a_job("a", gpus=6, for_=100.0, vc="vca"),
        a_job("b", gpus=4, for_=30.0, at=1.0, vc="vca"),
        a_job("c", gpus=1, for_=20.0, at=2.0, vc="vca"),
        a_job("d", gpus=3, for_=50.0, at=3.0, vc="vca"),
    ),
)


class Sleepy(Policy):
    """Leaves GPUs idle that the head of the line could use."""

    def serve(self, turn: Turn) -> None:
        for queued in list(turn.queue)[1:]:
            turn.wait(queued, turn.capacity_reason(queued))
        turn.wait(turn.queue[0], Reason.GPUS_BUSY)


class Silent(Policy):
    """Does not say why the head waits."""

    def serve(self, turn: Turn) -> None:
        while len(turn.queue):
            placement = turn.pool.place(turn.queue[0].job.gpus)
            if placement is None:
                turn.queue.fresh.clear()
                return
            turn.start(turn.queue[0], placement)


class Scattered(Policy):
    """Puts a job on more nodes than it needs."""

    def serve(self, turn: Turn) -> None:
        for queued in list(turn.queue):
            if queued.job.gpus == 4 and turn.pool.free == 8:
                turn.start(queued, [(0, 0b0011), (1, 0b0011)])
        in_order(turn)


class Pushy(Policy):
    """Stops running jobs without having said that it does."""

    def serve(self, turn: Turn) -> None:
        skipping(turn)
        if turn.now == 3.0 and turn.runs():
            turn.preempt(turn.runs()[0], 1e9, blocker="d")
            skipping(turn)


class Nameless(Policy):
    """Gives a reason whose sentence names a job, and names none."""

    def serve(self, turn: Turn) -> None:
        in_order(turn)
        for queued in list(turn.queue)[1:]:
            turn.wait(queued, Reason.SHARE_USED)


def run(policy: Policy, world: World = WORLD) -> Watched:
    return watch(world, WatchedCore(a_cluster(world, profiles=False), policy, UserMeans()))


def every_check(policy: Policy) -> None:
    watched = run(policy)
    contract.check_every_job_ends_once(watched)
    contract.check_work_is_conserved(watched)
    contract.check_decisions_are_in_order(watched)
    contract.check_gangs_and_sharing(watched)
    contract.check_stories(watched)
    contract.check_sentences(watched.decisions)
    if not policy.capabilities.preemptive:
        assert watched.outcome.preemptions == 0


def test_a_policy_that_keeps_the_contract_passes() -> None:
    every_check(Policy())


@pytest.mark.parametrize(
    "policy",
    [Sleepy, Silent, Scattered, Nameless],
    ids=lambda p: p.__name__,
)
def test_a_policy_that_breaks_it_is_caught(policy: type[Policy]) -> None:
    with pytest.raises(AssertionError):
        every_check(policy())


def test_a_policy_that_preempts_and_has_not_said_so_is_stopped() -> None:
    with pytest.raises(PolicyViolation, match=r"Pushy may not .*not declared that it preempts"):
        every_check(Pushy())


class Peeking(Policy):
    """Orders by the truth and does not declare it."""

    def __init__(self, world: World):
        self._truth = {s.id: s.work.duration_s for s in world.samples}

    def key(self, queued: QueuedJob, now: float) -> float:
        return self._truth[queued.job.job_id]


class Restless(Policy):
    """Orders by something that differs from run to run."""

    _counter = itertools.count()

    def key(self, queued: QueuedJob, now: float) -> float:
        return -float(next(self._counter))


def test_peeking_and_chance_are_found() -> None:
    other = WORLD.with_durations({"a": 500.0})
    with pytest.raises(AssertionError, match="other decisions"):
        contract.check_same(run(Peeking(WORLD)).decisions, run(Peeking(other)).decisions, until=3.0)
    with pytest.raises(AssertionError, match="other decisions"):
        contract.check_same(run(Restless()).decisions, run(Restless()).decisions)


def test_one_that_counts_with_the_record_of_a_prediction_is_found() -> None:
    class Counts(Policy):
        capabilities = Capabilities(estimates=True)

        def key(self, queued: QueuedJob, now: float) -> float:
            return queued.estimate_s * queued.job.gpus  # type: ignore[operator]

    class Held(contract.PolicyContract):
        def policy(self, world: World) -> Policy:
            return Counts()

    assert run(Counts()).outcome.jobs
    with pytest.raises(TypeError, match="'Predicted' and 'int'"):
        Held().test_counts_with_predictions_that_have_a_curve()


def test_an_honest_policy_is_not_accused() -> None:
    other = WORLD.with_durations({"a": 500.0})
    before, after = run(Policy()).decisions, run(Policy(), world=other).decisions
    contract.check_same(before, after, until=99.0)
    with pytest.raises(AssertionError, match="other decisions"):
        contract.check_same(before, after, until=100.0)  # here the first a has ended


@pytest.mark.parametrize("key", [(1, 2.0), float("nan"), None, "first"])
def test_a_key_that_nothing_can_be_ordered_by_is_refused(key: object) -> None:
    class Odd(Policy):
        name = "odd"

        def key(self, queued: QueuedJob, now: float) -> float:
            return key  # type: ignore[return-value]

    with pytest.raises(PolicyViolation, match=r"odd: the key of job a is .*, not a number"):
        run(Odd())


@pytest.mark.parametrize("kind", [np.int64, np.float32, int])
def test_a_number_of_any_kind_is_a_key(kind: type) -> None:
    class Counting(Policy):
        def key(self, queued: QueuedJob, now: float) -> float:
            return kind(7)  # type: ignore[no-any-return]

    assert encoded(run(Counting()).decisions) == encoded(run(Counting()).decisions)


def test_a_capability_outside_its_value_is_refused_where_it_is_written() -> None:
    """Nothing would read it, and the policy would run without."""
    with pytest.raises(TypeError, match=r"Packs.packs: .* capabilities = Capabilities\(packs=True"):
        type("Packs", (Policy,), {"packs": True})
