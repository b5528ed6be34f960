"""The policy `pellucid`: the contract, and what it promises beyond it."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Pool
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import TableEstimator
from scheduler.core.memory import remember, restore
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.core.profiling import Stage, WaitingStage
from scheduler.explain.words import sentence_of
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import Borrowing
from scheduler.testing.builders import (
    VC,
    Desk,
    Likes,
    a_job,
    actions,
    cluster_of,
    pellucid,
    play,
)
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import Watched, World, watch, worlds

HOUR = 3600.0
PROFILE_S = 200.0  # a stay in the profiling partition


class TestPellucidProfilingWhileWaiting(PolicyContract):
    """With a short bound: GPUs are kept for somebody most of the time."""

    name = "pellucid"
    skips = True
    max_wait_s = 300.0
    overload = 16.0
    backfill = 1.0

    def policy(self, world: World) -> Policy:
        return pellucid(
            TablePairPredictor(world.scores, lambda a, b: (0.95, 0.9)),
            cluster=world.spec,
            max_wait_s=self.max_wait_s,
            overload=self.overload,
            backfill=self.backfill,
        )

    def stage(self, world: World, policy: Policy) -> Stage | None:
        return WaitingStage(max_gpus=world.spec.gpus_per_node) if any(world.lent.values()) else None


@settings(max_examples=60)
@given(world=worlds(), max_wait_s=st.sampled_from([0.0, 10.0, 300.0, 3000.0]))
def test_nobody_starts_on_reserved_gpus(world: World, max_wait_s: float) -> None:
    """Bounded overtaking: without backfill, from its reservation on, a job is overtaken by no
    GPU-time at all on the GPUs it waits for. Told from the decisions alone, and from who submitted
    when."""
    watched = _watched(world, max_wait_s, 16.0, 0.0)
    held: dict[str, tuple[str, set[tuple[int, int]]]] = {}  # vc -> holder, its (node, GPU)s
    waiting: dict[str, dict[str, float]] = {}
    submit = {s.id: s.job.submit_time for s in world.samples}
    for d in watched.core.timeline:
        if isinstance(d, str):
            for vc, (holder, _) in list(held.items()):
                if holder == d and d not in waiting.get(vc, {}):
                    del held[vc]
            continue
        line = waiting.setdefault(d.vc, {})
        if d.action is Action.ENQUEUE:
            line[d.job_id] = submit[d.job_id]
        elif d.action is Action.RESERVE:
            assert d.time >= submit[d.job_id] + max_wait_s, "not before its bound"
            before = held.get(d.vc)
            assert before is None or before[0] == d.job_id, "one reservation at a time"
            assert submit[d.job_id] == min(line.values()), "the oldest first"
            held[d.vc] = d.job_id, _gpus(d)
        elif d.action in (Action.START, Action.PACK, Action.PROFILE):
            line.pop(d.job_id, None)
            if d.action is Action.PROFILE or d.vc not in held:
                continue
            holder, gpus = held[d.vc]
            if d.job_id == holder:
                del held[d.vc]
            else:
                assert not _gpus(d) & gpus, "it was overtaken"


def _gpus(d: Decision) -> set[tuple[int, int]]:
    return {
        (node, i)
        for node, mask in zip(d.nodes, d.gpus, strict=True)
        for i in range(mask.bit_length())
        if mask >> i & 1
    }


def _watched(world: World, max_wait_s: float, overload: float, backfill: float) -> Watched:
    contract = TestPellucidProfilingWhileWaiting()
    contract.max_wait_s, contract.overload, contract.backfill = max_wait_s, overload, backfill
    return watch(world, contract.core(world))


def _left(watched: Watched) -> dict[str, float]:
    """When each job left its GPUs for good."""
    return {args[0]: args[3] for name, args, _ in watched.core.events if name == "ended"}


@settings(max_examples=40)
@given(
    world=worlds(),
    max_wait_s=st.sampled_from([0.0, 10.0, 300.0, 3000.0]),
    overload=st.sampled_from([1.0, 2.0, 16.0]),
    backfill=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_every_late_job_starts_after_a_bounded_number_of_stays(
    world: World, max_wait_s: float, overload: float, backfill: float
) -> None:
    """Also before it is first in line: with n - 1 older jobs not started in its virtual cluster
    when its bound, and the time in which others may be where its GPUs are, has passed, it has GPUs
    within n times the longest stay on GPUs there (and a look in the profiling partition); and one
    such stay more for a younger job that was given the reservation while this one was looked at."""
    watched = _watched(world, max_wait_s, overload, backfill)
    left = _left(watched)
    submit = {s.id: (s.job.submit_time, i) for i, s in enumerate(world.samples)}
    begun = {d.job_id: d for d in watched.decisions if d.action in (Action.START, Action.PACK)}
    line: dict[str, list[str]] = {}
    for d in watched.decisions:
        if d.action is Action.ENQUEUE and d.job_id not in line.setdefault(d.vc, []):
            line[d.vc].append(d.job_id)
    for vc, jobs in line.items():
        stay = max((left[j] - begun[j].time for j in jobs if j in begun), default=0.0)
        over = {j: begun[j].time if j in begun else left[j] for j in jobs}
        passes = _bounds(watched, vc, (1.0 + backfill) * max_wait_s, overload)
        for job in jobs:
            bound = passes[job]
            if over[job] <= bound:
                continue
            older = [j for j in jobs if submit[j] < submit[job] and over[j] > bound]
            turns = len(older) + 2
            most_s = turns * (stay + PROFILE_S)
            assert over[job] <= bound + most_s + 1e-3, (vc, job)


def _bounds(watched: Watched, vc: str, max_wait_s: float, overload: float) -> dict[str, float]:
    """When each job is late: after its patience, and once 1 / (asked for / GPUs there), never more
    than 1, has summed to `max_wait_s / overload` over its wait."""
    left, there = _left(watched), watched.core.cluster.pools[vc].gpus
    came = {
        d.job_id: (d.time, d.need or 0)
        for d in reversed(watched.decisions)
        if d.action is Action.ENQUEUE and d.vc == vc
    }
    times = sorted({t for job, (at, _) in came.items() for t in (at, left[job])})
    slower = [
        max(1.0, sum(n for j, (at, n) in came.items() if at <= t < left[j]) / max(there, 1))
        for t in times
    ]
    bounds = {}
    for job, (at, _) in came.items():
        need_s, now = max_wait_s / overload, at
        for until, factor in zip([*times[1:], inf], slower, strict=True):
            if until <= at:
                continue
            if need_s <= (until - now) / factor:
                break
            need_s, now = need_s - (until - now) / factor, until
        bounds[job] = max(at + max_wait_s, now + need_s * factor)
    return bounds


def test_reserved_gpus_are_backfilled_until_their_holder_has_waited_twice_its_bound() -> None:
    """By jobs that are likely to be gone before the holder can start, and by no others."""
    hours = {"long": 90.0, "wide": 1.0, "short": 0.1, "lasting": 200.0, "late": 0.1}
    desk = Desk(
        pellucid(max_wait_s=10 * HOUR, overload=16.0),
        cluster_of(nodes=2),
        TableEstimator("given", {name: took * HOUR for name, took in hours.items()}, default=HOUR),
    )
    desk.submit(a_job("long", gpus=8))
    desk.submit(a_job("wide", gpus=16, at=1.0), now=1.0)
    desk.wake(11 * HOUR)
    assert desk.core.policy.reservation("vc") is not None
    taken = desk.submit(a_job("short", gpus=8, at=12 * HOUR), now=12 * HOUR)
    assert [(d.action, d.reason) for d in taken[1:]] == [(Action.START, Reason.BACKFILLED)]
    desk.end("short", now=13 * HOUR)
    desk.submit(a_job("lasting", gpus=4, at=13 * HOUR), now=13 * HOUR)
    assert desk.core.jobs["lasting"].reason is Reason.RESERVED_FOR_STARVING_JOB
    desk.submit(a_job("late", gpus=4, at=21 * HOUR), now=21 * HOUR)
    assert desk.core.jobs["late"].reason is Reason.RESERVED_FOR_STARVING_JOB


HOURS = {"long": 90.0, "wide": 1.0, "short": 0.1, "lasting": 200.0, "wider": 0.5}


def a_desk_with_a_first(**chosen: Any) -> Desk:
    """One node of two is busy for days, and a job of both is the first in line."""
    table = TableEstimator("given", {of: took * HOUR for of, took in HOURS.items()}, default=HOUR)
    desk = Desk(pellucid(keeps_for_first=True, **chosen), cluster_of(nodes=2), table)
    desk.submit(a_job("long", gpus=8))
    desk.submit(a_job("wide", gpus=16, at=1.0), now=1.0)
    return desk


def test_gpus_are_kept_for_the_first_in_line_from_the_start() -> None:
    desk = a_desk_with_a_first()
    reserved = desk.core.policy.reservation("vc")
    assert reserved is not None
    assert reserved[0] == "wide"
    taken = desk.submit(a_job("lasting", gpus=8, at=2.0), now=2.0)
    waits = taken[-1]
    assert (waits.reason, waits.blocker) == (Reason.WOULD_DELAY_FIRST, "wide")
    assert "but kept for job wide, the first in line, which this job could delay" in (
        sentence_of(waits)
    )
    desk.submit(a_job("short", gpus=8, at=3.0), now=3.0)
    assert "short" in desk.cluster.runs, "it is the first now, and gets what was kept"


def test_gpus_stay_kept_for_the_first_in_line_when_settings_change() -> None:
    desk = a_desk_with_a_first()
    before = desk.core.policy
    assert isinstance(before, Pellucid)
    after = Pellucid(before.settings.model_copy(update={"pack_first_above": 0.5}))
    assert after.take_over(before, list(desk.core.queues[VC]), [], 2.0)
    assert after.reservation(VC) == before.reservation(VC)


def test_gpus_are_kept_for_whoever_is_the_first_in_line() -> None:
    desk = a_desk_with_a_first(ageing=0.0)
    found = desk.submit(a_job("wider", gpus=16, at=2.0), now=2.0)
    kept = [d for d in found if d.action is Action.RESERVE]
    assert [(d.job_id, d.reason) for d in kept] == [("wider", Reason.PRIORITY)]
    reserved = desk.core.policy.reservation("vc")
    assert reserved is not None
    assert (reserved[0], sorted(reserved[1])) == ("wider", [(0, 255), (1, 255)])
    assert [d.job_id for d in desk.end("long", now=3.0) if d.action is Action.START] == ["wider"]
    reserved = desk.core.policy.reservation("vc")
    assert reserved is not None
    assert reserved[0] == "wide"


@pytest.mark.parametrize(("backfill", "starts"), [(1.0, True), (0.0, False)])
def test_without_backfill_nobody_passes_on_gpus_kept_for_the_first(
    backfill: float, starts: bool
) -> None:
    desk = a_desk_with_a_first(backfill=backfill, gpu_exponent=0.0, ageing=10.0)
    found = desk.submit(a_job("short", gpus=8, at=HOUR), now=HOUR)
    assert desk.core.queues["vc"][0].job.job_id == "wide"
    backfilled = [d for d in found if d.reason is Reason.BACKFILLED]
    assert [d.job_id for d in backfilled] == (["short"] if starts else [])


def test_jobs_past_their_bound_go_in_the_order_they_were_submitted() -> None:
    """Whatever is predicted of them, and whether they fell behind while they waited here or came
    back from elsewhere: the oldest goes first."""
    names = ["huge", "large", "tiny", "small"]
    hours = dict(zip(names, (40.0, 10.0, 0.1, 1.0), strict=True))
    desk = Desk(
        pellucid(max_wait_s=HOUR, overload=16.0, ageing=0.0, price=1e12),
        cluster_of(),
        TableEstimator("given", {name: hours[name] * HOUR for name in names}, default=HOUR),
    )
    desk.submit(a_job("first", gpus=8))
    for i, name in enumerate(names):
        desk.submit(a_job(name, gpus=8, at=60.0 * i), now=60.0 * i)
    queue = desk.core.queues["vc"]
    assert [queued.job.job_id for queued in queue] == ["tiny", "small", "large", "huge"]
    desk.wake(10 * HOUR)
    assert [queued.job.job_id for queued in queue] == names
    for queued in list(queue):  # as a change of settings or of models does
        desk.policy.prepare(queued, 10 * HOUR, desk.estimator)
    queue.replace(list(queue))
    assert [queued.job.job_id for queued in queue] == names
    desk.end("first", now=10 * HOUR)
    assert "huge" in desk.cluster.runs


@pytest.mark.parametrize("again", [False, True])
def test_gpus_kept_for_a_job_that_is_withdrawn_are_free_for_the_next(again: bool) -> None:
    """Also where one of the same name comes at once: it has not waited."""
    desk = Desk(pellucid(max_wait_s=HOUR, overload=16.0), cluster_of(nodes=2))
    desk.submit(a_job("long", gpus=8), a_job("wide", gpus=16))
    desk.wake(10 * HOUR)
    late = a_job("late", gpus=8, at=10 * HOUR)
    kept = desk.submit(late, now=10 * HOUR)
    assert [d.reason for d in kept if d.action is Action.WAIT] == [Reason.RESERVED_FOR_STARVING_JOB]
    desk.core.withdrawn("wide", 11 * HOUR)
    if again:
        desk.core.submitted(a_job("wide", gpus=16, at=11 * HOUR).job, 11 * HOUR)
    assert (Action.START, "late") in actions(desk.core.decide(11 * HOUR))


def test_packs_before_it_must_only_pairs_that_hardly_slow() -> None:
    def started(speeds: tuple[float, float]) -> list[Action]:
        jobs = [a_job(name, gpus=8, for_=9 * HOUR, at=at) for name, at in (("a", 0), ("b", 900))]
        policy = pellucid(Likes(speeds={("b", "a"): speeds}))
        cluster = cluster_of(nodes=3, profiling=1)
        played = play(policy, cluster, *jobs, stage=WaitingStage())
        return [d.action for d in played.of("b", Action.START, Action.PACK)]

    assert started((0.95, 0.9)) == [Action.PACK]
    assert started((0.85, 0.85)) == [Action.START]


@given(
    gpus=st.integers(1, 40),
    own=st.lists(st.integers(0, 8), max_size=4),
    lent=st.lists(st.integers(0, 8), max_size=4),
)
def test_a_span_is_whole_and_free(gpus: int, own: list[int], lent: list[int]) -> None:
    pools = []
    node = 0
    for busy in (own, lent):
        pool = Pool("p", 8)
        for taken in busy:
            pool.add_node(node)
            pool.take([(node, (1 << taken) - 1)])
            node += 1
        pools.append(pool)
    placement = Lending(Borrowing()).span(pools[0], pools[1:], gpus)
    if placement is None:
        idle = sum(taken == 0 for taken in own + lent)
        assert idle * 8 < gpus if gpus > 8 else all(8 - taken < gpus for taken in lent)
        return
    assert sum(mask.bit_count() for _, mask in placement) == gpus
    assert len(placement) == -(-gpus // 8)
    for node, mask in placement:
        pool = pools[0] if node in pools[0] else pools[1]
        assert not mask & ~pool.free_on(node)


def test_an_hour_of_waiting_forgives_as_much_prediction_as_is_set() -> None:
    """The long job goes first once it has waited long enough before the short one came."""

    def order(gap_s: float) -> list[str]:
        jobs = [
            a_job("holds", gpus=5, for_=8 * HOUR),
            a_job("long", gpus=5, for_=2 * HOUR, at=1.0),
            a_job("short", gpus=5, for_=HOUR, at=1.0 + gap_s),
        ]
        policy = pellucid(max_wait_s=1e9, ageing=0.3, gpu_exponent=0.0)
        played = play(policy, cluster_of(gpus=8), *jobs)
        return [d.job_id for d in played.actions(Action.START)]

    assert order(3.3 * HOUR) == ["holds", "short", "long"]  # 59 minutes forgiven of 60
    assert order(3.4 * HOUR) == ["holds", "long", "short"]  # 61


@pytest.mark.parametrize(("user", "order"), [("user", ["long", "short"]), ("", ["short", "long"])])
def test_waiting_counts_however_long_the_queue_is_unless_nobody_knows_whose_a_job_is(
    user: str, order: list[str]
) -> None:
    policy = pellucid(max_wait_s=1e9, predict_again_s=0.0, ageing=0.3)
    desk = Desk(policy, cluster_of(gpus=1), TableEstimator("given", {"long": 7200.0}, default=60.0))
    desk.submit(a_job("holds", user=user))
    desk.submit(a_job("long", user=user, at=1.0), now=1.0)
    desk.submit(*(a_job(f"other{n}", user=user, at=2.0) for n in range(9)), now=2.0)
    desk.submit(a_job("short", user=user, at=10 * HOUR), now=10 * HOUR)
    line = [queued.job.job_id for queued in desk.core.queues[VC]]
    assert [job_id for job_id in line if not job_id.startswith("other")] == order
    credit = dict(policy.order_terms(desk.core.jobs["long"], 10 * HOUR))["credit for waiting"]
    assert credit == pytest.approx(-0.3 * (10 * HOUR - 1.0) if user else 0.0)


def test_of_jobs_predicted_alike_the_one_with_fewer_gpus_goes_first() -> None:
    def order(gpu_exponent: float) -> list[str]:
        jobs = [
            a_job("holds", gpus=8, for_=8 * HOUR),
            a_job("wide", gpus=8, for_=HOUR, at=1.0),
            a_job("narrow", gpus=4, for_=1.2 * HOUR, at=2.0),
        ]
        policy = pellucid(gpu_exponent=gpu_exponent)
        played = play(policy, cluster_of(nodes=1), *jobs)
        return [d.job_id for d in played.actions(Action.START)]

    assert order(0.0) == ["holds", "wide", "narrow"]
    assert order(0.5) == ["holds", "narrow", "wide"]


def test_who_finds_nobody_alone_at_its_size_uses_up_no_search() -> None:
    """Jobs of 8 GPUs stand in front, whom nobody running could take; a job of 4 can be packed."""
    jobs = [
        a_job("runs", gpus=4, for_=8 * HOUR),
        a_job("more", gpus=4, for_=9 * HOUR),
        *(a_job(f"wide{i}", gpus=8, for_=600.0, at=1.0) for i in range(3)),
        a_job("late", gpus=4, for_=HOUR, at=2.0),
    ]
    fast = {("late", name): (0.95, 0.9) for name in ("runs", "more")}
    policy = pellucid(Likes(speeds=fast), partner_searches=1, profile_above=1e9)
    cluster = cluster_of(nodes=2, profiling=1)
    packed = play(policy, cluster, *jobs, stage=WaitingStage()).actions(Action.PACK)
    assert [d.job_id for d in packed] == ["late"]


def test_a_deep_queue_of_an_earlier_version_gets_its_credit_for_waiting() -> None:
    """Its keys were without it, and so its jobs would go before all that come later."""

    def desk() -> Desk:
        policy = pellucid(max_wait_s=1e9, predict_again_s=0.0, ageing=0.3)
        table = TableEstimator("given", {"long": 7200.0}, default=60.0)
        return Desk(policy, cluster_of(gpus=1), table)

    before, after, later = desk(), desk(), 10 * HOUR
    before.submit(a_job("holds", user="user"))
    before.submit(a_job("long", user="user", at=1.0), now=1.0)
    before.submit(a_job("short", user="user", at=later), now=later)
    was = before.core.queues[VC]
    keys = {queued.job.job_id: queued.key for queued in was}
    memory = remember(before.core)
    for one in memory.jobs:
        one.key -= 0.3 * one.job.submit_time
    memory.policy["patience"] = [VC]
    memory.queues[VC].jobs.reverse()
    restore(after.core, memory)
    now = {queued.job.job_id: queued.key for queued in after.core.queues[VC]}
    assert now == pytest.approx(keys)
    assert list(now) == ["long", "short"]
