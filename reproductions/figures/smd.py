"""SMD, a reconstruction: its knapsack against exact answers.

No figure of the paper is public; the bounds are what a prototype of this reconstruction reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np

from reproductions.figures.figure import CpuClock, Figure, at_least, exact
from reproductions.smd.outer import Knapsack, approximate, select, select_exactly

RESOURCES = 4


def figures(data: Path) -> Iterable[Figure]:
    yield from outer()


def a_knapsack(jobs: int, seed: int) -> Knapsack:
    """Return a knapsack with random values and weights, and room for a fifth to three fifths of
    all.
    """
    rng = np.random.default_rng(seed)
    weights = rng.uniform(1.0, 20.0, (jobs, RESOURCES))
    capacity = weights.sum(axis=0) * rng.uniform(0.2, 0.6)
    return Knapsack(rng.uniform(1.0, 100.0, jobs), weights, capacity)


def outer() -> Iterator[Figure]:
    infeasible = 0
    for jobs, seeds, bound in ((20, 30, 0.97), (100, 30, 0.99), (500, 5, 0.99)):
        clock = CpuClock()
        problems = [a_knapsack(jobs, seed) for seed in range(seeds)]
        found = [select(problem) for problem in problems]
        took = clock.lap() / seeds
        ratios, rounded = [], []
        for problem, selection in zip(problems, found, strict=True):
            infeasible += not problem.feasible(selection.chosen)
            best = problem.value(select_exactly(problem, gap=1e-3 if jobs > 100 else 0.0))
            ratios.append(problem.value(selection.chosen) / best)
            rounded.append(problem.value(approximate(problem).chosen) / best)
        yield at_least(
            system="smd outer",
            figure=f"worth over that of the MILP, {jobs} jobs, worst of {seeds}",
            reference=bound,
            measured=min(ratios),
            cpu_s=clock.lap(),
            note=f"{took:.3f} CPU s each; relaxed and rounded without the MILP of small "
            f"problems: mean {fmean(rounded):.4f}, worst {min(rounded):.4f}",
        )
    yield exact(
        system="smd outer",
        figure="infeasible selections",
        reference=0,
        measured=infeasible,
        cpu_s=0.0,
    )
