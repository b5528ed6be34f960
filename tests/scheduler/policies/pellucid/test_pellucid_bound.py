"""What `pellucid` promises a job that waits, re-enacted from its decisions alone."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.decisions import Action
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.testing.builders import pellucid
from scheduler.testing.worlds import Watched, World, watch, worlds
from tests.scheduler.policies.pellucid import test_pellucid

HOUR = 3600.0
PROFILE_S = 200.0  # a stay in the profiling partition


class TestPellucidWithAShortBound(test_pellucid.TestPellucidProfilingWhileWaiting):
    """GPUs are kept for somebody most of the time."""

    max_wait_s = 300.0
    overload = 16.0

    def policy(self, world: World) -> Policy:
        return pellucid(
            TablePairPredictor(world.scores, lambda a, b: (0.95, 0.9)),
            cluster=world.spec,
            max_wait_s=self.max_wait_s,
            overload=self.overload,
            backfill=self.backfill,
        )


def _watched(world: World, max_wait_s: float, overload: float, backfill: float) -> Watched:
    contract = TestPellucidWithAShortBound()
    contract.max_wait_s, contract.overload = max_wait_s, overload
    contract.backfill = backfill
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
