"""Parts of the policy `pellucid`, each alone."""

from __future__ import annotations

import random
from math import exp
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec, Run
from scheduler.core.core import Core
from scheduler.core.durations import DurationDistribution
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.fifo import Fifo
from scheduler.policies.pellucid.backfill import QUANTILE, Backfill
from scheduler.policies.pellucid.demand import Demand
from scheduler.policies.pellucid.pairing import gain_s
from scheduler.policies.pellucid.reservation import PutOff, StarvationBound, choose, exchange
from scheduler.testing.builders import VC, Desk, a_job, cluster_of, pellucid

# --- outlook --------------------------------------------------------------------------------------


def test_what_it_expects_comes_true() -> None:
    """The mean of what is left, on jobs it has not learned from, under a heavy tail."""
    rng = random.Random(0)
    distribution, jobs = (
        DurationDistribution(),
        [600.0 * exp(rng.gauss(0, 1.5)) for _ in range(8000)],
    )
    for duration in jobs[:4000]:
        distribution.learn(600.0, duration)
    for elapsed in (0.0, 300.0, 3000.0):
        left = [duration - elapsed for duration in jobs[4000:] if duration > elapsed]
        assert distribution.expected_s(600.0, elapsed) == pytest.approx(
            sum(left) / len(left), rel=0.35
        )


# --- pairing --------------------------------------------------------------------------------------


@given(
    newcomer=st.floats(1, 1e6),
    partner=st.floats(1, 1e6),
    speeds=st.tuples(st.floats(0.05, 1.5), st.floats(0.05, 1.5)),
)
def test_the_gain_is_what_two_timetables_differ_by(
    newcomer: float, partner: float, speeds: tuple[float, float]
) -> None:
    """Against both timetables written out: one after the other, and side by side."""
    a, b = (min(speed, 1.0) for speed in speeds)
    shared = min(newcomer / a, partner / b)
    end_newcomer = shared + newcomer - a * shared
    end_partner = shared + partner - b * shared
    after = partner + (partner + newcomer)  # the partner ends, then the newcomer
    assert gain_s(newcomer, partner, speeds) == pytest.approx(
        after - end_newcomer - end_partner, abs=1e-6 * (newcomer + partner)
    )


# --- demand ---------------------------------------------------------------------------------------


@given(
    jobs=st.lists(st.tuples(st.integers(1, 16), st.booleans(), st.booleans()), max_size=20),
    pooled=st.booleans(),
)
def test_demand_is_what_those_ask_for_that_have_not_ended(
    jobs: list[tuple[int, bool, bool]], pooled: bool
) -> None:
    demand, asked = Demand(pooled), 0
    for i, (gpus, here, ends) in enumerate(jobs):
        job = a_job(f"j{i}", gpus=gpus, vc=VC if here else "other").job
        queued = QueuedJob(job, i)
        demand.joins(queued, 0.0)
        demand.joins(queued, 0.0)  # it comes back from profiling
        if ends:
            demand.over(job.job_id, 0.0)
            demand.over(job.job_id, 0.0)
        elif here or pooled:
            asked += gpus
    turn = Turn(Core(Cluster(ClusterSpec({VC: 2, "other": 1})), Fifo()), VC, 0.0)
    demand.begin(turn)
    assert demand.share(turn) == asked / (24 if pooled else 16)


def test_the_fair_clock_shows_what_an_even_share_would_have_done() -> None:
    demand, turn = Demand(), Turn(Core(Cluster(ClusterSpec({VC: 2})), Fifo()), VC, 0.0)
    for i, gpus in enumerate((8, 8, 16)):
        demand.joins(QueuedJob(a_job(f"j{i}", gpus=gpus, vc=VC).job, i), 0.0)
    demand.begin(turn)
    assert demand.clock(VC, 100.0) == 50.0  # 32 are asked for, 16 are there
    demand.over("j2", 100.0)
    assert demand.clock(VC, 200.0) == 150.0
    demand.over("j1", 200.0)
    assert demand.clock(VC, 300.0) == 250.0  # never faster than the wall's
    demand.joins(QueuedJob(a_job("late", vc=VC, at=10.0).job, 9), 300.0)
    assert demand.clock_at_arrival("late") == -40.0  # what it waited elsewhere is all counted


