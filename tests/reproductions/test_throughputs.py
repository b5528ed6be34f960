"""Throughput tables, and jobs that get on at their rates."""

from __future__ import annotations

from reproductions.allocation.allocation import Allocation
from reproductions.allocation.throughputs import (
    Kind,
    StepWork,
    TableGroundTruth,
    Terms,
    ThroughputTable,
)
from tests.reproductions.builders import Scripted, a_job, nodes_of, play

A, B = Kind("a", 1), Kind("b", 1)
TABLE = ThroughputTable(
    {"fast": {A: 4.0, B: 2.0}, "slow": {A: 1.0, B: 0.0}},
    {"fast": {(A, B): (3.0, 1.0), (A, A): (2.0, 2.0)}, "slow": {}},
)
NODES = nodes_of(2, 2, types=["fast", "slow"])


def ground_truth(*, lease_s: float | None = None, **work: tuple[Kind, int]) -> TableGroundTruth:
    jobs = {job: StepWork(kind, steps, Terms()) for job, (kind, steps) in work.items()}
    return TableGroundTruth(jobs, TABLE, NODES, lease_s=lease_s)


FAST, SLOW = Allocation((0,), (1,)), Allocation((1,), (1,))


def test_a_table_tells_rates_and_pair_speeds() -> None:
    assert TABLE.rates("a", 1) == {"fast": 4.0, "slow": 1.0}
    assert TABLE.rates("a", 2) == {"fast": 0.0, "slow": 0.0}
    assert TABLE.kinds == [A, B]
    row = TABLE.of(A)
    assert (row.kind, row.alone("fast"), row.alone("nowhere")) == (A, 4.0, 0.0)
    assert row.beside("fast", B) == 0.75
    assert TABLE.of(B).beside("fast", A) == 0.5
    assert row.beside("slow", B) == 0.0


def test_another_type_is_another_rate() -> None:
    policy = Scripted({"a": FAST}, {"a": SLOW})
    played = play(policy, NODES, [a_job("a")], ground_truth(a=(A, 300)))
    assert played.result("a").end_time == 60 + (300 - 240)
    assert played.result("a").duration_s == 75  # on the fastest


def test_a_pair_runs_at_its_measured_speeds() -> None:
    pair = {"a": Allocation((0,), (1,), partner="b"), "b": Allocation((0,), (1,), partner="a")}
    policy = Scripted(pair, pair, {"a": FAST})
    played = play(policy, NODES, [a_job("a"), a_job("b")], ground_truth(a=(A, 600), b=(B, 100)))
    assert played.result("b").end_time == 100
    assert played.result("a").end_time == 100 + (600 - 300) / 4
    assert played.outcome.busy_gpu_s == 175


def test_a_lease_is_whole_steps_and_a_round_ends_with_the_last() -> None:
    policy = Scripted({"a": FAST, "b": SLOW}, round_s=0.0)
    played = play(
        policy, NODES, [a_job("a"), a_job("b")], ground_truth(lease_s=10.3, a=(A, 90), b=(A, 25))
    )
    # a: 41 steps in 10.25 s, b: 10 steps in 10 s; everybody waits for a
    assert policy.times == [0, 10.25, 20.5]
    assert played.result("a").end_time == 20.5 + (90 - 82) / 4
    assert played.result("b").end_time == 20.5 + 5
