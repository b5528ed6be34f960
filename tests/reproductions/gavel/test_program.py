"""The linear program: published optima, feasibility, certificates of optimality, invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from reproductions.gavel.goals import least_attained_service, makespan, refined
from reproductions.gavel.problem import NoGpuTypeHolds, Problem
from reproductions.gavel.program import Allocation, Goal, Infeasible, singles
from reproductions.gavel.sharing import every_pair, merged, optimum, split
from tests.reproductions.gavel.problems import a_problem, problems

THREE = Problem.of([[4, 1], [3, 1], [2, 1]], [1, 1])
GANGS = Problem.of([[10, 5, 1], [8, 7, 1], [6, 2, 1]], [2, 1, 1], [2, 1, 1])
FEW = settings(max_examples=25)


def las(problem: Problem) -> Allocation:
    return optimum(problem, least_attained_service(problem))


def test_published_optima() -> None:
    best = las(THREE)
    assert best.level == pytest.approx(0.727273, abs=1e-6)
    assert best.throughput == pytest.approx([1.8182, 1.4545, 1.0909], abs=1e-4)
    expected = [[0.4545, 0], [0.4545, 0.0909], [0.0909, 0.9091]]
    assert best.by_type(2) == pytest.approx(np.array(expected), abs=1e-4)
    best = las(GANGS)
    assert best.level == pytest.approx(1.313295, abs=1e-6)
    assert best.throughput == pytest.approx([4.2682, 7.8798, 4.9249], abs=1e-4)


@pytest.mark.parametrize(("problem", "seconds"), [(THREE, 1750.0), (GANGS, 500.0)])
def test_makespan(problem: Problem, seconds: float) -> None:
    best = optimum(problem, makespan(problem, np.array([1000.0, 2000.0, 3000.0])))
    assert 1 / best.level == pytest.approx(seconds)


def test_a_degenerate_program_has_one_optimum_and_a_fixed_second_stage() -> None:
    problem = Problem.of([[2, 1], [1, 1]], [1, 1])
    assert las(problem).level == pytest.approx(1.0)
    best = refined(problem, least_attained_service(problem))
    assert best.level == pytest.approx(1.0)
    # of all optima the one with most throughput: the first job keeps the type where it is fast
    assert best.throughput == pytest.approx([2.0, 1.0])


def assert_feasible(problem: Problem, best: Allocation) -> None:
    c, x = best.columns, best.share
    time = np.zeros(problem.jobs)
    np.add.at(time, c.first, x)
    np.add.at(time, c.second[c.second >= 0], x[c.second >= 0])
    used = np.bincount(c.type, weights=c.gpus * x, minlength=problem.types)
    assert (x >= 0).all()
    assert (time <= problem.count + 1e-6).all()
    assert (used <= problem.capacity + 1e-6).all()
    paired = c.second >= 0
    assert (problem.gpus[c.first] == problem.gpus[c.second])[paired].all()


def assert_optimal(problem: Problem, goal: Goal, best: Allocation) -> None:
    """Weak duality: no allocation of whatever columns is worth more than these prices."""
    n, count = problem.jobs, problem.count
    bound = best.time_dual.sum() + best.gpu_dual @ problem.capacity - best.job_dual @ goal.floor
    assert best.objective == pytest.approx(bound, rel=1e-6)
    unit = (goal.slope / problem.proportional).max()
    assert best.job_dual @ goal.slope >= goal.level * unit * (1 - 1e-6)
    columns = singles(problem)
    if problem.speeds is not None:
        columns = columns + every_pair(problem)
    worth = best.job_dual / count
    paired = columns.second >= 0
    second = np.where(paired, columns.second, 0)
    assert len(columns) >= n
    earned = columns.rate_first * worth[columns.first]
    earned += np.where(paired, columns.rate_second * worth[second], 0.0)
    cost = best.time_dual[columns.first] / count[columns.first]
    cost += np.where(paired, best.time_dual[second] / count[second], 0.0)
    cost += columns.gpus * best.gpu_dual[columns.type]
    assert (earned <= cost + 1e-5).all()


@FEW
@given(problems)
def test_the_optimum_is_feasible_and_certified(problem: Problem) -> None:
    goal = least_attained_service(problem)
    best = optimum(problem, goal)
    assert_feasible(problem, best)
    assert_optimal(problem, goal, best)
    owed = goal.slope * best.level
    assert (best.throughput >= owed * (1 - 1e-6)).all()

    second = refined(problem, goal)  # keeps the level and gains throughput
    assert_feasible(problem, second)
    assert second.level == pytest.approx(best.level)
    assert (second.throughput >= owed * (1 - 1e-6)).all()
    gain = (second.throughput - best.throughput) / problem.proportional
    assert gain.sum() >= -1e-6


@pytest.mark.parametrize("supply", [4, 10])
def test_generated_columns_reach_the_optimum_of_all(supply: int) -> None:
    problem = a_problem(96, gpus=(96 // supply,) * 3, pairs=True)
    goal = least_attained_service(problem)
    some, all_ = optimum(problem, goal), optimum(problem, goal, whole=True)
    assert some.level == pytest.approx(all_.level, rel=1e-6)
    assert some.seen < all_.seen / 4
    assert_optimal(problem, goal, some)


def test_identical_jobs_as_one_reach_the_same_optimum() -> None:
    problem = a_problem(128, gpus=(16, 16, 16), gangs=True, pairs=True, weights=True, kinds=12)
    small, row = merged(problem)
    assert small.jobs < 30
    assert small.count.sum() == problem.jobs
    goal = least_attained_service(problem)
    best, classes = optimum(problem, goal), optimum(small, least_attained_service(small))
    assert classes.level == pytest.approx(best.level, rel=1e-6)
    # members of a class share alike, in whole: nobody has more time than there is
    time, rate = np.zeros(problem.jobs), np.zeros(problem.jobs)
    for a, b, kind, x in split(classes.columns, classes.share, row):
        for job, other in ((a, b), (b, a)):
            if job < 0:
                continue
            speed = problem.speed(kind, job, other) if other >= 0 else 1.0
            time[job] += x
            rate[job] += x * problem.throughput[job, kind] * speed
    assert (time <= 1 + 1e-6).all()
    assert rate == pytest.approx(classes.throughput[row], rel=1e-6)
    assert (rate >= goal.slope * best.level * (1 - 1e-6)).all()


def test_two_jobs_of_one_class_can_share_but_one_cannot() -> None:
    speeds = np.full((1, 1, 1), 0.9)
    one = Problem.of([[1.0]], [1], count=[1], speeds=speeds)
    assert las(one).throughput == pytest.approx([1.0])
    three = Problem.of([[1.0]], [1], count=[3], speeds=speeds)
    assert las(three).throughput == pytest.approx([0.6])  # one GPU does 1.8 for three


def test_floors_out_of_reach_are_infeasible() -> None:
    goal = replace(least_attained_service(THREE), floor=np.array([9.0, 0.0, 0.0]))
    with pytest.raises(Infeasible):
        optimum(THREE, goal)


def test_a_job_that_fits_nowhere_is_named() -> None:
    with pytest.raises(NoGpuTypeHolds) as refused:
        Problem.of([[1, 1], [0, 0]], [1, 1])
    assert refused.value.jobs.tolist() == [1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"capacity": [1]},
        {"gpus": [0, 1]},
        {"weights": [1, -1]},
        {"throughput": [[1, np.nan], [1, 1]]},
        {"speeds": np.ones((2, 1, 1))},
    ],
)
def test_a_wrong_shape_or_sign_is_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"throughput": [[1, 1], [1, 1]], "capacity": [1, 1]}
    with pytest.raises(ValueError, match=r"need|must"):
        Problem.of(**(right | wrong))  # type: ignore[arg-type]