def free(queued: QueuedJob) -> float:
    """It costs the others nothing that this job goes first."""
    return 0.0


def four_times_what_is_there(
    max_wait_s: float, overload: float, now: float
) -> tuple[Demand, StarvationBound, list[QueuedJob]]:
    """Four jobs, submitted at 0, that ask for all of a cluster each; known from `now` on."""
    demand, turn = Demand(), Turn(Core(Cluster(ClusterSpec({VC: 2})), Fifo()), VC, now)
    bound = StarvationBound(max_wait_s, overload, demand)
    jobs = [QueuedJob(a_job(f"j{i}", gpus=16, vc=VC).job, i) for i in range(4)]
    for queued in jobs:
        demand.joins(queued, now)
        bound.expect(queued)
    demand.begin(turn)
    return demand, bound, jobs


def test_a_wait_before_the_clock_began_counts_at_the_crowd_it_meets() -> None:
    """A core built anew, from what another knew."""
    _, bound, jobs = four_times_what_is_there(200.0, 1.0, now=400.0)
    assert not bound.due(VC, 400.0, free)
    assert bound.left_s(jobs[0], 400.0) == 400.0  # 400 s waited are 100 of an even share's


def test_a_bound_that_another_cluster_passes_by_is_not_forgotten() -> None:
    demand, turn = Demand(), Turn(Core(Cluster(ClusterSpec({VC: 2})), Fifo()), VC, 0.0)
    bound, queued = (
        StarvationBound(100.0, 1.0, demand),
        QueuedJob(a_job("j", gpus=32, vc=VC).job, 0),
    )
    demand.joins(queued, 0.0)
    demand.begin(turn)
    bound.expect(queued)
    assert not bound.due(VC, 150.0, free)
    assert bound.next(200.5) == pytest.approx(201.0)  # it passed half a second ago, unseen


def test_the_bound_is_longer_where_more_is_asked_for() -> None:
    demand, bound, jobs = four_times_what_is_there(1000.0, 2.0, now=0.0)
    assert bound.left_s(jobs[0], 0.0) == 2000.0  # four times what is there: twice the bound
    assert bound.next(0.0) == 1000.0
    assert not bound.due(VC, 1000.0, free)
    assert bound.next(1000.0) == pytest.approx(2000.0, abs=1.0)
    demand.over("j3", 1000.0)
    demand.over("j2", 1000.0)
    assert bound.left_s(jobs[0], 1000.0) == 500.0
    assert not bound.due(VC, 1499.0, free)
    assert bound.due(VC, 1500.0, free) == jobs[:2]
    assert bound.goes_first(jobs[0])


# --- reservation ----------------------------------------------------------------------------------


