"""Tiresias against the average completion times of its published simulator."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reproductions.figures.figure import CpuClock, Figure, exact
from reproductions.tiresias_las import TiresiasLas, TiresiasLasSettings
from reproductions.workloads.tiresias import (
    TRACE,
    GangJob,
    read_trace,
    workload,
)
from scheduler.simulation.loop import Outcome

# Average JCT, seconds, of the published simulator on four nodes of four GPUs.
PUBLISHED: dict[str, dict[str, float]] = {
    "dlas-gpu": {"60": 190.68, "x10": 2130.00, "x30": 6081.50},
    "dlas": {"60": 190.68, "x10": 1916.50, "x30": 6317.33},
    "dlas-gpu-1": {"60": 190.68, "x10": 2078.67, "x30": 6179.15},
    "dlas-gpu-8": {"x10": 2130.00, "x30": 6081.50},
}
PREEMPTIONS = {"x10": 30, "x30": 31}  # of dlas-gpu
PROMOTIONS = {"x10": 10, "x30": 22}  # of dlas-gpu-1


# What each published schedule is here.
SCHEDULES: dict[str, dict[str, Any]] = {
    "dlas-gpu": {},
    "dlas": {"by_gpus": False},
    "dlas-gpu-1": {"promote": 1.0},
    "dlas-gpu-8": {"promote": 8.0},
}


def workloads(data: Path) -> dict[str, list[GangJob]]:
    """Return the released trace as it is ("60"), and stretched tenfold ("x10") and thirtyfold
    ("x30")."""
    trace = data / "tiresias" / TRACE
    stretched = {"60": 1.0, "x10": 10.0, "x30": 30.0}
    return {name: read_trace(trace, stretch=factor)[0] for name, factor in stretched.items()}


def average_jct_s(outcome: Outcome) -> float:
    return sum(result.jct_s for result in outcome.jobs) / len(outcome.jobs)


def figures(data: Path) -> Iterable[Figure]:
    """Yield the figures that compare average completion times and numbers of preemptions and
    promotions with those of the published simulator.
    """
    rows = workloads(data)
    clock = CpuClock()
    for schedule, settings in SCHEDULES.items():
        for name, published in PUBLISHED[schedule].items():
            policy = TiresiasLas(TiresiasLasSettings(published_jumps=True, **settings))
            outcome = workload(rows[name]).simulate(policy)
            yield exact(
                system=f"tiresias {schedule}",
                figure=f"average JCT on {name}, s",
                reference=published,
                measured=round(average_jct_s(outcome), 2),  # as printed
                cpu_s=clock.lap(),
            )
            if schedule == "dlas-gpu" and name in PREEMPTIONS:
                yield exact(
                    system="tiresias dlas-gpu",
                    figure=f"preemptions on {name}",
                    reference=PREEMPTIONS[name],
                    measured=outcome.preemptions,
                    cpu_s=0.0,
                )
            if schedule == "dlas-gpu-1" and name in PROMOTIONS:
                yield exact(
                    system="tiresias dlas-gpu-1",
                    figure=f"promotions on {name}",
                    reference=PROMOTIONS[name],
                    measured=policy.promotions,
                    cpu_s=0.0,
                )
