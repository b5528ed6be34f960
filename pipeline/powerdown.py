"""Which nodes could have slept while a run was under way: Helios' CES, as advice (SC'21)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.explain.run import DECISIONS, JOBS, RunError, RunFolder, seconds
from scheduler.core.decisions import Action
from scheduler.policies.ces import INTERVAL_S, Ces, CesAdvice, CesSettings

Floats = NDArray[np.float64]

TAKES = (Action.START, Action.PACK, Action.PROFILE, Action.RESIZE)
LEAVES = (Action.PREEMPT, Action.ENQUEUE, Action.RESIZE)
DAY_S = 86_400.0
LEAST = 100  # intervals a forecast is fitted on, beyond its horizon


@dataclass(frozen=True, slots=True)
class Saving:
    """What was advised over the part of a run the forecast had not seen.

    Attributes:
        nodes: in the cluster.
        asleep: nodes asleep, on average.
        busy_pct, busy_all_pct: nodes in use of those awake, and of all, percent.
        wakings_a_day: intervals in which more nodes were wanted than were awake, a day.
        advice: one per interval.
    """

    nodes: int
    asleep: float
    busy_pct: float
    busy_all_pct: float
    wakings_a_day: float
    advice: list[CesAdvice]


def stints(run: RunFolder) -> Iterator[tuple[float, float, int]]:
    """(from, until, node) of every node a job of a run was on."""
    jobs = seconds(run.table(JOBS, ["job_id", "end_time"]))
    ends = dict(zip(jobs["job_id"].to_pylist(), jobs["end_time"].to_pylist(), strict=True))
    acted = pc.field("action").isin([action.value for action in (*TAKES, *LEAVES)])
    table = run.table(DECISIONS, ["seq", "time", "action", "job_id", "nodes"], acted)
    on: dict[str, tuple[float, list[int]]] = {}
    for row in seconds(table.sort_by("seq")).to_pylist():
        job, time = row["job_id"], row["time"]
        if row["action"] in LEAVES and job in on:
            since, nodes = on.pop(job)
            yield from ((since, time, node) for node in nodes)
        if row["action"] in TAKES and row["nodes"]:
            on[job] = time, row["nodes"]
    for job, (since, nodes) in on.items():
        end = ends.get(job)
        if end is not None:
            yield from ((since, end, node) for node in nodes)


def busy_nodes(run: RunFolder) -> tuple[Floats, Floats]:
    """(most nodes in use at once, end) of every ten minutes of a run, (n,), (n,)."""
    by_node: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for since, until, node in stints(run):
        by_node[node].append((since, until))
    if not by_node:
        raise RunError(f"{run.folder}: nothing ran")
    changes: dict[float, int] = defaultdict(int)
    for held in by_node.values():
        for since, until in merged(sorted(held)):
            changes[since] += 1
            changes[until] -= 1
    times = sorted(changes)
    level = np.cumsum([changes[time] for time in times])
    first = np.floor(times[0] / INTERVAL_S)
    count = int(np.ceil(times[-1] / INTERVAL_S) - first)
    ends = (first + 1 + np.arange(count)) * INTERVAL_S
    # of each interval: what it began with, and every level reached within it
    series = np.zeros(count)
    at = np.searchsorted(times, ends - INTERVAL_S, side="right") - 1
    series[at >= 0] = level[at[at >= 0]]
    inside = np.minimum((np.array(times) / INTERVAL_S - first).astype(int), count - 1)
    np.maximum.at(series, inside, level.astype(float))
    return series, ends


def merged(spans: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Overlapping or touching spans as one; `spans` is sorted."""
    since, until = spans[0]
    for start, end in spans[1:]:
        if start > until:
            yield since, until
            since, until = start, end
        else:
            until = max(until, end)
    yield since, until


def advise(
    folder: Path, settings: CesSettings, *, learn: float = 0.5, zone: tzinfo = UTC
) -> Saving:
    """Advice for the rest of a run, by a forecast fitted on the first `learn` of it.

    Raises UserError when the run is too short for that, RunError when the folder is none of a
    finished run.
    """
    from models.training.helios import NodeForecaster, table_forecast

    run = RunFolder(folder)
    series, time = busy_nodes(run)
    nodes = sum(run.summary["cluster"].values())
    horizons = (settings.horizon, 2 * settings.horizon)
    cut = int(learn * len(series))
    if cut < LEAST + max(horizons) or cut >= len(series):
        needed = (LEAST + max(horizons)) / learn * INTERVAL_S / DAY_S
        raise UserError(
            f"{folder} covers {len(series) * INTERVAL_S / DAY_S:.1f} days; a forecast from the "
            f"first {100 * learn:.0f} % of it needs {needed:.1f}"
        )
    forecaster = NodeForecaster(series[:cut], time[:cut], horizons, zone=zone)
    ces = Ces(nodes, settings, table_forecast(forecaster, series, time, horizons))
    advice = [ces.advise(float(busy), float(now)) for busy, now in zip(series, time, strict=True)]
    tested = advice[cut:]
    asleep = fmean(nodes - a.awake for a in tested)
    busy = float(series[cut:].mean())
    woken = sum(a.change > 0 for a in tested)
    return Saving(
        nodes,
        asleep,
        100.0 * busy / (nodes - asleep),
        100.0 * busy / nodes,
        woken / (len(tested) * INTERVAL_S / DAY_S),
        tested,
    )


def table(saving: Saving) -> pa.Table:
    """The advice, one row per ten minutes; times in seconds since the epoch."""
    rows = [{**asdict(advice), "reason": advice.reason.value} for advice in saving.advice]
    return pa.Table.from_pylist(rows)
