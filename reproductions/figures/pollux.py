"""Figures of Pollux, and of the systems it was compared with, on the workloads of its artifact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from reproductions.allocation.statistics import Configuration, StepTimes
from reproductions.figures.figure import (
    CpuClock,
    Figure,
    at_least,
    at_most,
    exact,
    ordered,
    within,
)
from reproductions.pollux.throughput import fit
from reproductions.registry import build
from reproductions.workloads.pollux import applications, open_workload, recorded
from reproductions.workloads.pollux.applications import Application
from scheduler.simulation.loop import Outcome

WORKLOADS = range(1, 9)
HELD_OUT, SEEDS = 0.3, 5  # share of placements that are not fitted; draws of them
AVG_JCT_6 = {"tiresias-las": 3469.69375, "optimus-oracle": 5301.875, "pollux": 2446.13}
MAKESPAN_H = 16.29  # of workload 6 under Pollux
NOT_AVOIDED_8 = 3903.0  # of Pollux where it does not avoid interference, and that costs half
MEAN_8 = {"pollux": 2751.1, "tiresias-las": 4038.18, "optimus-oracle": 5681.94}


def figures(data: Path) -> Iterable[Figure]:
    """Yield the figures of the model fits first, then those of deterministic policies, then those
    of Pollux.
    """
    folder = data / "pollux"
    apps = applications(folder / "traces")
    for app in apps.values():
        yield from _fits(app)
    world = _World(folder, apps)
    yield from _recorded_exactly(world, "tiresias-las", "tiresias")
    yield from _recorded_exactly(world, "optimus-oracle", "optimus")
    yield from _pollux(world)
    yield ordered(
        system="all",
        figure="order of mean JCT",
        order=("pollux", "tiresias-las", "optimus-oracle"),
        values=world.means,
        cpu_s=0.0,
    )


class _World:
    """The eight workloads, and the mean JCT of every policy that was run on them."""

    def __init__(self, folder: Path, apps: dict[str, Application]):
        self.folder, self.apps = folder, apps
        self.means: dict[str, float] = {}
        self.on_6: dict[str, Outcome] = {}

    def run(
        self, name: str, *, interference: float = 0.0, **settings: Any
    ) -> Iterator[tuple[str, Outcome, float]]:
        """Yield (workload, outcome, CPU seconds) of a policy on each workload. Its mean JCT is
        kept, unless jobs interfere or settings are given.
        """
        sums, plain = [], not (interference or settings)
        for number in WORKLOADS:
            clock = CpuClock()
            workload = open_workload(
                self.folder / "workloads" / f"workload-{number}.csv",
                apps=self.apps,
                interference=interference,
            )
            policy = build(name, {**workload.settings.get(name, {}), **settings})
            outcome = workload.simulate(policy)
            sums.append(_average(outcome))
            if number == 6 and plain:
                self.on_6[name] = outcome
            yield f"workload-{number}", outcome, clock.lap()
        if plain:
            self.means[name] = fmean(sums)


def _average(outcome: Outcome) -> float:
    return fmean(result.jct_s for result in outcome.jobs)


def _makespan_h(outcome: Outcome) -> float:
    return max(result.end_time or 0.0 for result in outcome.jobs) / 3600


def _fits(app: Application) -> Iterator[Figure]:
    """Yield the errors of the throughput model: on every measured placement, and on placements
    it never saw.
    """
    clock = CpuClock()
    rows = list(app.measurements())
    whole = _error(rows, rows)
    yield at_most(
        system="pollux fit",
        figure=f"{app.name}: mean relative error of step times",
        reference=0.10,
        measured=whole,
        cpu_s=clock.lap(),
    )
    placements = sorted({gpus for gpus, _, _ in rows})
    errors = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        drawn = rng.permutation(len(placements))[: int(HELD_OUT * len(placements))]
        held = {placements[i] for i in drawn}
        errors.append(
            _error([r for r in rows if r[0] not in held], [r for r in rows if r[0] in held])
        )
    yield at_most(
        system="pollux fit",
        figure=f"{app.name}: the same on held-out placements",
        reference=0.15,
        measured=fmean(errors),
        cpu_s=clock.lap(),
        note=f"30 % of placements, mean of {SEEDS} draws, worst {max(errors):.3f}",
    )


_Row = tuple[tuple[int, ...], int, StepTimes]  # GPUs on each node, batch on each GPU, seconds


def _error(seen: list[_Row], judged: list[_Row]) -> float:
    """Return the mean relative error of predicted step times of `judged`, by a model fitted to
    the mean of each (nodes, GPUs, batch) in `seen`.
    """
    pooled: dict[Configuration, list[StepTimes]] = defaultdict(list)
    for gpus, per_gpu, times in seen:
        pooled[Configuration(len(gpus), sum(gpus), per_gpu)].append(times)
    found = fit({where: StepTimes(*np.mean(all_, axis=0)) for where, all_ in pooled.items()})
    return fmean(
        abs(times.step_s / found.step_s(len(gpus), sum(gpus), per_gpu) - 1)
        for gpus, per_gpu, times in judged
    )


def _recorded_exactly(world: _World, name: str, recorded_as: str) -> Iterator[Figure]:
    known = recorded(world.folder / "results-jobload", recorded_as)
    differ, cpu_s = 0, 0.0
    for workload, outcome, seconds in world.run(name):
        cpu_s += seconds
        differ += sum(known[workload][r.job.job_id] != r.jct_s for r in outcome.jobs)
    jobs = sum(len(jcts) for jcts in known.values())
    average = _average(world.on_6[name])
    yield exact(
        system=name,
        figure="average JCT on workload-6, s",
        reference=AVG_JCT_6[name],
        measured=average,
        cpu_s=0.0,
    )
    figure = f"job JCTs that differ from the recorded ones, of {jobs}"
    yield exact(system=name, figure=figure, reference=0.0, measured=float(differ), cpu_s=cpu_s)


def _pollux(world: _World) -> Iterator[Figure]:
    known = recorded(world.folder / "results-jobload", "pollux")
    for workload, outcome, cpu_s in world.run("pollux"):
        average, restarts = (
            _average(outcome),
            fmean(r.resizes + r.preemptions for r in outcome.jobs),
        )
        reference = fmean(known[workload].values())
        note = f"{restarts:.1f} restarts a job"
        figure = f"average JCT on {workload}, s"
        yield within(0.05)(
            system="pollux",
            figure=figure,
            reference=reference,
            measured=average,
            cpu_s=cpu_s,
            note=note,
        )
        if workload == "workload-6":
            span = _makespan_h(outcome)
            yield within(0.05)(
                system="pollux",
                figure="makespan of workload-6, h",
                reference=MAKESPAN_H,
                measured=span,
                cpu_s=0.0,
            )
            yield at_most(
                system="pollux",
                figure="CPU s of workload-6",
                reference=300.0,
                measured=cpu_s,
                cpu_s=cpu_s,
            )
            for other, least in (("optimus-oracle", 0.45), ("tiresias-las", 0.28)):
                less = 1 - average / _average(world.on_6[other])
                yield at_least(
                    system="pollux",
                    figure=f"JCT below {other} on workload-6",
                    reference=least,
                    measured=less,
                    cpu_s=0.0,
                )
    mean = world.means["pollux"]
    yield within(0.05)(
        system="pollux",
        figure="average JCT, mean of eight workloads, s",
        reference=MEAN_8["pollux"],
        measured=mean,
        cpu_s=0.0,
    )
    spread = {"avoid_interference": False, "utility": True}
    runs = list(world.run("pollux", interference=0.5, **spread))
    yield within(0.05)(
        system="pollux",
        figure="the same where jobs of several nodes lose half on a node with another, not avoided",
        reference=NOT_AVOIDED_8,
        measured=fmean(_average(outcome) for _, outcome, _ in runs),
        cpu_s=sum(cpu_s for *_, cpu_s in runs),
        note="utility: true",
    )
