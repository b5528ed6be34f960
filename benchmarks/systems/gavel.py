"""Gavel: published optima, runs of the published simulator, and the cost of its programs.

`python -m benchmarks.systems --only gavel` takes three CPU minutes, a third of a minute of which
goes into the space-sharing program of 512 jobs written down whole.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.systems.figure import CpuClock, Figure, at_most, ordered, told, within
from pipeline.worlds.workloads.gavel import (
    REFERENCE_CLUSTER,
    cluster,
    read_table,
    read_trace,
    read_workload,
    synthetic,
    workload,
)
from scheduler.peers.allocation.throughputs import ThroughputTable
from scheduler.peers.gavel import POLICIES
from scheduler.peers.gavel.estimator import PairEstimator
from scheduler.peers.gavel.goals import (
    finish_time_fairness,
    least_attained_service,
    makespan,
    refined,
)
from scheduler.peers.gavel.policy import GavelPolicy
from scheduler.peers.gavel.problem import Problem
from scheduler.peers.gavel.sharing import merged, optimum, split

TYPES = tuple(REFERENCE_CLUSTER)
HOUR = 3600.0
CPU_LIMIT_S, MEMORY_LIMIT_MIB = 60.0, 1024.0  # of space sharing with 2,048 jobs
STEADY = (36, 36)  # GPUs of each type in the continuous experiments, on one node


def figures(data: Path) -> Iterable[Figure]:
    """All of them. `data` holds `gavel/`."""
    folder = data / "gavel"
    yield from optima()
    yield from published_runs(folder)
    yield from pair_programs(folder)
    yield from estimated_pairs(folder)
    yield from continuous_load(folder)
    yield from restart_costs(folder)


# --- optima of small programs ---------------------------------------------------------------


def optima() -> Iterator[Figure]:
    """Programs of three jobs, solved by two solvers before."""
    steps = np.array([1000.0, 2000.0, 3000.0])
    small = Problem.of([[4, 1], [3, 1], [2, 1]], [1, 1])
    gangs = Problem.of([[10, 5, 1], [8, 7, 1], [6, 2, 1]], [2, 1, 1], [2, 1, 1])
    for name, problem, level, seconds, rho in (
        ("3 jobs, 2 types", small, 0.727273, 1750.0, 0.916667),
        ("gangs, 3 types", gangs, 1.313295, 500.0, 0.799589),
    ):
        clock = CpuClock()
        least = refined(problem, least_attained_service(problem)).level
        yield within(1e-6)("gavel-las", f"optimum, {name}", level, least, clock.lap())
        last = 1 / refined(problem, makespan(problem, steps)).level
        yield within(1e-6)("gavel-makespan", f"makespan, {name}, s", seconds, last, clock.lap())
        ratio, _ = finish_time_fairness(problem, steps, np.zeros(3), steps / problem.isolated)
        yield within(1e-6)("gavel-ftf", f"rho, {name}", rho, ratio, clock.lap())
    clock = CpuClock()
    level = refined(
        flat := Problem.of([[2, 1], [1, 1]], [1, 1]), least_attained_service(flat)
    ).level
    yield within(1e-6)("gavel-las", "optimum, degenerate", 1.0, level, clock.lap())


# --- whole runs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """What a run of the published simulator gave. Tolerances: None = reported only."""

    policy: str
    jct_s: float
    end_s: float
    jct_within: float | None = None
    end_within: float | None = None


ARRIVALS = (
    Published("gavel-las", 14622.820, 63944.529, 0.04, 0.01),
    Published("gavel-ftf", 15009.706, 64971.494),
    Published("gavel-gandiva", 17379.358, 67404.913),
    Published("gavel-fifo", 19526.854, 72319.858, 1e-6, 1e-6),
    Published("gavel-las-agnostic", 19989.255, 77141.282),
    Published("gavel-water-filling", 14594.161, 63944.510),
    Published("gavel-makespan", 22972.646, 61512.583),
)
ALL_AT_ONCE = (
    Published("gavel-makespan", 63774.726, 64720.835),
    Published("gavel-las", 35658.966, 68521.823, 0.01, 0.01),
    Published("gavel-ftf", 36333.209, 70400.457),
    Published("gavel-gandiva", 35074.731, 75994.462),
    Published("gavel-las-agnostic", 37768.072, 82777.307),
    Published("gavel-fifo", 40257.935, 90701.292, 1e-6, 1e-6),
)
JCT_ORDER = [p.policy for p in ARRIVALS[:5]]
MAKESPAN_ORDER = [p.policy for p in ALL_AT_ONCE]
# the same with the rates of the physical cluster: trace, policy, mean JCT or end
PHYSICAL = (
    ("max_min_fairness", "gavel-las", 13766.019, None),
    ("max_min_fairness", "gavel-las-agnostic", 18705.369, None),
    ("minimize_makespan", "gavel-makespan", None, 62657.117),
    ("minimize_makespan", "gavel-gandiva", None, 75341.742),
)


def run(trace: Path, policy: GavelPolicy, table: Path | None = None) -> tuple[float, float]:
    """Mean JCT and end of one run, seconds."""
    outcome = read_workload(trace, table).simulate(policy)
    jcts = [result.jct_s for result in outcome.jobs]
    return sum(jcts) / len(jcts), max(result.end_time or 0.0 for result in outcome.jobs)


def published_runs(folder: Path) -> Iterator[Figure]:
    """The two released traces on 8 V100, 16 P100 and 24 K80."""
    means: dict[str, float] = {}
    ends: dict[str, float] = {}
    for trace, rows in (("max_min_fairness", ARRIVALS), ("minimize_makespan", ALL_AT_ONCE)):
        for row in rows:
            clock = CpuClock()
            mean, end = run(folder / f"{trace}.trace", POLICIES[row.policy](as_published=True))
            cpu_s = clock.lap()
            yield _held(row.policy, f"{trace}: mean JCT, s", row.jct_s, mean, row.jct_within, cpu_s)
            yield _held(row.policy, f"{trace}: end, s", row.end_s, end, row.end_within, 0.0)
            (means if rows is ARRIVALS else ends)[row.policy] = mean if rows is ARRIVALS else end
    yield ordered("gavel", "max_min_fairness: mean JCT", JCT_ORDER, means, 0.0)
    yield ordered("gavel", "minimize_makespan: end", MAKESPAN_ORDER, ends, 0.0)
    physical = folder / "physical_cluster_throughputs.json"
    for trace, name, jct_s, end_s in PHYSICAL:
        clock = CpuClock()
        mean, end = run(folder / f"{trace}.trace", POLICIES[name](as_published=True), physical)
        figure = f"{trace}, physical rates: {'mean JCT' if jct_s else 'end'}, s"
        yield _held(name, figure, jct_s or end_s or 0.0, mean if jct_s else end, None, clock.lap())
    for trace, name in (
        ("max_min_fairness", "gavel-las-packed"),
        ("minimize_makespan", "gavel-makespan-packed"),
    ):
        clock = CpuClock()
        mean, end = run(folder / f"{trace}.trace", POLICIES[name](as_published=True))
        note = "the released code cannot run it"
        yield told(name, f"{trace}: mean JCT, s", mean, clock.lap(), note=note)
        yield told(name, f"{trace}: end, s", end, 0.0, note=note)


def _held(
    system: str, figure: str, reference: float, measured: float, near: float | None, cpu_s: float
) -> Figure:
    if near is None:
        return told(system, figure, measured, cpu_s, reference=reference)
    return within(near)(system, figure, reference, measured, cpu_s)


# --- the cost of space sharing --------------------------------------------------------------


def distinct_jobs(jobs: int, supply: int, *, gangs: bool = False) -> Problem:
    """The worst case: no two jobs alike, `jobs / supply` GPUs of each of three types."""
    rng = np.random.default_rng(0)
    rates = np.array([1.0, 0.55, 0.2]) * np.exp(rng.normal(0, 0.35, (jobs, 3)))
    gang = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]) if gangs else None
    speeds = rng.uniform(0.2, 0.95, (3, jobs, jobs)).astype(np.float32)
    return Problem.of(rates, [jobs // supply] * 3, gang, speeds=speeds)


def tabled_jobs(table: ThroughputTable, jobs: int, supply: int = 4) -> Problem:
    """Jobs of the released table, as its evaluation draws them."""
    drawn = synthetic(table, jobs, per_hour=None)
    kinds = sorted({job.kind for job in drawn})
    speeds = [[[table.speed(t, a, b) for b in kinds] for a in kinds] for t in TYPES]
    return Problem.of(
        [[table.rate(t, job.kind) for t in TYPES] for job in drawn],
        [jobs // supply] * 3,
        [job.job.gpus for job in drawn],
        kind=[kinds.index(job.kind) for job in drawn],
        speeds=np.array(speeds, np.float32),
    )


def generated(jobs: int, supply: int, gangs: bool) -> tuple[float, float, float]:
    """Optimum with its second stage by column generation: level, CPU seconds, peak MiB."""
    problem = distinct_jobs(jobs, supply, gangs=gangs)
    clock = CpuClock()
    best = refined(problem, least_attained_service(problem))
    return best.level, clock.lap(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def whole(jobs: int, supply: int) -> tuple[float, float, float]:
    """The same program with every pair written down."""
    problem = distinct_jobs(jobs, supply)
    clock = CpuClock()
    best = optimum(problem, least_attained_service(problem), whole=True)
    return best.level, clock.lap(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(
    measure: Callable[..., tuple[float, float, float]], *arguments: object
) -> tuple[float, float, float]:
    """Measure in a process of its own, so that memory is that of the measurement alone."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def pair_programs(folder: Path) -> Iterator[Figure]:
    """Column generation and aggregation against the program written down whole."""
    system = "gavel-las-packed"
    for jobs, supply in ((128, 4), (128, 10), (512, 4)):
        some, cpu_s, _ = apart(generated, jobs, supply, False)
        all_, whole_cpu_s, mib = apart(whole, jobs, supply)
        yield at_most(
            system,
            f"{jobs} jobs, 1/{supply} of them GPUs: gap of column generation to the whole",
            1e-6,
            abs(some / all_ - 1),
            cpu_s,
            f"the whole took {whole_cpu_s:.1f} CPU s and {mib:.0f} MiB; optimum {all_:.6f}",
        )
    for supply, gangs in ((4, False), (10, False), (4, True), (10, True)):
        level, cpu_s, mib = apart(generated, 2048, supply, gangs)
        what = f"2048 {'gangs' if gangs else 'jobs'}, 1/{supply} of them GPUs"
        note = f"both stages; optimum {level:.6f}"
        yield at_most(system, f"{what}: CPU s", CPU_LIMIT_S, cpu_s, cpu_s, note)
        yield at_most(system, f"{what}: MiB", MEMORY_LIMIT_MIB, mib, 0.0, note)
    alone = replace(distinct_jobs(2048, 4), speeds=None)
    clock = CpuClock()
    level = refined(alone, least_attained_service(alone)).level
    note = f"both stages; optimum {level:.6f}; the reference is wall seconds of interior point"
    figure = "2048 jobs, nobody shares: CPU s"
    yield told("gavel-las", figure, clock.lap(), 0.0, reference=1.4, note=note)
    table = read_table(folder / "simulation_throughputs.json")
    problem = tabled_jobs(table, 128)
    clock = CpuClock()
    apart_level = optimum(problem, least_attained_service(problem)).level
    small, _ = merged(problem)
    gap = abs(optimum(small, least_attained_service(small)).level / apart_level - 1)
    yield at_most(system, "128 jobs: gap of classes to jobs", 1e-6, gap, clock.lap())
    problem = tabled_jobs(table, 8192)
    clock = CpuClock()
    small, row = merged(problem)
    best = refined(small, least_attained_service(small))
    pairs = sum(1 for _ in split(best.columns, best.share, row))
    cpu_s = clock.lap()
    note = f"{small.jobs} classes; shares of {pairs} jobs and pairs handed out"
    yield at_most(system, "8192 jobs as classes: CPU s", 1.0, cpu_s, cpu_s, note)