@given(
    busy=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    gpus=st.integers(1, 48),
    ends=st.lists(st.floats(1, 1e5), min_size=6, max_size=6),
)
def test_a_reservation_is_a_gang_that_is_ready_soonest(
    busy: list[int], gpus: int, ends: list[float]
) -> None:
    cluster = Cluster(ClusterSpec({VC: len(busy)}))
    pool = cluster.pools[VC]
    for node, taken in enumerate(busy):
        if taken:
            sample = a_job(f"r{node}", gpus=taken)
            cluster.start(sample.job, VC, [(node, (1 << taken) - 1)], 0.0)
    runs = list(cluster.runs.values())
    held = choose(pool, gpus, runs, lambda run: ends[run.nodes[0]])
    if held is None:
        assert gpus > len(busy) * 8
        return
    pool.reserve(held)
    cluster.validate()
    assert sum(mask.bit_count() for _, mask in held) >= gpus
    assert len(held) == -(-gpus // 8)

    def ready(node: int) -> float:
        free = 8 - busy[node]
        need = gpus if gpus <= 8 else 8
        return 0.0 if free >= need else ends[node]

    worst = max(ready(node) for node, _ in held)
    assert worst == sorted(ready(node) for node in range(len(busy)))[len(held) - 1]
    pool.unreserve(held)
    cluster.validate()


def test_a_busy_node_is_exchanged_for_an_idle_one_only() -> None:
    cluster = Cluster(ClusterSpec({VC: 3}))
    pool = cluster.pools[VC]
    for node in (0, 1):
        cluster.start(a_job(f"r{node}", gpus=8).job, VC, [(node, 255)], 0.0)
    assert exchange(pool, [(0, 255), (1, 255)]) == [(2, 255), (1, 255)]
    cluster.start(a_job("r2", gpus=1).job, VC, [(2, 1)], 0.0)
    assert exchange(pool, [(0, 255), (1, 255)]) == [(0, 255), (1, 255)]


def test_a_job_past_its_bound_goes_first_once_its_price_is_little_beside_its_wait() -> None:
    """And at any price once it has waited `backfill` times as long again."""
    demand, turn = Demand(), Turn(Core(Cluster(ClusterSpec({VC: 2})), Fifo()), VC, 0.0)
    bound = StarvationBound(100.0, 1.0, demand, backfill=1.0, price=0.1)
    dear, cheap = (QueuedJob(a_job(name, vc=VC).job, i) for i, name in enumerate("dc"))
    for queued in (dear, cheap):
        demand.joins(queued, 0.0)
        bound.expect(queued)
    demand.begin(turn)
    costs = {"d": 12.0, "c": 10.0}

    def costs_s(queued: QueuedJob) -> float:
        return costs[queued.job.job_id]

    assert bound.due(VC, 100.0, costs_s) == [cheap], "10 s are a tenth of 100 s"
    assert bound.put_off(dear) == PutOff(1.25, 12.0, 100.0)
    assert (bound.left_s(dear, 100.0), bound.left_s(dear, 100.0, latest=True)) == (25.0, 100.0)
    assert bound.due(VC, 125.0, costs_s) == [dear], "12 s are less than a tenth of 125 s"
    assert bound.put_off(dear) is None
    assert bound.goes_first(dear)

    bound.over("d")
    costs["d"] = 1e9
    bound.expect(dear)
    assert not bound.due(VC, 199.0, costs_s)
    assert bound.due(VC, 200.0, costs_s) == [dear]


# --- backfill -------------------------------------------------------------------------------------


def a_backfill(left_s: float) -> Backfill:
    """One GPU is kept, which a run will hold for `left_s` more."""
    desk = Desk(pellucid(), cluster_of(gpus=2))
    desk.submit(a_job("there", gpus=2))
    runs: list[Run] = list(desk.core.cluster.runs.values())
    turn: Any = None  # asked for nothing before a job starts
    return Backfill(turn, [(0, 1)], runs, lambda run: left_s, DurationDistribution(weight=1))


def estimated(estimate_s: float, limit_s: float | None = None) -> QueuedJob:
    found = QueuedJob(Job("j", 0.0, 1, "user", "vc", time_limit_s=limit_s), 0)
    found.estimate_s = estimate_s
    return found


@pytest.mark.parametrize(
    ("estimate_s", "limit_s", "admitted"),
    [
        (500.0, None, True),
        (5000.0, None, False),
        (5000.0, 900.0, True),  # its limit ends it in time, whatever is predicted
        (5000.0, 1100.0, False),
        (500.0, 1100.0, True),
        (5000.0, 0.0, False),  # 0: no limit
    ],
)
def test_who_is_gone_in_time_is_admitted(
    estimate_s: float, limit_s: float | None, admitted: bool
) -> None:
    assert a_backfill(1000.0).admits(estimated(estimate_s, limit_s)) is admitted


def test_a_level_of_many_predictions_is_that_of_each() -> None:
    distribution = DurationDistribution()
    for i in range(500):
        distribution.learn(float(i * i), float(i * 7 % 1000))
    at = distribution.quantile_at(QUANTILE)
    for predicted_s in (0.0, 59.0, 60.0, 61.0, 299.9, 1200.0, 5000.0, 43_200.0, 1e6):
        assert at(predicted_s) == distribution.quantile_s(predicted_s, QUANTILE)
    assert cast("float", at(100.0)) > 0
