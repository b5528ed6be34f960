"""What `pellucid` promises a job that waits, re-enacted from its decisions alone."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.pairs import TableJudge
from scheduler.core.policy import Policy
from scheduler.policies.pellucid.policy import Pellucid
from tests.scheduler.builders import a_job, cluster_of, play
from tests.scheduler.contract import PolicyContract
from tests.scheduler.policies.pellucid import test_pellucid
from tests.scheduler.worlds import Watched, World, watch, worlds

HOUR = 3600.0
LOOK_S = 200.0  # a stay in the profiling partition
_common = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


class TestPellucidWithGuests(test_pellucid.TestPellucidProfilingWhileWaiting):
    """Jobs run on reserved GPUs until they are of use."""

    patience_s = 300.0
    overtake_gpu_s = 1e6
    crowd = 16.0

    def policy(self, world: World) -> Policy:
        return Pellucid(
            TableJudge(world.scores, lambda a, b: (0.95, 0.9)),
            gpu_memory_mib=world.spec.gpu_memory_mib,
            patience_s=self.patience_s,
            crowd=self.crowd,
            overtake_gpu_s=self.overtake_gpu_s,
            backfill_quantile=0.6,
        )


class TestPellucidByGittinsIndex(PolicyContract):
    name = "pellucid"
    skips = True

    def policy(self, world: World) -> Policy:
        return Pellucid(order="gittins")


def _watched(world: World, patience_s: float, most_gpu_s: float, crowd: float = 16.0) -> Watched:
    contract = TestPellucidWithGuests()
    contract.crowd = crowd
    contract.patience_s, contract.overtake_gpu_s = patience_s, most_gpu_s
    return watch(world, contract.core(world))


def _left(watched: Watched) -> dict[str, float]:
    """When each job left its GPUs for good."""
    return {args[0]: args[3] for name, args, _ in watched.core.events if name == "ended"}


def _gpus(d: Decision) -> set[tuple[int, int]]:
    pairs = zip(d.nodes, d.gpus, strict=True)
    return {(n, i) for n, mask in pairs for i in range(mask.bit_length()) if mask >> i & 1}


@_common
@given(
    world=worlds(),
    patience_s=st.sampled_from([0.0, 10.0, 300.0]),
    most_gpu_s=st.sampled_from([0.0, 500.0, 20_000.0, 1e7]),
    limited=st.booleans(),
)
def test_guests_of_a_reservation_stay_within_their_budget(
    world: World, patience_s: float, most_gpu_s: float, limited: bool
) -> None:
    """From its reservation on, a job is overtaken on the GPUs it waits for by so many GPU-seconds
    at most: by all guests together where time limits are enforced, otherwise by what they were
    charged, and nobody is let in above it."""
    if limited:
        samples = (replace(s, job=replace(s.job, time_limit_s=_limit(s.work.duration_s)))
                   for s in world.samples)  # fmt: skip
        world = replace(world, samples=tuple(samples))
    watched = _watched(world, patience_s, most_gpu_s)
    left = _left(watched)
    need = {s.id: s.job.gpus for s in world.samples}
    begun = {d.job_id for d in watched.decisions if d.action in (Action.START, Action.PACK)}
    held: dict[str, tuple[str, set[tuple[int, int]]]] = {}
    guests: dict[str, list[tuple[str, float, float]]] = {}  # holder -> (guest, since, charge)
    for d in watched.decisions:
        if d.action is Action.RESERVE:
            held[d.vc] = d.job_id, _gpus(d)
            continue
        if d.action not in (Action.START, Action.PACK) or d.vc not in held:
            continue
        holder, gpus = held[d.vc]
        if holder not in begun and left[holder] <= d.time:
            del held[d.vc]  # it ended while it was looked at
        elif d.job_id == holder:
            del held[d.vc]
            used = sum(
                need[guest] * (min(left[guest], d.time) - since)
                for guest, since, _ in guests.get(holder, ())
            )
            assert not limited or used <= most_gpu_s + 1e-3, "overtaken by more than stated"
        elif _gpus(d) & gpus:
            assert d.reason is Reason.BACKFILLED
            said = dict(d.evidence)
            within_s, window_s = float(said["ends_within_s"]), float(said["window_s"])
            assert said["reserved_for"] == holder
            assert within_s <= window_s
            mine = guests.setdefault(holder, [])
            mine.append((d.job_id, d.time, need[d.job_id] * within_s))
            charged = sum(
                need[guest] * (left[guest] - since)
                if left[guest] <= d.time
                else max(charge, need[guest] * (d.time - since))
                for guest, since, charge in mine
            )
            assert charged <= most_gpu_s + 1e-3, "let in above the budget"


def _limit(duration_s: float) -> float:
    return max(duration_s * 1.5, 1.0)


@_common
@given(
    world=worlds(),
    patience_s=st.sampled_from([0.0, 10.0, 300.0, 3000.0]),
    most_gpu_s=st.sampled_from([0.0, 1e7]),
    crowd=st.sampled_from([1.0, 2.0, 16.0]),
)
def test_every_late_job_starts_after_a_bounded_number_of_stays(
    world: World, patience_s: float, most_gpu_s: float, crowd: float
) -> None:
    """Also before it is first in line: with n - 1 older jobs not started in its virtual cluster
    when its bound passes, it has GPUs within n times the longest stay on GPUs there (and a look
    in the profiling partition), twice that where there are guests; and one such stay more for a
    younger job that was given the reservation while this one was looked at."""
    watched = _watched(world, patience_s, most_gpu_s, crowd)
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
        passes = _bounds(watched, vc, patience_s, crowd)
        for job in jobs:
            bound = passes[job]
            if over[job] <= bound:
                continue
            older = [j for j in jobs if submit[j] < submit[job] and over[j] > bound]
            turns = len(older) + 2
            most_s = turns * (stay * (2 if most_gpu_s else 1) + LOOK_S)
            assert over[job] <= bound + most_s + 1e-3, (vc, job)


def _bounds(watched: Watched, vc: str, patience_s: float, crowd: float) -> dict[str, float]:
    """When each job is late: after its patience, and once 1 / (asked for / GPUs there), never more
    than 1, has summed to `patience_s / crowd` over its wait."""
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
        need_s, now = patience_s / crowd, at
        for until, factor in zip([*times[1:], inf], slower, strict=True):
            if until <= at:
                continue
            if need_s <= (until - now) / factor:
                break
            need_s, now = need_s - (until - now) / factor, until
        bounds[job] = max(at + patience_s, now + need_s * factor)
    return bounds


def test_a_guest_runs_where_a_wide_job_waits_and_not_when_it_would_delay_it() -> None:
    long = a_job("long", gpus=8, for_=50 * HOUR)
    other = a_job("other", gpus=8, for_=2 * HOUR)
    wide = a_job("wide", gpus=16, for_=HOUR, at=1.0)
    short = a_job("short", gpus=4, for_=HOUR, at=10 * HOUR)
    slow = a_job("slow", gpus=4, for_=60 * HOUR, at=10 * HOUR)
    jobs = [long, other, wide, short, slow]
    played = play(Pellucid(patience_s=HOUR, overtake_gpu_s=1e6), cluster_of(nodes=2), *jobs)
    (began,) = played.of("short", Action.START)
    assert (began.reason, began.time) == (Reason.BACKFILLED, 10 * HOUR)
    assert dict(began.evidence)["reserved_for"] == "wide"
    waits = played.of("slow", Action.WAIT)[0]
    assert waits.reason is Reason.RESERVED_FOR_STARVING_JOB
    assert waits.blocker is None  # without "wide" a guest who came later could have its GPUs
    assert played.result("wide").start_time == 50 * HOUR
    none = play(Pellucid(patience_s=HOUR), cluster_of(nodes=2), *jobs)
    assert none.result("short").start_time == 51 * HOUR


def test_head_room_is_kept_for_short_jobs() -> None:
    jobs = [
        a_job("a", gpus=4, for_=20 * HOUR),
        a_job("b", gpus=4, for_=20 * HOUR, at=1.0),
        a_job("c", gpus=4, for_=60.0, at=2.0),
    ]
    full = play(Pellucid(), cluster_of(nodes=1), *jobs)
    kept = play(Pellucid(headroom=0.75), cluster_of(nodes=1), *jobs)
    assert full.result("b").queue_s == 0
    assert full.result("c").queue_s > 0
    assert kept.of("b", Action.WAIT)[0].reason is Reason.KEPT_FREE
    assert kept.result("c").queue_s == 0
    assert kept.result("b").queue_s > 0


def test_head_room_never_shuts_out_a_job_past_its_bound() -> None:
    jobs = [a_job("a", gpus=4, for_=20 * HOUR), a_job("b", gpus=4, for_=20 * HOUR, at=1.0)]
    kept = play(Pellucid(headroom=0.75, patience_s=2 * HOUR), cluster_of(nodes=1), *jobs)
    assert kept.result("b").queue_s == pytest.approx(2 * HOUR)


@pytest.mark.parametrize(
    "odd",
    [
        {"order": "best"},
        {"headroom": 0.0},
        {"backfill_quantile": 0.2},
        {"overtake_gpu_s": -1},
        {"crowd": 0.5},
    ],
)
def test_odd_parameters_are_refused(odd: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(odd))):
        Pellucid(**odd)  # type: ignore[arg-type]
