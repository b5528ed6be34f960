"""Gavel: published optima, runs of the published simulator, and the cost of its programs.

`python -m reproductions.figures --only gavel` takes three CPU minutes, a third of a minute of which
goes into the space-sharing program of 512 jobs written down whole.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from reproductions.allocation.policy import AllocationPolicy
from reproductions.allocation.throughputs import ThroughputTable
from reproductions.figures.figure import CpuClock, Figure, at_most, ordered, within
from reproductions.gavel.goals import (
    finish_time_fairness,
    least_attained_service,
    makespan,
    refined,
)
from reproductions.gavel.problem import Problem
from reproductions.gavel.sharing import merged, optimum, split
from reproductions.registry import build
from reproductions.workloads.gavel import (
    REFERENCE_CLUSTER,
    read_table,
    read_workload,
    synthetic,
)

TYPES = tuple(REFERENCE_CLUSTER)
CPU_LIMIT_S, MEMORY_LIMIT_MIB = 60.0, 1024.0  # of space sharing with 2,048 jobs


def _published(name: str) -> AllocationPolicy:
    return build(name, {"as_published": True})


def figures(data: Path) -> Iterable[Figure]:
    """Yield all figures. `data` holds `gavel/`."""
    folder = data / "gavel"
    yield from optima()
    yield from published_runs(folder)
    yield from pair_programs(folder)


# --- optima of small programs ---------------------------------------------------------------


def optima() -> Iterator[Figure]:
    """Yield figures on programs of two or three jobs, whose optima are known from two other
    solvers."""
    steps = np.array([1000.0, 2000.0, 3000.0])
    small = Problem.of([[4, 1], [3, 1], [2, 1]], [1, 1])
    gangs = Problem.of([[10, 5, 1], [8, 7, 1], [6, 2, 1]], [2, 1, 1], [2, 1, 1])
    for name, problem, level, seconds, rho in (
        ("3 jobs, 2 types", small, 0.727273, 1750.0, 0.916667),
        ("gangs, 3 types", gangs, 1.313295, 500.0, 0.799589),
    ):
        clock = CpuClock()
        least = refined(problem, least_attained_service(problem)).level
        yield within(1e-6)(
            system="gavel-las",
            figure=f"optimum, {name}",
            reference=level,
            measured=least,
            cpu_s=clock.lap(),
        )
        last = 1 / refined(problem, makespan(problem, steps)).level
        yield within(1e-6)(
            system="gavel-makespan",
            figure=f"makespan, {name}, s",
            reference=seconds,
            measured=last,
            cpu_s=clock.lap(),
        )
        ratio, _ = finish_time_fairness(problem, steps, np.zeros(3), steps / problem.isolated)
        yield within(1e-6)(
            system="gavel-ftf",
            figure=f"rho, {name}",
            reference=rho,
            measured=ratio,
            cpu_s=clock.lap(),
        )
    clock = CpuClock()
    level = refined(
        flat := Problem.of([[2, 1], [1, 1]], [1, 1]), least_attained_service(flat)
    ).level
    yield within(1e-6)(
        system="gavel-las",
        figure="optimum, degenerate",
        reference=1.0,
        measured=level,
        cpu_s=clock.lap(),
    )


# --- whole runs -----------------------------------------------------------------------------


NEAR = 0.04  # rounds of six minutes, and which of several optima a solver returns


@dataclass(frozen=True, slots=True)
class Published:
    """The results of a run of the published simulator, and how near a run here has to come."""

    policy: str
    jct_s: float
    end_s: float
    jct_within: float = NEAR
    end_within: float = NEAR


ARRIVALS = (
    Published(
        policy="gavel-las", jct_s=14622.820, end_s=63944.529, jct_within=NEAR, end_within=0.01
    ),
    Published("gavel-ftf", 15009.706, 64971.494),
    Published("gavel-gandiva", 17379.358, 67404.913),
    Published(
        policy="gavel-fifo", jct_s=19526.854, end_s=72319.858, jct_within=1e-6, end_within=1e-6
    ),
    Published("gavel-las-agnostic", 19989.255, 77141.282),
    Published(
        policy="gavel-water-filling",
        jct_s=14594.161,
        end_s=63944.510,
        jct_within=NEAR,
        end_within=0.01,
    ),
    Published(
        policy="gavel-makespan", jct_s=22972.646, end_s=61512.583, jct_within=NEAR, end_within=0.01
    ),
)
ALL_AT_ONCE = (
    Published(
        policy="gavel-makespan", jct_s=63774.726, end_s=64720.835, jct_within=NEAR, end_within=0.01
    ),
    Published(
        policy="gavel-las", jct_s=35658.966, end_s=68521.823, jct_within=0.01, end_within=0.01
    ),
    Published("gavel-ftf", 36333.209, 70400.457),
    Published("gavel-gandiva", 35074.731, 75994.462),
    Published("gavel-las-agnostic", 37768.072, 82777.307),
    Published(
        policy="gavel-fifo", jct_s=40257.935, end_s=90701.292, jct_within=1e-6, end_within=1e-6
    ),
)
JCT_ORDER = [p.policy for p in ARRIVALS[:5]]
MAKESPAN_ORDER = [p.policy for p in ALL_AT_ONCE]


def run(trace: Path, policy: AllocationPolicy) -> tuple[float, float]:
    """Return the mean JCT and the end of one run, seconds."""
    outcome = read_workload(trace).simulate(policy)
    jcts = [result.jct_s for result in outcome.jobs]
    return sum(jcts) / len(jcts), max(result.end_time or 0.0 for result in outcome.jobs)


def published_runs(folder: Path) -> Iterator[Figure]:
    """Yield figures of the two released traces on 8 V100, 16 P100 and 24 K80."""
    means: dict[str, float] = {}
    ends: dict[str, float] = {}
    for trace, rows in (("max_min_fairness", ARRIVALS), ("minimize_makespan", ALL_AT_ONCE)):
        for row in rows:
            clock = CpuClock()
            mean, end = run(folder / f"{trace}.trace", _published(row.policy))
            cpu_s = clock.lap()
            for figure, published, found, near in (
                ("mean JCT", row.jct_s, mean, row.jct_within),
                ("end", row.end_s, end, row.end_within),
            ):
                told = f"{trace}: {figure}, s"
                yield within(near)(
                    system=row.policy, figure=told, reference=published, measured=found, cpu_s=cpu_s
                )
            (means if rows is ARRIVALS else ends)[row.policy] = mean if rows is ARRIVALS else end
    yield ordered(
        system="gavel",
        figure="max_min_fairness: mean JCT",
        order=JCT_ORDER,
        values=means,
        cpu_s=0.0,
    )
    yield ordered(
        system="gavel",
        figure="minimize_makespan: end",
        order=MAKESPAN_ORDER,
        values=ends,
        cpu_s=0.0,
    )


# --- the cost of space sharing --------------------------------------------------------------


def distinct_jobs(jobs: int, supply: int, *, gangs: bool = False) -> Problem:
    """Return the worst case to solve: `jobs` jobs, no two alike, and `jobs / supply` GPUs of each
    of three types. With `gangs` a job asks for 1 to 8 GPUs, else for one.
    """
    rng = np.random.default_rng(0)
    rates = np.array([1.0, 0.55, 0.2]) * np.exp(rng.normal(0, 0.35, (jobs, 3)))
    gang = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]) if gangs else None
    speeds = rng.uniform(0.2, 0.95, (3, jobs, jobs)).astype(np.float32)
    return Problem.of(rates, [jobs // supply] * 3, gang, speeds=speeds)


def tabled_jobs(table: ThroughputTable, jobs: int, supply: int = 4) -> Problem:
    """Return jobs drawn from the released table, as its evaluation draws them."""
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
    """Return the optimum with its second stage by column generation: level, CPU seconds, peak
    MiB.
    """
    problem = distinct_jobs(jobs, supply, gangs=gangs)
    clock = CpuClock()
    best = refined(problem, least_attained_service(problem))
    return best.level, clock.lap(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def whole(jobs: int, supply: int) -> tuple[float, float, float]:
    """Solve the program with every pair included from the start. Return level, CPU seconds and peak
    MiB, as `generated` does.
    """
    problem = distinct_jobs(jobs, supply)
    clock = CpuClock()
    best = optimum(problem, least_attained_service(problem), whole=True)
    return best.level, clock.lap(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(
    measure: Callable[..., tuple[float, float, float]], *arguments: object
) -> tuple[float, float, float]:
    """Run a measurement in a new process, so that its memory is measured alone. Return its
    result.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def pair_programs(folder: Path) -> Iterator[Figure]:
    """Yield comparisons of column generation and aggregation with the program written down
    whole.
    """
    system = "gavel-las-packed"
    for jobs, supply in ((128, 4), (128, 10), (512, 4)):
        some, cpu_s, _ = apart(generated, jobs, supply, False)
        all_, whole_cpu_s, mib = apart(whole, jobs, supply)
        yield at_most(
            system,
            figure=f"{jobs} jobs, 1/{supply} of them GPUs: gap of column generation to the whole",
            reference=1e-6,
            measured=abs(some / all_ - 1),
            cpu_s=cpu_s,
            note=f"the whole took {whole_cpu_s:.1f} CPU s and {mib:.0f} MiB; optimum {all_:.6f}",
        )
    for supply, gangs in ((4, False), (10, False), (4, True), (10, True)):
        level, cpu_s, mib = apart(generated, 2048, supply, gangs)
        what = f"2048 {'gangs' if gangs else 'jobs'}, 1/{supply} of them GPUs"
        note = f"both stages; optimum {level:.6f}"
        yield at_most(
            system,
            figure=f"{what}: CPU s",
            reference=CPU_LIMIT_S,
            measured=cpu_s,
            cpu_s=cpu_s,
            note=note,
        )
        yield at_most(
            system,
            figure=f"{what}: MiB",
            reference=MEMORY_LIMIT_MIB,
            measured=mib,
            cpu_s=0.0,
            note=note,
        )
    table = read_table(folder / "simulation_throughputs.json")
    problem = tabled_jobs(table, 128)
    clock = CpuClock()
    apart_level = optimum(problem, least_attained_service(problem)).level
    small, _ = merged(problem)
    gap = abs(optimum(small, least_attained_service(small)).level / apart_level - 1)
    yield at_most(
        system,
        figure="128 jobs: gap of classes to jobs",
        reference=1e-6,
        measured=gap,
        cpu_s=clock.lap(),
    )
    problem = tabled_jobs(table, 8192)
    clock = CpuClock()
    small, row = merged(problem)
    best = refined(small, least_attained_service(small))
    pairs = sum(1 for _ in split(best.columns, best.share, row))
    cpu_s = clock.lap()
    note = f"{small.jobs} classes; shares of {pairs} jobs and pairs handed out"
    yield at_most(
        system,
        figure="8192 jobs as classes: CPU s",
        reference=1.0,
        measured=cpu_s,
        cpu_s=cpu_s,
        note=note,
    )
