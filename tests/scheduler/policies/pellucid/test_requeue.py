"""Stopping jobs that were declared resumable: the contract, and when it happens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.decisions import Action, Reason
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy, skipping
from scheduler.core.profiling import Stage, WaitingStage
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import a_job, cluster_of, pellucid, play
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import World, watch, worlds
from tests.scheduler.core.test_contract_bites import WORLD, every_check

HOUR = 3600.0


class TestRequeueingPellucid(PolicyContract):
    name = "pellucid"
    skips = True

    def policy(self, world: World) -> Policy:
        return pellucid(
            TablePairPredictor(world.scores, lambda a, b: (0.95, 0.9)),
            cluster=world.spec,
            requeue={"after_s": 60.0},
            max_wait_s=3000.0,
        )

    def stage(self, world: World, policy: Policy) -> Stage | None:
        return WaitingStage(max_gpus=world.spec.gpus_per_node) if any(world.lent.values()) else None


@settings(max_examples=40)
@given(world=worlds(), after_s=st.sampled_from([0.5, 60.0, 3000.0]))
def test_a_job_runs_undisturbed_first(world: World, after_s: float) -> None:
    contract = TestRequeueingPellucid()
    core = contract.core(world)
    assert isinstance(core.policy, Pellucid)
    core.policy = pellucid(
        core.policy.pair_predictor, requeue={"after_s": after_s}, learns_speeds=False
    )
    begun: dict[str, float] = {}
    for d in watch(world, core).decisions:
        if d.action in (Action.START, Action.PACK):
            begun[d.job_id] = d.time
        elif d.action is Action.PREEMPT:
            assert d.time >= begun[d.job_id] + after_s


def test_a_long_job_makes_room_for_a_short_one_and_pays_for_its_checkpoint() -> None:
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=True)
    short = a_job("short", gpus=8, for_=HOUR, at=10 * HOUR)
    played = play(pellucid(requeue={"after_s": 1800.0}), cluster_of(nodes=1), long, short)
    (stop,) = played.of("long", Action.PREEMPT)
    assert (stop.time, stop.reason, stop.blocker) == (
        10 * HOUR,
        Reason.SHORTER_JOB_WAITING,
        "short",
    )
    assert played.result("short").queue_s == 0
    assert played.result("long").end_time == 51 * HOUR + 30.0
    assert played.result("long").queue_s == HOUR


def test_it_is_looked_at_when_its_trial_is_over() -> None:
    """Nothing else happens at that moment."""
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=True)
    short = a_job("short", gpus=8, for_=HOUR, at=60.0)
    played = play(pellucid(requeue={"after_s": 1800.0}), cluster_of(nodes=1), long, short)
    assert played.result("short").start_time == 1800.0


@pytest.mark.parametrize(
    ("after_s", "resumable"), [(1800.0, False), (None, True), (11 * HOUR, True)]
)
def test_nobody_else_is_stopped(after_s: float | None, resumable: bool) -> None:
    """Not one that was not declared so, not if the policy does not, not before its time."""
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=resumable)
    short = a_job("short", gpus=8, for_=0.5 * HOUR, at=10 * HOUR)
    policy = pellucid(requeue=None if after_s is None else {"after_s": after_s})
    assert policy.requeues is (after_s is not None)
    played = play(policy, cluster_of(nodes=1), long, short)
    stops = [d.time for d in played.actions(Action.PREEMPT)]
    assert stops == ([11 * HOUR] if after_s == 11 * HOUR else [])


def test_a_job_is_stopped_once_and_then_runs_to_its_end() -> None:
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=True)
    short = [a_job(f"s{i}", gpus=8, for_=HOUR, at=i * 10 * HOUR) for i in range(1, 5)]
    played = play(pellucid(requeue={"after_s": 1800.0}), cluster_of(nodes=1), long, *short)
    assert len(played.of("long", Action.PREEMPT)) == 1


def test_a_narrow_job_does_not_drive_out_a_wide_one() -> None:
    """The GPUs it would leave idle are worth more."""
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=True)
    short = a_job("short", gpus=1, for_=60.0, at=10 * HOUR)
    played = play(pellucid(requeue={"after_s": 1800.0}), cluster_of(nodes=1), long, short)
    assert not played.actions(Action.PREEMPT)


def test_what_it_ran_before_counts_as_its_duration() -> None:
    """The distribution learns from both stints, not from the last."""
    long = a_job("long", gpus=8, for_=50 * HOUR, resumable=True)
    short = a_job("short", gpus=8, for_=HOUR, at=10 * HOUR)
    learned: list[tuple[float, float]] = []
    policy = pellucid(requeue={"after_s": 1800.0})
    policy.distribution.learn = lambda *pair: learned.append(pair)  # type: ignore[method-assign]
    play(policy, cluster_of(nodes=1), long, short)
    assert learned == [(HOUR, HOUR), (50 * HOUR, 50 * HOUR + 30.0)]


def test_gpus_are_given_back_to_their_owner() -> None:
    """A resumable borrower makes room for a shorter job of the virtual cluster it is a guest in."""
    nodes = {"one": 1, "two": 1}
    jobs = [
        a_job("own", gpus=8, for_=90 * HOUR, vc="one"),
        a_job("guest", gpus=8, for_=50 * HOUR, vc="one", at=1.0, resumable=True),
        a_job("owner", gpus=8, for_=HOUR, vc="two", at=10 * HOUR),
    ]
    policy = pellucid(requeue={"after_s": 1800.0}, borrowing={})
    played = play(policy, cluster_of(nodes=nodes), *jobs)
    (stop,) = played.of("guest", Action.PREEMPT)
    assert (stop.vc, stop.blocker) == ("one", "owner")
    assert played.result("owner").queue_s == 0
    assert played.result("guest").end_time == 51 * HOUR + 1.0 + 30.0
    played.core.cluster.validate()


class Careless(Policy):
    """Says that it stops resumable jobs, and stops any."""

    requeues = True

    def serve(self, turn: Turn) -> None:
        skipping(turn)
        if turn.now == 3.0 and turn.runs():
            turn.preempt(turn.runs()[0], 1e9, blocker="d")
            skipping(turn)


def test_the_contract_catches_a_policy_that_stops_what_it_must_not() -> None:
    assert not any(sample.job.resumable for sample in WORLD.samples)
    with pytest.raises(AssertionError, match="cannot be stopped"):
        every_check(Careless())
