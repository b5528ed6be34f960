"""The partial allocation mechanism: the geometric mean, and that lying does not pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.peers.gavel.problem import Problem
from scheduler.peers.gavel.strategyproof import geometric_mean, partial_allocation
from tests.scheduler.peers.gavel.problems import a_problem


def rates(problem: Problem, share: np.ndarray) -> np.ndarray:
    return np.asarray((share * problem.throughput).sum(axis=1))


def test_the_geometric_mean_is_largest() -> None:
    problem = a_problem(5, 2, gpus=(1, 1, 1))
    even = np.full(5, 0.2)
    share, _ = geometric_mean(problem, even, [np.full((5, 3), 0.1)])
    best = np.log(rates(problem, share)).mean()
    rng = np.random.default_rng(0)
    x = rng.dirichlet([0.5] * 3, (20_000, 5)) * rng.uniform(0.3, 1, (20_000, 5, 1))
    x *= np.minimum(1, 1 / x.sum(axis=1, keepdims=True))
    found = np.log(np.maximum((x * problem.throughput).sum(axis=2), 1e-9)).mean(axis=1).max()
    assert found <= best + 1e-3
    assert (share.sum(axis=1) <= 1 + 1e-6).all()
    assert (share.sum(axis=0) <= 1 + 1e-6).all()


def test_two_jobs_alike_keep_half_each_of_one_gpu() -> None:
    share, kept = partial_allocation(Problem.of([[1.0], [1.0]], [1]))
    # alone either would have all: each keeps half of its half
    assert kept == pytest.approx([0.5, 0.5], rel=1e-3)
    assert share[:, 0] == pytest.approx([0.25, 0.25], rel=1e-2)


def test_jobs_in_nobodys_way_keep_all() -> None:
    share, kept = partial_allocation(Problem.of([[1.0], [2.0]], [2]))
    assert kept == pytest.approx([1, 1], rel=1e-3)
    assert share[:, 0] == pytest.approx([1, 1], rel=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_lying_does_not_pay(seed: int) -> None:
    problem = a_problem(4, seed, gpus=(1, 1))
    honest, kept = partial_allocation(problem)
    assert (kept >= 1 / np.e - 1e-3).all()
    rng = np.random.default_rng(seed)
    for liar in range(4):
        truth = problem.throughput[liar]
        for _ in range(3):
            told = problem.throughput.copy()
            told[liar] = truth * rng.uniform(0.2, 5, 2)
            share, _ = partial_allocation(replace(problem, throughput=told))
            assert share[liar] @ truth <= (honest[liar] @ truth) * 1.01
