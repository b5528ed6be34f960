"""From replays to figures: per replay, over replays, by user and partition, against the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

import numpy as np
import pandas as pd

from pipeline.replay.causes import WORDS
from pipeline.student import bound
from scheduler.explain.words import duration

Figures = dict[str, Any]

WAITED_S = 60.0
NEAR_S = 600.0
# A replay of Slurm's own schedule has to come so near before savings are stated: averages within
# FIT_MEAN of the record, waits in the same order with a rank correlation of FIT_RANK: two runs of
# slurmctld itself with the same submissions have as much and little more (docs/replay.md). Records
# have whole seconds, so SHORT_S says nothing.
FIT_MEAN, SHORT_S, FIT_RANK = 0.15, 1.0, 0.8


def of_record(record: pd.DataFrame) -> Figures:
    """What happened: waits and GPU-hours of the jobs replayed, by outcome too."""
    hours = record["gpus"] * record["ran_s"] / 3600
    ended = hours.groupby(record["state"]).agg(["size", "sum"]).sort_values("sum", ascending=False)
    return {
        "jobs": len(record),
        "gpu_hours": float(hours.sum()),
        "avg_wait_s": float(record["wait_s"].mean()),
        "p99_wait_s": float(record["wait_s"].quantile(0.99)),
        "longest_wait_s": float(record["wait_s"].max()),
        "avg_jct_s": float((record["wait_s"] + record["ran_s"]).mean()),
        "waited_share": float((record["wait_s"] > WAITED_S).mean()),
        "states": [
            {"state": str(state), "jobs": int(row["size"]), "gpu_hours": float(row["sum"])}
            for state, row in ended.iterrows()
        ],
    }


def apart(record: pd.DataFrame) -> list[Figures]:
    """Recorded waiting by what it was for. Of the jobs submitted in the window."""
    waited = record["wait_s"].groupby(record["cause"]).agg(["size", "sum"])
    before = record["before_s"]
    rows = [
        {
            "cause": cause,
            "jobs": int(waited["size"][cause]),
            "hours": float(waited["sum"][cause]) / 3600,
        }
        for cause in WORDS
        if cause in waited.index
    ]
    if (before > 0).any():
        hours = float(before.sum()) / 3600
        rows.append({"cause": "not eligible", "jobs": int((before > 0).sum()), "hours": hours})
    return rows


def of_replay(frame: pd.DataFrame, record: pd.DataFrame) -> Figures:
    """One replay.

    Args:
        frame: job_id, wait_s, jct_s of every job that ended.
        record: what happened to the jobs that are judged; others are left out of every figure.
    """
    both = record[["job_id", "user", "vc"]].merge(frame, on="job_id")
    return {
        "avg_wait_s": float(both["wait_s"].mean()),
        "p99_wait_s": float(both["wait_s"].quantile(0.99)),
        "avg_jct_s": float(both["jct_s"].mean()),
        "longest_wait_s": float(both["wait_s"].max()),
        "unfinished": len(record) - len(both),
        "by_user": both.groupby("user")["wait_s"].mean().to_dict(),
        "by_vc": both.groupby("vc")["wait_s"].mean().to_dict(),
    }


def by_job(frame: pd.DataFrame, record: pd.DataFrame) -> dict[str, list[float | None]]:
    """Wait and JCT (s) of each job of the record in a replay, in its order; None: never ended."""
    found = frame.set_index("job_id")[["wait_s", "jct_s"]].reindex(record["job_id"])
    return {
        name: [None if value != value else value for value in found[name].tolist()]
        for name in ("wait_s", "jct_s")
    }


def backtest(replayed: pd.DataFrame, record: pd.DataFrame) -> Figures:
    """How far a replay of Slurm's rule is from what happened: of all jobs, by partition, by what
    they waited for and by the pass that started them.

    Args:
        replayed: job_id, wait_s.
        record: of the jobs whose waiting that replay can show.
    """
    both = record.merge(replayed[["job_id", "wait_s"]], on="job_id", suffixes=("", "_replayed"))
    return {
        **_fit(both),
        "unfinished": len(record) - len(both),
        **{
            f"by_{name}": [
                {"name": str(group), **_fit(rows)}
                for group, rows in sorted(both.groupby(column), key=lambda one: -len(one[1]))
                if str(group)
            ]
            for name, column in (("vc", "vc"), ("cause", "cause"), ("pass", "started_by"))
        },
    }


def _fit(both: pd.DataFrame) -> Figures:
    waited, off = both["wait_s"] > WAITED_S, (both["wait_s_replayed"] - both["wait_s"]).abs()
    return {
        "jobs": len(both),
        "avg_wait_recorded_s": _mean(both["wait_s"]),
        "avg_wait_replayed_s": _mean(both["wait_s_replayed"]),
        "within_10_min": _mean(off <= NEAR_S),
        "within_10_min_of_those_who_waited": _mean(off[waited] <= NEAR_S),
        "rank_correlation": _same_order(both),
    }


def _same_order(both: pd.DataFrame) -> float | None:
    """Rank correlation of waits (Spearman); None where all waited alike."""
    ranks = both[["wait_s", "wait_s_replayed"]].rank()
    if ranks["wait_s"].nunique() < 2:
        return None
    if ranks["wait_s_replayed"].nunique() < 2:
        return 0.0
    return float(ranks["wait_s"].corr(ranks["wait_s_replayed"]))


def _mean(values: pd.Series[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def misfit(found: Figures | None) -> list[str]:
    """Why a back-test is too poor to state savings on; empty: it is not."""
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
    if rank is not None and rank < FIT_RANK and max(was, now) > SHORT_S:
        reasons.append(
            f"It does not make the same jobs wait: rank correlation {floor(100 * rank) / 100:.2f}; "
            f"{FIT_RANK:.1f} is the least."
        )
    return reasons


def doubts(cell: Figures | None) -> list[str]:
    """Why no saving is stated that is counted against a replay of Slurm's rule; empty: it is.

    Args:
        cell: of `cell`. Where its `backtest` is not of the very replay that savings are counted
            in, `counted` is, and both have to fit.
    """
    if cell is None:
        return misfit(None)
    found = misfit(cell["backtest"])
    if found or "counted" not in cell:
        return found
    found = misfit(cell["counted"])
    return [COUNTED_IN, *found] if found else []


COUNTED_IN = (
    "Savings would be counted where jobs that waited for limits and the like come when they "
    "started, as no other policy knows those; and so replayed, Slurm's own schedule is too far "
    "from the record."
)


_MEANS = ("avg_wait_s", "p99_wait_s", "avg_jct_s", "longest_wait_s")


def over_seeds(
    cells: Sequence[Figures],
    against: Sequence[Figures] | None,
    jobs: int,
    plain: Sequence[Figures] | None = None,
) -> Figures:
    """One variant: means with standard errors, and the differences to others on the same seeds.

    Args:
        cells: of `of_replay`, seed by seed.
        against: the same of the variant to compare with (Slurm's rule); None when there is none.
        jobs: jobs judged.
        plain: the same of the variant that this one adds something to; None when there is none.

    `saved_hours` is the waiting saved against the first, over all jobs, `added_hours` against the
    second. Every `_ci95` is half the width of a 95 % interval (Student's t over the seeds, paired
    for the differences), None with one seed.
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


def by_name(
    found: Mapping[str, Sequence[Figures]], record: pd.DataFrame, column: str
) -> list[Figures]:
    """Mean waits by user or partition: recorded and under each variant, most jobs first.

    None where none of them ended in any replay.
    """
    out = record.groupby(column).agg(jobs=("job_id", "size"), recorded_s=("wait_s", "mean"))
    for key, cells in found.items():
        means = [pd.Series(cell[f"by_{column}"], dtype=float) for cell in cells]
        out[f"{key}_s"] = pd.concat(means, axis=1).mean(axis=1)
    out = out.sort_values("jobs", ascending=False, kind="stable").reset_index(names="name")
    return [
        {str(key): None if value != value else value for key, value in row.items()}
        for row in out.to_dict("records")
    ]