# --- the estimator --------------------------------------------------------------------------


def estimated_pairs(folder: Path) -> Iterator[Figure]:
    """Pair speeds found from a part of the trials, and what that does to a run."""
    table = read_table(folder / "simulation_throughputs.json")
    ones = [kind for kind in table.kinds if kind.gpus == 1]
    for references, profiled in ((ones, 0.2), (ones[::3], 0.2)):
        clock = CpuClock()
        errors = []
        for seed in range(5):
            found = PairEstimator(
                [table.of(kind) for kind in references], TYPES, profiled=profiled, seed=seed
            )
            alike = {kind: found.estimate(table.of(kind)) for kind in ones}
            errors += [
                abs(alike[a].beside(t, b) - table.speed(t, a, b))
                for t in TYPES
                for a in ones
                for b in ones
            ]
        what = f"pair speeds, {len(references)} references, {profiled:.0%} tried: mean error"
        yield told("gavel estimator", what, float(np.mean(errors)), clock.lap())
    for trace in ("max_min_fairness", "minimize_makespan"):
        clock = CpuClock()
        found = PairEstimator([table.of(kind) for kind in ones[::3]], TYPES)
        policy = POLICIES["gavel-las-packed"](as_published=True, estimator=found)
        mean, _ = run(folder / f"{trace}.trace", policy)
        known, _ = run(folder / f"{trace}.trace", POLICIES["gavel-las-packed"](as_published=True))
        what = f"{trace}: mean JCT with estimated pair speeds, s"
        yield told(
            "gavel estimator", what, mean, clock.lap(), reference=known, note="known pair speeds"
        )


