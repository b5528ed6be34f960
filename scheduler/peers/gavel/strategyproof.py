"""Shares that nobody can better by lying: the partial allocation mechanism.

The allocation with the largest geometric mean of throughputs, of which each job then keeps only
the part by which its presence costs the others: product of what they have with it over what they
would have without it. Cole, Gkatzelis, Goel, EC'13, as used by Gavel. GPUs are not shared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.peers.gavel.goals import least_attained_service
from scheduler.peers.gavel.problem import Floats, Problem
from scheduler.peers.gavel.program import Goal, singles, solve

GAP = 1e-3  # of the logarithm of the geometric mean, to its optimum
_SWEEPS = 500  # of the mixture's weights between two programs


def partial_allocation(problem: Problem) -> tuple[Floats, Floats]:
    """(n, m) shares of time, and (n,) the part of its geometric-mean share that each job keeps."""
    weights = problem.weights / problem.weights.sum()
    start = solve(problem, least_attained_service(problem), singles(problem))
    tables = [start.by_type(problem.types)]
    share, tables = geometric_mean(problem, weights, tables)
    together = _rates(problem, share)
    kept = np.ones(problem.jobs)
    for job in range(problem.jobs):
        others = np.where(np.arange(problem.jobs) == job, 0.0, weights)
        if others.any():
            apart, _ = geometric_mean(problem, others / others.sum(), tables)
            loss = others @ np.log(together / np.maximum(_rates(problem, apart), 1e-300))
            kept[job] = min(1.0, float(np.exp(loss / weights[job])))
    return share * kept[:, None], kept


def geometric_mean(
    problem: Problem, weights: Floats, tables: Sequence[Floats]
) -> tuple[Floats, list[Floats]]:
    """The allocation with the largest weighted geometric mean of throughputs.

    A mixture of allocations is improved in turn by its weights, and by the allocation that gains
    most for the rates that it gives; what that could still gain bounds the gap to the optimum.

    Args:
        weights: (n,) summing to 1; 0 = does not count.
        tables: allocations to start from, (n, m) shares of time each.

    Returns:
        (n, m) shares of time, and the allocations that it mixes.
    """
    seen = list(tables)
    columns, none = singles(problem), np.zeros(problem.jobs)
    counted = weights > 0
    part = np.full(len(seen), 1 / len(seen))
    while True:
        rates = np.array([_rates(problem, table) for table in seen])
        for _ in range(_SWEEPS):  # expectation-maximisation of a mixture's weights
            gain = (rates[:, counted] / (part @ rates)[counted]) @ weights[counted]
            part = part * gain
            if gain.max() < 1 + GAP / 10:
                break
        mean = part @ rates
        worth = np.where(counted, weights / np.where(counted, mean, 1.0), 0.0)
        goal = Goal(none, none, np.repeat(worth[:, None], problem.types, axis=1), level=0.0)
        best = solve(problem, goal, columns)
        if best.objective <= 1 + GAP:
            share: Floats = np.tensordot(part, np.array(seen), axes=1)
            return share, [table for table, x in zip(seen, part, strict=True) if x > 1e-6]
        seen.append(best.by_type(problem.types))
        part = np.append(part * 0.9, 0.1)


def _rates(problem: Problem, share: Floats) -> Floats:
    rates: Floats = (share * problem.throughput).sum(axis=1)
    return rates
