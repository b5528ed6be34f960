"""Idle GPUs of other virtual clusters: what their owners can rely on.

That nobody borrows where someone waits holds in the random walk of `test_pellucid_walk.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Pool
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import DurationDistribution
from scheduler.core.estimates import TableEstimator
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.settings import Borrowing
from scheduler.testing.builders import a_job, cluster_of, pellucid, play, truth
from scheduler.testing.worlds import Watched, WatchedCore, World, a_cluster, watch, worlds

HOUR = 3600.0
_slow = settings(max_examples=50)


def borrowing(world: World, **terms: float) -> Watched:
    """A world without isolation, where predictions are true and known to be."""
    policy = pellucid(cluster=world.spec, borrowing=terms)
    policy.distribution = policy.pairing.distribution = DurationDistribution(weight=0)
    cluster = a_cluster(world, profiles=False)
    return watch(world, WatchedCore(cluster, policy, truth(world.samples)))


def homes(world: World) -> list[str]:
    return [vc for vc, n in world.spec.vcs.items() for _ in range(n)]


@_slow
@given(world=worlds(), lend_s=st.sampled_from([0.0, 1.0, 300.0, 3000.0]))
def test_an_owner_never_waits_longer_for_borrowers_than_the_bound(
    world: World, lend_s: float
) -> None:
    """From the decisions and ends alone: while a job waits, no borrower that held GPUs of its
    virtual cluster when it came is there for longer than `lend_s`, and none comes."""
    watched, home = borrowing(world, lend_s=lend_s), homes(world)
    vc_of = {s.id: s.job.vc for s in world.samples}
    ends = {r.job.job_id: r.end_time or 0.0 for r in watched.outcome.jobs}
    lent: dict[str, list[tuple[float, float]]] = defaultdict(list)
    joined: dict[str, float] = {}
    waits: list[tuple[str, float, float]] = []
    for d in watched.decisions:
        if d.action is Action.ENQUEUE:
            joined[d.job_id] = d.time
        elif d.action is Action.START:
            waits.append((vc_of[d.job_id], joined[d.job_id], d.time))
            for vc in {home[node] for node in d.nodes} - {vc_of[d.job_id]}:
                lent[vc].append((d.time, ends[d.job_id]))
    for vc, since, until in waits:
        for start, end in lent[vc]:
            if max(since, start) < min(until, end):
                assert start <= since
                assert min(until, end) - since <= lend_s + 1e-3


@_slow
@given(world=worlds(), kept=st.integers(1, 3))
def test_a_reserve_of_idle_nodes_is_kept(world: World, kept: int) -> None:
    """Re-enacted from the decisions: no borrower starts that leaves a lender fewer idle nodes."""
    home, busy = homes(world), defaultdict[int, int](int)
    vc_of = {s.id: s.job.vc for s in world.samples}
    places: dict[str, Decision] = {}
    for d in borrowing(world, reserve_nodes=kept).core.timeline:
        if isinstance(d, str):
            for node, mask in zip(places[d].nodes, places.pop(d).gpus, strict=True):
                busy[node] &= ~mask
        elif d.action is Action.START:
            before = {node for node in range(len(home)) if not busy[node]}
            places[d.job_id] = d
            for node, mask in zip(d.nodes, d.gpus, strict=True):
                busy[node] |= mask
            for node in d.nodes:
                if home[node] != vc_of[d.job_id] and node in before:
                    idle = [n for n, vc in enumerate(home) if vc == home[node] and not busy[n]]
                    assert len(idle) >= kept


def at_ten(*, time_limit_s: float | None = None, **terms: float) -> float:
    """When a job of 10 h starts whose own node is busy for 5 h, beside two idle ones."""
    own = a_job("own", gpus=8, for_=5 * HOUR, vc="one")
    job = a_job("job", gpus=8, for_=10 * HOUR, vc="one", at=1.0)
    job = replace(job, job=replace(job.job, time_limit_s=time_limit_s))
    policy = pellucid(borrowing=terms)
    policy.distribution = policy.pairing.distribution = DurationDistribution(weight=0)
    played = play(policy, cluster_of(nodes={"one": 1, "two": 2}), own, job)
    return played.result("job").start_time or 0.0


def test_a_job_borrows_if_it_is_gone_in_time() -> None:
    assert at_ten() == 1.0
    assert at_ten(lend_s=11 * HOUR) == 1.0
    assert at_ten(lend_s=9 * HOUR) == 5 * HOUR
    assert at_ten(lend_s=9 * HOUR, time_limit_s=9 * HOUR) == 1.0, "it is stopped by then"
    assert at_ten(lend_s=9 * HOUR, time_limit_s=12 * HOUR) == 5 * HOUR
    assert at_ten(reserve_nodes=1) == 1.0
    assert at_ten(reserve_nodes=2) == 5 * HOUR


def test_a_quantile_that_is_not_known_to_be_short_is_not_lent_to() -> None:
    """Nothing has ended yet: the belief before that is wide."""
    own = a_job("own", gpus=8, for_=5 * HOUR, vc="one")
    job = a_job("job", gpus=8, for_=HOUR, vc="one", at=1.0)
    policy = pellucid(borrowing={"lend_s": 2 * HOUR})
    estimator = TableEstimator("given", {"own": 5 * HOUR, "job": HOUR})
    played = play(policy, cluster_of(nodes={"one": 1, "two": 2}), own, job, estimator=estimator)
    assert played.result("job").start_time == 5 * HOUR


def test_small_jobs_fill_nodes_that_are_in_use_before_the_reserve() -> None:
    own, lender = Pool("own", 8), Pool("lender", 8)
    for node in (1, 2):
        lender.add_node(node)
    lender.take([(2, 0b1111)])
    lending = Lending(Borrowing(reserve_nodes=1))
    assert lending.span(own, [lender], 2) == [(2, 0b110000)]
    assert lending.span(own, [lender], 5) is None
    assert Lending(Borrowing()).span(own, [lender], 5) == [(1, 0b11111)]
