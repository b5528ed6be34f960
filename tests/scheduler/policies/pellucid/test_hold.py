"""What holding GPUs costs those who wait: nobody waits against the price that is stated of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.baselines.lucid import Lucid
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.decisions import STARTS, Action, Decision, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy, Predictors
from scheduler.core.profiling import WaitingStage
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Host, Turn
from scheduler.explain.reasons import sentence
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.testing.builders import Desk, Played, Sample, a_job, cluster_of, pellucid, play
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import World, worlds

# its order and nothing else of `pellucid`: no bound, no ageing, predicted once
AS_LUCID: dict[str, Any] = {
    "max_wait_s": 1e12,
    "ageing": 0.0,
    "gpu_exponent": 1.0,
    "predict_again_s": 0.0,
    "order_by": "predicted",
}
PRICES = st.sampled_from([0.0, 0.3, 1.0, 1.0, 5.0])


@st.composite
def wide_worlds(draw: st.DrawFn) -> World:
    """Worlds of one virtual cluster that lends a node or two, and of many wide jobs."""
    nodes, lent = draw(st.integers(4, 6)), draw(st.integers(2, 3))
    gpus = st.sampled_from([1, 2, 3, 4, 2 * (nodes - lent), 2 * (nodes - lent)])
    samples = [
        a_job(
            f"j{i}",
            gpus=draw(gpus),
            for_=draw(st.sampled_from([10.0, 600.0, 7000.0])),
            at=60.0 * draw(st.integers(0, 20)),
            vc="vc",
            mem=draw(st.sampled_from([100.0, 20_000.0])),
            config=draw(st.sampled_from(["light", "heavy"])),
        )
        for i in range(draw(st.integers(3, 12)))
    ]
    samples.sort(key=lambda one: one.job.submit_time)
    return World(ClusterSpec({"vc": nodes}, 2, 24_576.0), tuple(samples), {"vc": lent})


@st.composite
def crowded_worlds(draw: st.DrawFn) -> World:
    """Worlds of one node, and one to profile on: a job holds the whole node, narrow ones wait, and
    others of a whole node come that might share with it.
    """
    seconds = st.sampled_from([600.0, 1800.0, 7200.0, 32_400.0])

    def a_few(name: str, most: int, gpus: st.SearchStrategy[int], at: float) -> list[Sample]:
        return [
            a_job(
                f"{name}{i}",
                gpus=draw(gpus),
                for_=draw(seconds),
                at=at + 60.0 * draw(st.integers(0, 5)),
                vc="vc",
                config="light",
            )
            for i in range(draw(st.integers(1, most)))
        ]

    samples = [
        a_job("first", gpus=4, for_=draw(seconds), vc="vc", config="light"),
        *a_few("narrow", 12, st.integers(1, 2), 300.0),
        *a_few("wide", 4, st.just(4), 900.0),
    ]
    samples.sort(key=lambda one: one.job.submit_time)
    return World(ClusterSpec({"vc": 2}, 4, 24_576.0), tuple(samples), {"vc": 1})


@st.composite
def queued_worlds(draw: st.DrawFn) -> World:
    """Worlds of one node that a job holds while others of much the same GPU-time come: who goes
    first when it ends is the order's alone, be it by a little.
    """
    asked = st.tuples(st.integers(1, 4), st.floats(600.0, 1500.0))
    come = draw(st.lists(asked, min_size=8, max_size=12))
    first = a_job("first", gpus=4, for_=7200.0, vc="vc")
    later = [
        a_job(f"next{i}", gpus=gpus, for_=seconds, at=600.0 * (i + 1), vc="vc")
        for i, (gpus, seconds) in enumerate(come)
    ]
    return World(ClusterSpec({"vc": 1}, 4, 24_576.0), (first, *later))


class Watched(WaitingStage):
    """A stage that is held, whenever it was served, to what is stated of its nodes."""

    def serve(self, core: Host, now: float) -> None:
        super().serve(core, now)
        here, node_vc = core.cluster.profiling, core.cluster.node_vc
        for vc, queue in core.queues.items():
            idle = [node for node in here.nodes() if node_vc[node] == vc and here.is_idle(node)]
            lack = core.lacks_nodes(vc, min(len(idle), here.size - 1), now)
            loses_s = self.limit_s * sum(1 for _ in self._queue)  # at least what is lost
            assert lack is None or lack.price * lack.hold.costs_s <= loses_s, (queue[0], lack)


def played(world: World, policy: Policy, *, profiles: bool) -> Played:
    """Play a world under a policy; with a partition where `profiles`."""
    lent = {vc: nodes for vc, nodes in world.lent.items() if nodes} if profiles else None
    stage = Watched(max_gpus=world.spec.gpus_per_node) if lent else None
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
@given(world=wide_worlds(), price=PRICES)
def test_a_node_is_lent_for_profiling_only_while_nobody_lacks_it_at_a_higher_price(
    world: World, price: float
) -> None:
    """`Watched` looks after each pass; where it went back, the recorded numbers say why."""
    found = played(world, packing(world, hold_price=price), profiles=True)
    for back in found.actions(Action.RETURN):
        numbers: dict[str, Any] = dict(back.evidence)
        assert price * numbers["waits_longer_s"] > numbers["profiled_later_s"] >= 0
        assert (back.need or 0) == numbers["missed_nodes"] * world.spec.gpus_per_node


class Wide(PolicyContract):
    name = "pellucid"
    skips = True


@settings(max_examples=60)
@given(world=wide_worlds(), passes=st.integers(1, 12), seed=st.integers(0, 99))
def test_one_that_follows_knows_which_nodes_went_back(world: World, passes: int, seed: int) -> None:
    Wide().check_goes_on(world, passes, seed)


def a_lender(**chosen: Any) -> Desk:
    """Five nodes, two of them lent for profiling; on one of the others a job runs."""
    desk = Desk(pellucid(**chosen), cluster_of(nodes=5, gpus=8, profiling=2), stage=WaitingStage())
    desk.submit(a_job("long", gpus=8, for_=900.0))
    return desk


def test_a_node_goes_back_to_the_wide_job_that_lacks_no_more_and_is_lent_again_after_it() -> None:
    desk = a_lender()
    back, start = [
        one
        for one in desk.submit(a_job("wide", gpus=24), now=10.0)
        if one.action not in (Action.ENQUEUE, Action.WAIT)
    ]
    assert (back.action, back.reason, back.job_id) == (
        Action.RETURN,
        Reason.NODE_MISSED,
        "wide",
    )
    numbers: dict[str, Any] = dict(back.evidence)
    assert (numbers["missed_nodes"], numbers["profiled_later_s"]) == (1, 0.0)
    assert numbers["waits_longer_s"] > 590.0, "the mean of what is left of those like the other"
    assert sentence(back) == (
        "the first job in line lacks 8 GPUs that are lent for profiling: the node goes back"
    )
    assert (start.action, start.job_id) == (Action.START, "wide")
    desk.submit(*(a_job(f"next{i}", gpus=8) for i in range(3)), now=20.0)
    again, *starts = desk.end("wide", now=600.0)
    assert (again.action, again.reason, again.nodes) == (
        Action.LEND,
        Reason.NODE_SPARED,
        back.nodes,
    )
    started = [one.job_id for one in starts if one.action is Action.START]
    assert len(started) == 2, "the third node went to the wide one alone"


@pytest.mark.parametrize(
    ("chosen", "gpus"),
    [
        ({"hold_price": 0.0}, 24),  # nobody counts what it costs
        ({"hold_price": 1e-6}, 24),  # less than what the one that is to be profiled loses
        ({}, 8),  # no job of several nodes: it may have other GPUs
    ],
)
def test_a_node_stays_where_that_costs_less(chosen: dict[str, Any], gpus: int) -> None:
    desk = a_lender(**chosen)
    desk.submit(a_job("other", gpus=8), a_job("third", gpus=8), now=1.0)
    desk.submit(a_job("profiled", gpus=8), now=2.0)
    if gpus == 24:
        desk.end("third", now=3.0)
        desk.end("other", now=3.0)
    found = desk.submit(a_job("wide", gpus=gpus), a_job("small", gpus=1), now=10.0)
    assert Action.RETURN not in {one.action for one in found}


@settings(max_examples=60)
@given(world=crowded_worlds(), price=PRICES)
def test_a_pair_is_made_if_it_saves_more_than_the_stated_price_of_its_hold(
    world: World, price: float
) -> None:
    found = played(world, packing(world, hold_price=price), profiles=True)
    for wait in refusals(found):
        assert 0 < wait["gain_s"] <= price * wait["hold_costs_s"]
        share = wait["hold_costs_s"] / wait["kept_out_jobs"] / wait["held_longer_s"]
        assert 0 < share <= 1.0 + 1e-9
    for made in found.actions(Action.PACK):
        numbers: dict[str, Any] = dict(made.evidence)
        assert numbers["gain_s"] > price * numbers.get("hold_costs_s", 0.0)


class Bounded(Pellucid):
    """A policy that is held, after each pass, to what it states of those past their bound."""

    def serve(self, turn: Turn) -> None:
        super().serve(turn)
        bound, chosen = self.starvation, self.settings
        for queued in turn.queue:
            late = bound.put_off(queued)
            if late is None:
                continue
            promise = self.promise(queued, turn.now)
            assert promise is not None
            assert promise.costs_s == late.costs_s, "what is stated is what decided"
            assert chosen.hold_price * late.costs_s > chosen.price * late.waited_s
            assert not bound.overdue(queued, turn.now), "then it goes first at any price"


def bounded(world: World, **chosen: Any) -> Played:
    pairs = TablePairPredictor(world.scores, lambda a, b: (0.95, 0.9))
    policy = Bounded(PellucidSettings(**chosen), world.spec, Predictors(pairs))
    return played(world, policy, profiles=True)


@settings(max_examples=60)
@given(
    world=st.one_of(crowded_worlds(), worlds()),
    price=PRICES,
    max_wait_s=st.sampled_from([10.0, 300.0, 3000.0]),
)
def test_nobody_past_its_bound_is_put_off_at_less_than_the_stated_price(
    world: World, price: float, max_wait_s: float
) -> None:
    bounded(world, hold_price=price, max_wait_s=max_wait_s)


def one_past_its_bound(price: float) -> tuple[Pellucid, QueuedJob]:
    """On a full node a job has just waited for its bound, and another waits with it."""
    table = TableEstimator("given", {"late": 600.0}, default=7200.0)
    policy = pellucid(max_wait_s=2000.0, overload=16.0, price=price, predict_again_s=0.0)
    desk = Desk(policy, cluster_of(gpus=4), table)
    desk.submit(a_job("holds", gpus=4, user="u"))
    desk.submit(a_job("late", user="u", at=1.0), now=1.0)
    desk.submit(a_job("other", user="u", at=2.0), now=2.0)
    desk.wake(2001.0)
    return policy, desk.core.jobs["late"]


def test_who_is_past_its_bound_goes_first_from_the_very_price_that_is_stated() -> None:
    policy, late = one_past_its_bound(1e-6)
    put_off = policy.starvation.put_off(late)
    assert put_off is not None
    at = put_off.costs_s / put_off.waited_s
    for price, first in ((0.95 * at, False), (1.05 * at, True)):
        policy, late = one_past_its_bound(price)
        assert policy.starvation.goes_first(late) is first, (price, at)


def test_a_pair_is_made_however_little_it_saves() -> None:
    """With nobody ahead who would wait, and with less than a minute left of the other."""
    desk = Desk(
        pellucid(TablePairPredictor({"runs": 0, "comes": 0}, lambda a, b: (0.95, 0.9))),
        cluster_of(gpus=4),
        TableEstimator("given", {"runs": 15.0, "comes": 7200.0}, default=600.0),
    )
    desk.submit(a_job("runs", gpus=4))
    profile = a_job("runs").work.profile
    assert profile is not None
    desk.core.observed("runs", profile, 0.0)
    desk.core.submitted(a_job("comes", gpus=4).job, 0.0)
    desk.core.jobs["comes"].profile = profile
    [made] = [d for d in desk.core.decide(0.0) if d.action is Action.PACK]
    assert 0.0 < float(dict(made.evidence)["gain_s"]) < 60.0


@settings(max_examples=40)
@given(world=crowded_worlds(), max_wait_s=st.sampled_from([10.0, 300.0, 1e9]))
def test_with_every_price_at_zero_nobody_is_put_off_for_others(
    world: World, max_wait_s: float
) -> None:
    """Greedy: the pair that gains most is made, and who is past the bound goes first: `Bounded`
    looks after each pass.
    """
    assert not refusals(bounded(world, hold_price=0.0, max_wait_s=max_wait_s))


@settings(max_examples=60)
@given(world=st.one_of(queued_worlds(), worlds()))
def test_with_lucids_settings_and_nobody_to_share_with_it_is_lucid(world: World) -> None:
    own = played(world, pellucid(cluster=world.spec, **AS_LUCID), profiles=False)
    lucid = played(world, Lucid(cluster=world.spec), profiles=False)
    assert schedule(own) == schedule(lucid)


def test_where_a_gpu_of_a_lent_node_is_closed_the_last_whole_one_stays() -> None:
    """A node with a closed GPU is never idle, and is no node to profile on."""
    desk = a_lender()
    lent = sorted(desk.core.cluster.profiling.nodes())
    desk.core.nodes.close_alone(lent[0], 0b1)
    found = desk.submit(a_job("wide", gpus=24), now=10.0)
    found += desk.submit(*(a_job(f"j{i}", gpus=8) for i in range(3)), a_job("small"), now=20.0)
    assert Reason.NODE_MISSED not in {one.reason for one in found}
    assert Action.PROFILE in {one.action for one in found}


def test_one_node_stays_lent_though_the_wide_job_lacks_them_all() -> None:
    desk = a_lender()
    desk.submit(a_job("other", gpus=8, for_=900.0), now=1.0)
    found = desk.submit(a_job("wide", gpus=24), now=10.0)
    assert Action.RETURN not in {one.action for one in found}
    assert desk.core.cluster.profiling.size == 2
