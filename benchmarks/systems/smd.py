"""SMD, a reconstruction: its two problems against exact answers, and its place among the others.

No figure of the paper is public; the bounds are what a prototype of this reconstruction reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.systems.figure import CpuClock, Figure, at_least, at_most, exact, told
from pipeline.worlds.workloads.pollux import applications, open_workload
from scheduler.peers.smd.inner import PsLimits, Tasks, enumerate_tasks, equal_tasks, relax
from scheduler.peers.smd.iteration import LayeredIteration, Overheads
from scheduler.peers.smd.outer import Knapsack, approximate, select, select_exactly
from scheduler.peers.smd.policy import Smd
from scheduler.peers.smd.utility import Utility

RESOURCES = 4


def figures(data: Path) -> Iterable[Figure]:
    yield from inner()
    yield from outer()
    yield from dominance()
    yield from schedules(data)


def a_job(rng: np.random.Generator) -> tuple[LayeredIteration, PsLimits]:
    """A random job: 5 to 40 layers, tasks of GPUs, cores and GiB, a limit of 2 to 20 workers."""
    layers = int(rng.integers(5, 40))
    forward = rng.lognormal(0.0, 1.0, layers)
    forward *= rng.uniform(0.0005, 0.01) / forward.sum()
    backward = 2.0 * forward * rng.uniform(0.8, 1.2, layers)
    size = rng.lognormal(0.0, 1.5, layers)
    size *= rng.uniform(20e6, 600e6) / size.sum()
    iteration = LayeredIteration.of_layers(
        forward.tolist(),
        backward.tolist(),
        size.tolist(),
        batch=float(rng.choice([128, 256, 512, 1024])),
        bytes_per_s=float(rng.choice([1.25e8, 1.25e9])),
        overheads=Overheads(rng.uniform(0, 0.02), rng.uniform(0, 0.01), rng.uniform(0, 0.01)),
    )
    worker = (float(rng.integers(1, 3)), float(rng.integers(2, 8)), float(rng.uniform(4, 32)))
    server = (0.0, float(rng.integers(1, 6)), float(rng.uniform(2, 16)))
    most = rng.uniform(2, 20)
    limit = np.array(worker) * most + np.array(server) * rng.uniform(1, most)
    return iteration, PsLimits(worker, server, tuple(limit.tolist()))


def by_hand(iteration: LayeredIteration, limits: PsLimits) -> float:
    """Seconds of the best pair of numbers, one after the other."""
    most = range(1, 100)
    return min(
        float(iteration.seconds(w, p)) for w, p in product(most, most) if limits.admits(w, p)
    )


def inner(jobs: int = 200) -> Iterator[Figure]:
    clock = CpuClock()
    rng = np.random.default_rng(0)
    cases = [a_job(rng) for _ in range(jobs)]
    best = [_found(enumerate_tasks(*case)) for case in cases]
    checked = zip(cases[:20], best[:20], strict=True)
    wrong = sum(abs(by_hand(*case) - tasks.seconds) > 1e-9 for case, tasks in checked)
    yield exact("smd inner", "enumerations of 20 that miss the best", 0, wrong, clock.lap())
    ratios = [_found(relax(*c)).seconds / t.seconds for c, t in zip(cases, best, strict=True)]
    yield at_most(
        "smd inner",
        f"relaxed and rounded over exact, mean of {jobs} jobs",
        1.06,
        fmean(ratios),
        clock.lap(),
        note=f"the worst {max(ratios):.3f}; exact in {np.mean(np.array(ratios) < 1 + 1e-9):.0%}",
    )
    equal = [_found(equal_tasks(*c)).seconds / t.seconds for c, t in zip(cases, best, strict=True)]
    yield told(
        "smd inner",
        "as many servers as workers over exact, mean",
        fmean(equal),
        clock.lap(),
        reference=1.30,
        note="another generator than the reference's",
    )


def _found(tasks: Tasks | None) -> Tasks:
    assert tasks is not None  # the generator leaves room for one of each
    return tasks


def a_knapsack(jobs: int, seed: int) -> Knapsack:
    """Random values and weights; room for a fifth to three fifths of all."""
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
            "smd outer",
            f"worth over that of the MILP, {jobs} jobs, worst of {seeds}",
            bound,
            min(ratios),
            clock.lap(),
            note=f"{took:.3f} CPU s each; relaxed and rounded without the MILP of small "
            f"problems: mean {fmean(rounded):.4f}, worst {min(rounded):.4f}",
        )
    yield exact("smd outer", "infeasible selections", 0, infeasible, 0.0)


def dominance(seeds: int = 20, jobs: int = 30) -> Iterator[Figure]:
    """Choosing workers and servers apart is worth at least as much as choosing them equal."""
    clock = CpuClock()
    gains = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        cases = [a_job(rng) for _ in range(jobs)]
        utilities = [
            Utility(rng.uniform(1, 100), rng.uniform(0.01, 1), rng.uniform(1, 15)) for _ in cases
        ]
        steps = rng.uniform(1e3, 5e4, jobs)
        weights = np.array([limits.limit for _, limits in cases])
        capacity = weights.sum(axis=0) * 0.3
        worth = []
        for solve in (enumerate_tasks, equal_tasks):
            hours = [
                _found(solve(*c)).seconds * n / 3600 for c, n in zip(cases, steps, strict=True)
            ]
            values = np.array([u(h) for u, h in zip(utilities, hours, strict=True)])
            problem = Knapsack(values, weights, capacity)
            worth.append(problem.value(select_exactly(problem)))
        gains.append(worth[0] / worth[1])
    yield at_least(
        "smd",
        f"worth over that with equal servers, worst of {seeds} seeds",
        1.0,
        min(gains),
        clock.lap(),
        note=f"mean {fmean(gains):.2f}",
    )


def schedules(data: Path) -> Iterator[Figure]:
    """On a recorded workload, where no utility is named: an illustration."""
    folder = data / "pollux"
    world = open_workload(
        folder / "workloads" / "workload-6.csv", apps=applications(folder / "traces")
    )
    clock = CpuClock()
    for label, shares in (("as many GPUs as asked for", ()), ("or half of them", (0.5,))):
        outcome = world.simulate(Smd(shares=shares))
        yield told(
            "smd all-reduce",
            f"average JCT on workload-6, {label}, s",
            fmean(r.jct_s for r in outcome.jobs),
            clock.lap(),
            reference=3469.69,
            note="not elastic, told the length of jobs; the reference is Tiresias",
        )