# --- continuous load ------------------------------------------------------------------------

# mean JCT of jobs 4000-5000 at 4 jobs an hour, hours; stored in Gavel's notebooks. Our jobs are
# drawn alike, not the same
STORED = {
    "gavel-las": 16.82,
    "gavel-las-packed": 16.96,
    "gavel-fifo": 17.08,
    "gavel-allox": 17.13,
    "gavel-gandiva": 18.88,
    "gavel-las-agnostic": 23.49,
}


def continuous_load(folder: Path, jobs: int = 2000, per_hour: float = 4.0) -> Iterator[Figure]:
    """Jobs of one GPU without end on 36 GPUs of each type: the last fifth is counted."""
    table = read_table(folder / "simulation_throughputs.json")
    drawn = synthetic(table, jobs, per_hour=per_hour, gangs=False)
    world = workload("continuous", drawn, table, cluster(dict.fromkeys(TYPES, STEADY)))
    note = f"other jobs; {jobs} instead of 5000, the last fifth counted"
    for name, hours in STORED.items():
        clock = CpuClock()
        last = world.simulate(POLICIES[name](as_published=True)).jobs[-jobs // 5 :]
        mean = sum(result.jct_s for result in last) / len(last) / HOUR
        figure = f"{per_hour:g} one-GPU jobs an hour: mean JCT, h"
        yield told(name, figure, mean, clock.lap(), reference=hours, note=note)


def restart_costs(folder: Path) -> Iterator[Figure]:
    """What the published runs leave out: a job that is moved makes no step for a while."""
    table = read_table(folder / "simulation_throughputs.json")
    nodes = cluster(REFERENCE_CLUSTER)
    for trace in ("max_min_fairness", "minimize_makespan"):
        jobs = read_trace(folder / f"{trace}.trace")
        for name in ("gavel-las", "gavel-las-packed", "gavel-allox", "gavel-fifo"):
            means = []
            clock = CpuClock()
            for restart_s in (0.0, 120.0):
                world = workload(trace, jobs, table, nodes, restart_s=restart_s)
                results = world.simulate(POLICIES[name]()).jobs
                means.append(sum(result.jct_s for result in results) / len(results))
            figure = f"{trace}, a restart takes 120 s: mean JCT, s"
            note = "reference: restarts for nothing"
            yield told(name, figure, means[1], clock.lap(), reference=means[0], note=note)
