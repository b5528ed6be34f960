"""Gavel's policies as objectives of one linear program. Pure functions of arrays; rates are in
steps/s.

Most of these objectives have many optima. `refined` takes, among them, the one with the largest sum
of throughputs, each job's measured relative to its proportional share: fairness first, then no GPU
time wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from scipy.optimize import brentq

from reproductions.gavel.problem import Floats, Ints, Problem
from reproductions.gavel.program import Allocation, Goal
from reproductions.gavel.sharing import optimum

_SATURATED = 1e-6  # a dual above this share of the largest: the job can rise no further


def refined(problem: Problem, goal: Goal) -> Allocation:
    """Return, among the optima of a goal, the one with the largest sum of normalised throughputs.
    Raises Infeasible where no allocation meets the goal's floors.
    """
    return optimum(problem, goal, normalised(problem))


def normalised(problem: Problem) -> Floats:
    """Return (n, m) gains with which the program counts each job's throughput relative to the
    throughput of its proportional share.
    """
    return np.repeat(1 / problem.proportional[:, None], problem.types, axis=1)


def least_attained_service(problem: Problem) -> Goal:
    """Return the goal of max-min fairness: maximise the smallest throughput, measured relative to
    each job's weighted proportional share.

    A job of s GPUs is entitled to 1/s of the time that a job of one GPU is entitled to.
    """
    slope = problem.proportional * problem.weights / problem.gpus
    return _level(problem, slope)


def makespan(problem: Problem, remaining: Floats) -> Goal:
    """Return the goal that all jobs end as early as possible. The time until then is `1 / t`, where
    `t` is the program's variable.

    Args:
        remaining: (n,) steps left.
    """
    return _level(problem, np.maximum(remaining, 1e-9))


def _level(problem: Problem, slope: Floats) -> Goal:
    none = np.zeros_like(problem.throughput)
    return Goal(slope, np.zeros(problem.jobs), none)


def finish_time_fairness(
    problem: Problem, remaining: Floats, age: Floats, expected: Floats
) -> tuple[float, Allocation]:
    """Minimise the largest ratio of a job's completion time (JCT) to the JCT that it would have on
    an n-th of the cluster.

    Args:
        remaining: (n,) steps left.
        age: (n,) seconds since submission.
        expected: (n,) JCT in seconds on an n-th of the cluster.

    Returns:
        the smallest possible ratio rho, and an allocation that has it.
    """

    def needed(rho: float) -> Goal:
        return makespan(problem, remaining / np.maximum(rho * expected - age, 1e-9))

    # rho is reached when every job has the throughput it then needs, that is, at level 1
    fastest = problem.throughput.max(axis=1)
    low = float(((age + remaining / fastest) / expected).max())
    if optimum(problem, needed(low)).level < 1:
        high = low
        while optimum(problem, needed(high)).level < 1:
            low, high = high, 2 * high
        low = brentq(lambda rho: optimum(problem, needed(rho)).level - 1, low, high, rtol=1e-6)
    return low, refined(problem, needed(low))


class Within(StrEnum):
    """How an entity (a team, a virtual cluster) shares its part among its jobs."""

    FAIRNESS = "fairness"
    FIFO = "fifo"


@dataclass(frozen=True, eq=False)
class Entity:
    """Jobs that share one weight. `jobs` are in order of arrival."""

    jobs: Ints
    weight: float = 1.0
    within: Within = Within.FAIRNESS


def water_filling(
    problem: Problem, entities: Sequence[Entity] | None = None
) -> tuple[Floats, Allocation]:
    """Compute max-min fairness in steps: when a job's throughput can rise no further, those of the
    others keep rising.

    Args:
        entities: groups of jobs that share a weight; None: every job by its own weight.

    Returns:
        (n,) the level of each job relative to its proportional share, and an allocation with it.
    """
    n = problem.jobs
    level = np.zeros(n)
    open_ = np.ones(n, bool)
    while True:
        weight = _weights(problem, entities, open_)
        slope = problem.proportional * weight / problem.gpus
        goal = Goal(slope, level * problem.proportional, np.zeros_like(problem.throughput))
        best = optimum(problem, _eased(goal))
        level = level + best.level * weight / problem.gpus
        # a positive dual: the row is tight in every optimum, so its job is at its end
        dual = best.job_dual * slope
        stuck = open_ & (weight > 0) & (dual > _SATURATED * dual.max())
        open_ &= ~stuck
        if not open_.any() or not stuck.any():
            final = replace(goal, slope=0 * slope, floor=level * problem.proportional, level=0.0)
            filled = optimum(problem, replace(_eased(final), gain=normalised(problem)))
            return level, filled.priced_as(best)


def _eased(goal: Goal) -> Goal:
    """Return the goal with its floors lowered by 1e-8 of their value, so that rounding does not
    make them infeasible.
    """
    return replace(goal, floor=goal.floor * (1 - 1e-8))


def _weights(problem: Problem, entities: Sequence[Entity] | None, open_: Floats) -> Floats:
    """Return (n,) the weight with which each job's share rises in this step; 0 for jobs whose
    throughput can rise no further, or that wait for another job of their entity.
    """
    if entities is None:
        return np.where(open_, problem.weights, 0.0)
    weight = np.zeros(problem.jobs)
    for entity in entities:
        jobs = entity.jobs[open_[entity.jobs]]
        if not jobs.size:
            continue
        if entity.within is Within.FIFO:
            weight[jobs[0]] = entity.weight
        else:
            weight[jobs] = entity.weight * problem.weights[jobs] / problem.weights[jobs].sum()
    return weight
