"""FIFO, AlloX and Gandiva's packing."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from scheduler.peers.gavel.heuristics import (
    FAIR_PAIR,
    allox,
    equal_shares,
    first_come,
    introspected,
    packed_first_come,
)
from scheduler.peers.gavel.problem import Floats, Problem
from tests.scheduler.peers.gavel.problems import a_problem

NOBODY = np.full(4, -1)


def test_first_come_takes_the_fastest_type_with_room_and_stops_at_the_first_that_does_not_fit() -> (
    None
):
    rates = [[3, 2], [3, 2], [3, 2], [3, 2]]
    problem = Problem.of(rates, [1, 2], [1, 1, 2, 1])
    assert first_come(problem).tolist() == [0, 1, -1, -1]
    assert first_come(Problem.of(rates, [1, 2], [1, 2, 1, 1])).tolist() == [0, 1, -1, -1]


def test_as_published_a_job_may_take_gpus_it_cannot_run_on() -> None:
    problem = Problem.of([[3, 0], [3, 0], [3, 2]], [1, 2])
    assert first_come(problem).tolist() == [0, -1, -1]
    assert first_come(problem, anywhere=True).tolist() == [0, 1, 1]


def test_the_head_of_the_line_joins_whom_it_suits_best() -> None:
    speeds = np.array([[[0.5, 0.8, 0.9], [0.8, 0.5, 0.4], [0.9, 0.4, 0.5]]])
    problem = Problem.of([[1.0], [1.0], [1.0]], [2], speeds=speeds)
    kinds = np.array([0, 0, -1])
    assert packed_first_come(problem, kinds) == [(0, 2)]
    slow = Problem.of([[1.0], [1.0], [1.0]], [2], speeds=speeds * 0.8)
    assert packed_first_come(slow, kinds) == []


def sum_of_jct(
    problem: Problem, remaining: Floats, lines: list[list[int]], types: list[int]
) -> float:
    total = 0.0
    for line, kind in zip(lines, types, strict=True):
        now = 0.0
        for job in line:
            now += remaining[job] / problem.throughput[job, kind]
            total += now
    return total


@pytest.mark.parametrize("seed", range(4))
def test_allox_starts_what_the_best_of_all_schedules_starts(seed: int) -> None:
    problem = a_problem(4, seed, gpus=(1, 1))
    remaining = np.random.default_rng(seed).uniform(10, 100, 4)
    best, starts = np.inf, set()
    for order, split in product(permutations(range(4)), range(5)):
        lines = [list(order[:split]), list(order[split:])]
        jct = sum_of_jct(problem, remaining, lines, [0, 1])
        if jct < best - 1e-9:
            best, starts = jct, {(line[0], kind) for kind, line in enumerate(lines) if line}
    kinds = allox(problem, remaining, NOBODY)
    assert {(job, kind) for job, kind in enumerate(kinds) if kind >= 0} == starts


def test_allox_leaves_running_jobs_and_gangs_alone() -> None:
    problem = Problem.of([[2, 1], [2, 1], [2, 1], [2, 0]], [1, 1], [1, 2, 1, 1])
    held = np.array([0, -1, -1, -1])
    assert allox(problem, np.ones(4), held).tolist() == [0, -1, 1, -1]


def test_gandiva_pairs_only_when_gpus_are_short_and_parts_bad_pairs() -> None:
    rng = np.random.default_rng(0)
    roomy = a_problem(6, gpus=(3, 3), pairs=True)
    assert introspected(roomy, [(0, 1)], rng) == []
    problem = a_problem(12, 3, gpus=(2, 2), gangs=True, pairs=True)
    pairs = introspected(problem, [], rng)
    assert len({job for pair in pairs for job in pair}) == 2 * len(pairs)
    assert all(problem.gpus[a] == problem.gpus[b] for a, b in pairs)
    sums = {
        (a, b): np.mean([problem.speed(k, a, b) + problem.speed(k, b, a) for k in range(2)])
        for a, b in pairs
    }
    again = introspected(problem, pairs, rng)
    assert {pair for pair, both in sums.items() if both >= FAIR_PAIR} <= set(again)


def test_equal_shares_fit_the_cluster() -> None:
    problem = a_problem(12, 3, gpus=(2, 2), gangs=True, pairs=True)
    rows = equal_shares(problem, introspected(problem, [], np.random.default_rng(0)))
    used = sum(problem.gpus[a] * share for a, _, share in rows)
    assert (used <= problem.capacity + 1e-9).all()
    assert all(share.sum() <= 1 + 1e-9 for _, _, share in rows)
