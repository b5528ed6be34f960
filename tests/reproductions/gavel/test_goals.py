"""Policies as goals: published optima, and what each promises, checked another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from reproductions.gavel.goals import (
    Entity,
    Within,
    finish_time_fairness,
    least_attained_service,
    refined,
    water_filling,
)
from reproductions.gavel.heuristics import FAIR_PAIR, equal_shares, introspected
from reproductions.gavel.problem import Problem
from tests.reproductions.gavel.problems import a_problem, problems
from tests.reproductions.gavel.test_program import GANGS, THREE, assert_feasible

STEPS = np.array([1000.0, 2000.0, 3000.0])
FEW = settings(max_examples=15)


@pytest.mark.parametrize(("problem", "rho"), [(THREE, 0.916667), (GANGS, 0.799589)])
def test_finish_time_fairness_at_age_0(problem: Problem, rho: float) -> None:
    found, best = finish_time_fairness(problem, STEPS, np.zeros(3), STEPS / problem.isolated)
    assert found == pytest.approx(rho, abs=1e-6)
    ratios = (STEPS / best.throughput) / (STEPS / problem.isolated)
    assert ratios.max() == pytest.approx(rho, rel=1e-5)


@FEW
@given(problems)
def test_finish_time_fairness_is_what_its_allocation_gives(problem: Problem) -> None:
    rng = np.random.default_rng(0)
    steps, age = rng.lognormal(6, 1, problem.jobs), rng.uniform(0, 500, problem.jobs)
    expected = steps / problem.isolated + rng.uniform(0, 500, problem.jobs)
    rho, best = finish_time_fairness(problem, steps, age, expected)
    assert_feasible(problem, best)
    ratios = (age + steps / best.throughput) / expected
    assert ratios.max() == pytest.approx(rho, rel=1e-4)


def can_rise(problem: Problem, level: np.ndarray, job: int) -> bool:
    """Whether a job can have more than its level while nobody has less: one program per job."""
    n, m = problem.throughput.shape
    rows, upper = [], []
    for i in range(n):
        row = np.zeros((n, m))
        row[i] = -problem.throughput[i] / problem.proportional[i]
        rows.append(row.ravel())
        upper.append(-level[i] * (1 - 1e-7))
        rows.append(np.repeat(np.eye(n)[i], m))
        upper.append(1.0)
    for j in range(m):
        row = np.zeros((n, m))
        row[:, j] = problem.gpus
        rows.append(row.ravel())
        upper.append(float(problem.capacity[j]))
    aim = np.zeros((n, m))
    aim[job] = problem.throughput[job] / problem.proportional[job]
    found = linprog(-aim.ravel(), A_ub=np.array(rows), b_ub=upper)
    return bool(-found.fun > level[job] * (1 + 1e-4) + 1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_when_the_water_stands_nobody_can_rise(seed: int) -> None:
    problem = a_problem(7, seed, gpus=(4, 1, 5), gangs=seed % 2 > 0, weights=True)
    level, best = water_filling(problem)
    assert_feasible(problem, best)
    share = best.throughput / problem.proportional
    assert share == pytest.approx(level, rel=1e-5)
    fair = refined(problem, least_attained_service(problem)).level
    least = (level * problem.gpus / problem.weights).min()
    assert least == pytest.approx(fair, rel=1e-6)
    assert not [job for job in range(7) if can_rise(problem, level, job)]


def test_entities_share_by_weight_and_each_in_its_own_way() -> None:
    problem = Problem.of(np.ones((6, 1)), [3])
    fair = Entity(np.array([0, 1, 2]), weight=1.0)
    first = Entity(np.array([3, 4, 5]), weight=2.0, within=Within.FIFO)
    level, _ = water_filling(problem, [fair, first])
    # until a job has all the time there is, entities rise 1 : 2; then the next in line takes over
    assert level[:3] == pytest.approx([1 / 3] * 3, rel=1e-6)
    assert level[3:] == pytest.approx([1, 1, 0], abs=1e-6)


def test_what_an_entity_cannot_use_goes_to_the_others() -> None:
    problem = Problem.of(np.ones((3, 1)), [2])
    alone, two = Entity(np.array([0]), weight=9.0), Entity(np.array([1, 2]))
    level, _ = water_filling(problem, [alone, two])
    assert level == pytest.approx([1, 0.5, 0.5])


# --- what has no program --------------------------------------------------------------------------


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
