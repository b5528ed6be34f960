"""Computes figures from replays: per replay, over replays, by user and partition, and compared with
the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.replay.causes import WORDS
from pipeline.student import bound
from pipeline.tables import Floats, floats, groups, means, of_jobs
from scheduler.explain.words import duration

Figures = dict[str, Any]

PARTS = "vc", "gpus", "user"
WAITED_S = 60.0
NEAR_S = 600.0
# A replay of Slurm's own schedule that is further off is doubted aloud: averages more than FIT_MEAN
# from the record, waits in another order than by FIT_RANK of the rank correlation that two replays
# of the same submissions have with each other. Records have whole seconds, so SHORT_S says nothing.
FIT_MEAN, SHORT_S, FIT_RANK = 0.15, 1.0, 0.8


def of_record(record: pa.Table) -> Figures:
    """Return the recorded waits and GPU-hours of the compared jobs, in total and by the state in
    which they ended."""
    wait, ran = floats(record["wait_s"]), floats(record["ran_s"])
    hours = floats(record["gpus"]) * ran / 3600
    states = [
        {"state": state, "jobs": len(rows), "gpu_hours": float(hours[rows].sum())}
        for state, rows in groups(record["state"]).items()
    ]
    return {
        "jobs": len(record),
        "gpu_hours": float(hours.sum()),
        **_waits(wait, wait + ran),
        "waited_share": float((wait > WAITED_S).mean()),
        "states": sorted(states, key=lambda state: -state["gpu_hours"]),
    }


def _waits(wait: Floats, jct: Floats) -> Figures:
    if not len(wait):
        wait = jct = np.array([np.nan])
    return {
        "avg_wait_s": float(wait.mean()),
        "p99_wait_s": float(np.quantile(wait, 0.99)),
        "longest_wait_s": float(wait.max()),
        "avg_jct_s": float(jct.mean()),
    }


def apart(record: pa.Table) -> list[Figures]:
    """Return how long the jobs submitted in the window waited, as recorded: the number of jobs,
    and their wait in hours, one row per cause of waiting. A last row has the time before jobs
    were eligible to start, if there was any."""
    wait, before, found = (
        floats(record["wait_s"]),
        floats(record["before_s"]),
        groups(record["cause"]),
    )
    rows = [
        {"cause": cause, "jobs": len(found[cause]), "hours": float(wait[found[cause]].sum()) / 3600}
        for cause in WORDS
        if cause in found
    ]
    if late := int((before > 0).sum()):
        rows.append({"cause": "not eligible", "jobs": late, "hours": float(before.sum()) / 3600})
    return rows


def of_replay(replayed: pa.Table, record: pa.Table) -> Figures:
    """Return the figures of one replay.

    Args:
        replayed: table with job_id, wait_s and jct_s of every job that ended in the replay.
        record: the recorded jobs that are compared; others are left out of every figure.

    Means are over the jobs that ended; `ended_by_user` and its like are the shares of these
    jobs."""
    found = of_jobs(replayed, record["job_id"])
    ended = found["job_id"].is_valid()
    shares = {f"ended_by_{name}": _ended(record, ended, name) for name in PARTS}
    record, found = record.filter(ended), found.filter(ended)
    return {
        **shares,
        **_waits(floats(found["wait_s"]), floats(found["jct_s"])),
        "unfinished": len(ended) - len(found),
        **{f"by_{name}": means(record[name], found["wait_s"]) for name in PARTS},
    }


def by_job(replayed: pa.Table, record: pa.Table) -> dict[str, list[float | None]]:
    """Return wait and JCT (seconds) of each recorded job in a replay, in the order of `record`;
    None for a job that never ended."""
    found = of_jobs(replayed, record["job_id"])
    return {name: found[name].to_pylist() for name in ("wait_s", "jct_s")}


def backtest(replayed: pa.Table, record: pa.Table) -> Figures:
    """Return how far a replay of Slurm's own schedule, or of plain backfill in its place, is
    from the record: over all jobs, by partition, by cause of waiting, and by the scheduling
    pass of Slurm (main or backfill) that started the job.

    Args:
        replayed: table with job_id and wait_s.
        record: the recorded jobs that waited for causes which the replay models.
    """
    wait = of_jobs(replayed, record["job_id"])["wait_s"]
    record, now = record.filter(wait.is_valid()), floats(wait.drop_null())
    was = floats(record["wait_s"])
    return {
        **_fit(was, now),
        "unfinished": len(wait) - len(now),
        **{
            f"by_{name}": [
                {"name": group, **_fit(was[rows], now[rows])}
                for group, rows in sorted(groups(record[column]).items(), key=lambda x: -len(x[1]))
                if group
            ]
            for name, column in (("vc", "vc"), ("cause", "cause"), ("pass", "started_by"))
        },
    }


def _fit(was: Floats, now: Floats) -> Figures:
    """Return how well replayed waits (`now`) fit the recorded ones (`was`), seconds, one entry per
    job."""
    near = np.abs(now - was) <= NEAR_S
    return {
        "jobs": len(was),
        "avg_wait_recorded_s": _mean(was),
        "avg_wait_replayed_s": _mean(now),
        "within_10_min": _mean(near),
        "within_10_min_of_those_who_waited": _mean(near[was > WAITED_S]),
        "rank_correlation": _same_order(was, now),
    }


def _same_order(was: Floats, now: Floats) -> float | None:
    """Return the rank correlation (Spearman) of two lists of waits: None if all values of `was` are
    equal, 0 if all of `now` are."""
    if len(np.unique(was)) < 2:
        return None
    if len(np.unique(now)) < 2:
        return 0.0
    return float(np.corrcoef(_ranks(was), _ranks(now))[0, 1])


def _ranks(values: Floats) -> Floats:
    """Return the ranks of values, from 1; equal values share the mean of theirs."""
    _, at, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(sizes) - (sizes - 1) / 2)[at]
    return ranks


def _mean(values: np.ndarray[Any, Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def ceiling(base: Sequence[Figures]) -> float:
    """Return the mean rank correlation of waits between the first replay of Slurm's own
    schedule and those with other seeds. A replay cannot be expected to correlate better with
    the record. Return 1.0 for a single replay, or if all waits are equal."""
    waits = [np.array(cell["by_job"]["wait_s"], float) for cell in base if "by_job" in cell]
    found = []
    for other in waits[1:]:
        both = np.isfinite(waits[0]) & np.isfinite(other)
        rank = _same_order(waits[0][both], other[both])
        if rank is not None:
            found.append(rank)
    return float(np.mean(found)) if found else 1.0


def misfit(found: Figures | None, most: float = 1.0) -> list[str]:
    """Return the reasons to doubt a replay of Slurm's own schedule, one sentence each; [] if there
    are none.

    Args:
        found: result of `backtest`; None: Slurm's own schedule was not replayed.
        most: highest rank correlation to be expected, by `ceiling`.
    """
    if found is None:
        return ["Slurm's own schedule was not replayed."]
    if not found["jobs"]:
        return ["No job waited for GPUs alone, so nothing can be checked."]
    reasons = []
    was, now = found["avg_wait_recorded_s"], found["avg_wait_replayed_s"]
    if abs(now - was) > max(FIT_MEAN * was, SHORT_S):
        reasons.append(
            f"The schedule replayed for Slurm's waits {duration(now)} on average where "
            f"{duration(was)} was recorded; more than {FIT_MEAN:.0%} off is too much."
        )
    rank = found["rank_correlation"]
    if rank is not None and rank < FIT_RANK * most and max(was, now) > SHORT_S:
        reasons.append(
            f"It does not make the same jobs wait: rank correlation {floor(100 * rank) / 100:.2f}, "
            f"where two replays of the same weeks have {floor(100 * most) / 100:.2f}."
        )
    return reasons


def doubts(cell: Figures | None, most: float = 1.0) -> list[str]:
    """Return the reasons to doubt savings that are counted against a replay of Slurm's own
    schedule, one sentence each.

    Args:
        cell: figures of the replay, from `runs.cell`. If its `backtest` belongs to another replay
            than the one that savings are counted against, `counted` is the back-test of the latter,
            and both are checked.
        most: highest rank correlation to be expected, by `ceiling`.
    """
    if cell is None:
        return misfit(None)
    found = misfit(cell["backtest"], most)
    if found or "counted" not in cell:
        return found
    found = misfit(cell["counted"], most)
    return [COUNTED_IN, *found] if found else []


COUNTED_IN = (
    "Savings are counted where jobs that waited for limits and the like come when they started, as "
    "no other policy knows those; and so replayed, Slurm's own schedule is far from the record."
)


def _ended(record: pa.Table, ended: pa.ChunkedArray, name: str) -> dict[Any, float]:
    """Return the share of the recorded jobs that ended in a replay, by user, say (`name`)."""
    there = floats(ended)
    return {group: float(there[rows].mean()) for group, rows in groups(record[name]).items()}


_MEANS = ("avg_wait_s", "p99_wait_s", "avg_jct_s", "longest_wait_s")


def over_seeds(
    cells: Sequence[Figures],
    against: Sequence[Figures] | None,
    jobs: int,
    plain: Sequence[Figures] | None = None,
) -> Figures:
    """Return the means of one variant's figures over the seeds, with standard errors, and its
    differences to other variants on the same seeds.

    Args:
        cells: results of `of_replay`, seed by seed.
        against: the same for the variant to compare with (Slurm's own schedule); None: there is
            none.
        jobs: number of jobs compared.
        plain: the same for the variant that this one extends; None: there is none.

    `saved_hours` is the wait saved compared with `against`, over all jobs; `added_hours` that
    compared with `plain`. Every `_ci95` is half the width of a 95 % interval (Student's t over the
    seeds, paired for the differences), None with one seed.
    """
    figures: Figures = {"unfinished": max(cell["unfinished"] for cell in cells)}
    for name in _MEANS:
        values = np.array([cell[name] for cell in cells])
        figures[name] = float(values.mean())
        figures[f"{name}_se"] = _error(values)
        figures[f"{name}_ci95"] = _half_width(values)
    for name, other in (("saved_hours", against), ("added_hours", plain)):
        if other is not None:
            less = np.array(
                [b["avg_wait_s"] - a["avg_wait_s"] for a, b in zip(cells, other, strict=True)]
            ) * (jobs / 3600)
            figures[name], figures[f"{name}_ci95"] = float(less.mean()), _half_width(less)
    return figures


def _error(values: np.ndarray[Any, Any]) -> float | None:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def _half_width(values: np.ndarray[Any, Any]) -> float | None:
    error = _error(values)
    return None if error is None else bound(0.95, len(values) - 1) * error


def by_name(found: Mapping[str, Sequence[Figures]], record: pa.Table, column: str) -> list[Figures]:
    """Return mean waits by user or partition (`column`), seconds: as recorded and under each
    variant. Those with most jobs come first.

    A mean is None if none of its jobs ended in any replay.
    """
    wait = floats(record["wait_s"])
    out: list[Figures] = [
        {
            "name": name,
            "jobs": len(rows),
            "recorded_s": float(wait[rows].mean()),
            **{f"{key}_s": _over(cells, f"by_{column}", name) for key, cells in found.items()},
        }
        for name, rows in groups(record[column]).items()
    ]
    return sorted(out, key=lambda row: -row["jobs"])


def _over(cells: Sequence[Figures], by: str, name: str) -> float | None:
    return _mean(np.array([cell[by][name] for cell in cells if name in cell[by]]))
