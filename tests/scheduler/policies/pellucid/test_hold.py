"""What holding GPUs costs those who wait: nobody waits against the price that is stated of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.baselines.lucid import Lucid
from scheduler.core.cluster import Cluster
from scheduler.core.decisions import STARTS, Action, Decision, Reason
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.core.profiling import WaitingStage
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import Played, pellucid, play
from scheduler.testing.worlds import World, worlds

# its order and nothing else of `pellucid`: no bound, no ageing, predicted once
AS_LUCID: dict[str, Any] = {
    "max_wait_s": 1e12,
    "ageing": 0.0,
    "gpu_exponent": 1.0,
    "predict_again_s": 0.0,
}
PRICES = st.sampled_from([0.0, 0.3, 1.0, 1.0, 5.0])


def played(world: World, policy: Policy, *, profiles: bool) -> Played:
    """Play a world under a policy; with a partition where `profiles`."""
    lent = {vc: nodes for vc, nodes in world.lent.items() if nodes} if profiles else None
    stage = WaitingStage(max_gpus=world.spec.gpus_per_node) if lent else None
    cluster = Cluster(world.spec, lent)
    return play(policy, cluster, *world.samples, stage=stage, speed=world.speed)


def packing(world: World, **chosen: Any) -> Pellucid:
    pairs = TablePairPredictor(world.scores, lambda a, b: (0.95, 0.9))
    return pellucid(pairs, cluster=world.spec, **chosen)


def refusals(found: Played) -> list[dict[str, Any]]:
    """Numbers of the waits for a pair that would keep others out."""
    waits = found.actions(Action.WAIT)
    return [dict(one.evidence) for one in waits if one.reason is Reason.KEEPS_OTHERS_OUT]


def schedule(found: Played) -> list[tuple[object, ...]]:
    def row(one: Decision) -> tuple[object, ...]:
        return one.time, one.job_id, one.action, one.nodes, one.gpus

    return [row(one) for one in found.decisions if one.action in STARTS]


@settings(max_examples=60)
@given(world=worlds(), price=PRICES)
def test_nobody_waits_while_the_stated_price_of_a_hold_says_it_should_not(
    world: World, price: float
) -> None:
    for wait in refusals(played(world, packing(world, hold_price=price), profiles=True)):
        assert 0 < wait["gain_s"] <= price * wait["hold_costs_s"]
        share = wait["hold_costs_s"] / wait["kept_out_jobs"] / wait["held_longer_s"]
        assert 0 < share <= 1


@settings(max_examples=40)
@given(world=worlds(), max_wait_s=st.sampled_from([10.0, 300.0, 1e9]))
def test_with_every_price_at_zero_nobody_is_put_off_for_others(
    world: World, max_wait_s: float
) -> None:
    """Greedy: the pair that gains most is made, and who is past the bound goes first."""
    policy = packing(world, hold_price=0.0, max_wait_s=max_wait_s)
    assert not refusals(played(world, policy, profiles=True))
    assert not policy.learned.remember().bound.put_off


@settings(max_examples=60)
@given(world=worlds())
def test_with_lucids_settings_and_nobody_to_share_with_it_is_lucid(world: World) -> None:
    own = played(world, pellucid(cluster=world.spec, **AS_LUCID), profiles=False)
    lucid = played(world, Lucid(cluster=world.spec), profiles=False)
    assert schedule(own) == schedule(lucid)
