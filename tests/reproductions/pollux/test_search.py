"""The genetic search: what it may never propose, and that it finds what is there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.pollux.search import Ints, Problem, mutate, repair, search


def problem_of(jobs: int, nodes: int, seed: int = 0, *, fairness: float = -1.0) -> Problem:
    """Jobs that gain by GPUs less and less, and lose by being spread."""
    rng = np.random.default_rng(seed)
    most = rng.integers(1, 9, jobs).astype(np.int16)
    n, k = np.ogrid[: nodes + 1, :10]
    gain = np.where((k > 0) & (n > 0), k**0.8 * 0.9 ** np.maximum(n - 1, 0), 0.0)
    current = repair(
        rng.integers(0, 5, (1, jobs, nodes)).astype(np.int16), _shape(jobs, nodes, most), rng
    )[0]
    return Problem(
        np.repeat(gain[None], jobs, 0), rng.uniform(0.5, 1, jobs), most, current,
        np.full(nodes, 4, np.int16), fairness=fairness,
    )  # fmt: skip


def _shape(jobs: int, nodes: int, most: Ints) -> Problem:
    zeros = np.zeros((jobs, nodes), np.int16)
    return Problem(np.zeros((jobs, 1, 1)), np.ones(jobs), most, zeros, np.full(nodes, 4, np.int16))


def check(population: Ints, problem: Problem) -> None:
    assert (population >= 0).all()
    assert (population.sum(axis=1) <= problem.room).all(), "no more than a node has"
    assert (population.sum(axis=2) <= problem.most).all(), "no more than a job may have"
    spread = (population > 0) & ((population > 0).sum(axis=2, keepdims=True) > 1)
    assert (spread.sum(axis=1) <= 1).all(), "one job of several nodes on a node"


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 1000), st.booleans())
def test_every_individual_is_possible_and_the_best_comes_first(
    jobs: int, nodes: int, seed: int, utility: bool
) -> None:
    problem, rng = problem_of(jobs, nodes, seed), np.random.default_rng(seed)
    wild = rng.integers(0, 9, (20, jobs, nodes)).astype(np.int16)
    check(repair(wild, problem, rng), problem)
    mutated = mutate(repair(wild, problem, rng), problem, rng)
    check(repair(mutated, problem, rng), problem)
    found = search(problem, rng, individuals=20, generations=5, utility=utility)
    check(found, problem)
    value = problem.value(found)
    assert (np.diff(value) <= 0).all()
    assert value[0] >= problem.value(repair(problem.current[None], problem, rng))[0]


def test_it_finds_the_optimum_of_a_small_problem() -> None:
    problem = problem_of(2, 2, seed=3)
    cells = np.indices((5,) * 4).reshape(4, -1).T.reshape(-1, 2, 2).astype(np.int16)
    allowed = [
        c for c in cells if np.array_equal(repair(c[None], problem, np.random.default_rng(0))[0], c)
    ]
    best = problem.value(np.stack(allowed)).max()
    found = search(problem, np.random.default_rng(0), individuals=60, generations=30)
    assert problem.value(found)[0] == pytest.approx(best)


def test_fairness_decides_between_the_many_and_the_one() -> None:
    """Two jobs, one of which gains ten times as much: the sum serves it alone, -1 serves both."""
    speedup = np.zeros((2, 2, 3))
    speedup[:, 1, 1:] = [[1, 2], [10, 20]]
    problems = [
        Problem(
            speedup, np.ones(2), np.array([2, 2], np.int16), np.zeros((2, 1), np.int16),
            np.array([2], np.int16), fairness=p,
        )
        for p in (1.0, 0.0, -1.0)
    ]  # fmt: skip
    found = [
        search(p, np.random.default_rng(0), generations=10)[0].ravel().tolist() for p in problems
    ]
    assert found == [[0, 2], [1, 1], [1, 1]]


def test_a_restart_has_to_pay() -> None:
    speedup = np.zeros((1, 2, 5))
    speedup[0, 1] = [0, 1, 1.3, 1.4, 1.5]
    now = np.array([[1]], np.int16)
    for keep, gpus in ((1.0, 4), (0.5, 1)):
        problem = Problem(
            speedup, np.array([keep]), np.array([4], np.int16), now, np.array([4], np.int16)
        )
        assert search(problem, np.random.default_rng(0), generations=10)[0].sum() == gpus


def test_with_two_goals_what_is_kept_has_a_higher_utility() -> None:
    problem = problem_of(8, 6)
    most = [
        problem.utility(
            search(problem, np.random.default_rng(3), generations=10, utility=utility)
        ).max()
        for utility in (False, True)
    ]
    assert most[0] < most[1]
