"""The figures of a run, against examples worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from scheduler.policies import build
from scheduler.policies.fifo import Fifo
from scheduler.simulation.engine import JobResult, Outcome
from scheduler.simulation.results import (
    JOB_SCHEMA,
    NothingEnded,
    fairness_by_user,
    jct_by_vc,
    job_table,
    summarise,
)
from scheduler.testing.builders import (
    UserMeans,
    a_job,
    cluster_of,
    play,
)
from scheduler.testing.worlds import WatchedCore, World, a_cluster, watch, worlds


def a_result(
    job_id: str = "x",
    *,
    at: float = 0.0,
    start: float | None = 0.0,
    end: float | None = 10.0,
    for_: float = 10.0,
    gpus: int = 1,
    user: str = "user",
    vc: str = "vc",
    packed: int = 0,
) -> JobResult:
    """A job that ran from `start` to `end`."""
    job = a_job(job_id, at=at, gpus=gpus, user=user, vc=vc).job
    ran = end - start if start is not None and end is not None else 0.0
    return JobResult(job, for_, start, end, ran, packed=packed)


def an_outcome(*results: JobResult, busy: float = 0.0, packings: int = 0) -> Outcome:
    return Outcome(list(results), 42, packings, 0, busy)


def test_averages_delays_and_makespan() -> None:
    figures = summarise(
        an_outcome(
            a_result(at=0, start=0, end=100, for_=100),
            a_result(at=50, start=100, end=150, for_=50),
            a_result(at=60, start=150, end=160, for_=10, gpus=16),
            busy=400.0,
        ),
        8,
    )
    assert figures["jobs"] == figures["ended"] == 3
    assert figures["avg_jct_s"] == pytest.approx((100 + 100 + 100) / 3)
    assert figures["p50_jct_s"] == 100
    assert figures["avg_queue_s"] == pytest.approx((0 + 50 + 90) / 3)
    assert figures["max_queue_large_s"] == 90
    assert figures["makespan_s"] == 160
    assert figures["gpu_utilisation"] == pytest.approx(400 / (8 * 160))
    assert figures["decisions"] == 42
    assert figures["mean_slowdown_packed"] == 1.0
    assert figures["refused"] == figures["packed_jobs"] == figures["preemptions"] == 0


def test_percentiles_of_the_queueing_delay_are_interpolated() -> None:
    results = [a_result(at=0, start=i, end=i + 10) for i in range(1001)]
    figures = summarise(an_outcome(*results), 8)
    assert figures["p99_queue_s"] == pytest.approx(990)
    assert figures["p999_queue_s"] == pytest.approx(999)


def test_finish_time_fairness_is_summed_by_user() -> None:
    figures = summarise(
        an_outcome(
            a_result(user="ann", start=10, end=20, for_=10),  # JCT 20
            a_result(user="ann", start=0, end=10, for_=10),  # JCT 10: 30 of 20
            a_result(user="bob", start=0, end=40, for_=10),  # 40 of 10
        ),
        8,
    )
    assert figures["ftf_user_p50"] == pytest.approx((1.5 + 4.0) / 2)
    assert figures["ftf_user_p99"] == pytest.approx(1.5 + 0.99 * 2.5)


def test_slowdown_is_that_of_jobs_that_shared() -> None:
    figures = summarise(
        an_outcome(
            a_result(packed=1, end=15, for_=10),
            a_result(packed=2, end=10, for_=10),
            a_result(packed=0, end=99, for_=10),
            packings=2,
        ),
        8,
    )
    assert figures["mean_slowdown_packed"] == pytest.approx(1.25)
    assert figures["packed_jobs"] == 2


def test_jobs_that_never_ended_are_counted_and_not_averaged() -> None:
    refused = a_result(start=None, end=None)
    refused.refused = True
    figures = summarise(an_outcome(a_result(end=10), refused), 8)
    assert (figures["jobs"], figures["ended"], figures["refused"]) == (2, 1, 1)
    assert figures["avg_jct_s"] == 10
    with pytest.raises(NothingEnded, match=r"none of 1 jobs ended; 1 were refused"):
        summarise(an_outcome(refused), 8)


def test_jobs_of_no_duration_divide_by_nothing() -> None:
    figures = summarise(an_outcome(a_result(end=0.0, for_=0.0, packed=1)), 8)
    assert figures["gpu_utilisation"] == 0.0
    assert figures["ftf_user_p99"] is None
    assert all(math.isfinite(value) for value in figures.values() if value is not None)


def test_what_means_nothing_in_a_world_is_null() -> None:
    """Fairness between users where there are no two, the longest wait of wide jobs without any."""
    alone = summarise(an_outcome(a_result(user="ann", end=10), a_result(user="ann", end=20)), 8)
    assert alone["ftf_user_p50"] is alone["ftf_user_p99"] is None
    figures = summarise(an_outcome(a_result(user="", end=10)), 8)
    assert figures["ftf_user_p50"] is figures["ftf_user_p99"] is None
    assert figures["max_queue_large_s"] is None
    assert fairness_by_user(an_outcome(a_result(user="", end=10)).jobs) == {}


def test_mean_jct_by_virtual_cluster() -> None:
    results = [a_result(vc="a", end=10), a_result(vc="a", end=30), a_result(vc="b", end=5)]
    assert jct_by_vc([*results, a_result(vc="c", end=None)]) == {"a": 20.0, "b": 5.0}


def test_the_jobs_table_holds_a_row_for_every_job() -> None:
    played = play(
        Fifo(),
        cluster_of(),
        a_job("a", gpus=8, for_=10.0006, at=1.001, user="ann"),
        a_job("no", gpus=99, at=2.0),
        estimator=UserMeans(),
    )
    table = job_table(played.outcome.jobs)
    assert table.schema.equals(JOB_SCHEMA)
    ended, refused = table.to_pylist()
    assert (ended["job_id"], ended["user"], ended["gpus"]) == ("a", "ann", 8)
    assert ended["duration_s"] == 10.0006
    assert [ended[n].timestamp() for n in ("submit_time", "start_time", "end_time")] == [
        1.001,
        1.001,
        11.002,
    ]
    assert ended["jct_s"] == pytest.approx(10.0006)
    assert refused["refused"] is True
    assert [refused[n] for n in ("start_time", "end_time", "jct_s", "queue_s")] == [None] * 4


@settings(max_examples=40)
@given(world=worlds())
def test_figures_of_any_run_are_sane(world: World) -> None:
    policy = build("fifo-skip")
    outcome = watch(world, WatchedCore(a_cluster(world, profiles=False), policy)).outcome
    if all(result.refused for result in outcome.jobs):
        return
    figures = summarise(outcome, world.spec.gpus)
    assert figures["ended"] + figures["refused"] == figures["jobs"]
    assert 0 <= figures["gpu_utilisation"] <= 1 + 1e-9
    assert figures["avg_jct_s"] >= figures["avg_queue_s"] - 1e-6
    work = sum(r.duration_s * r.job.gpus for r in outcome.jobs if not r.refused)
    assert outcome.busy_gpu_s == pytest.approx(work, rel=1e-6, abs=1e-2)
    assert job_table(outcome.jobs).num_rows == len(outcome.jobs)
