"""Chooses which days of a dump are replayed, and from when each job could have started."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import State

DAY_S = 86_400.0
DAY_MS = 86_400_000
# Submitted so long before the window opens: what ran then starts before anything else does.
CARRIED_S = 61.0
_TIMES = ("submit_time", "start_time", "end_time")


def latest(table: pa.Table) -> int:
    """Return the last time in the table (milliseconds since the epoch), or 0 if it has none."""
    return max((pc.max(table[name].cast(pa.int64())).as_py() or 0 for name in _TIMES), default=0)


def runs(table: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the jobs that had not ended when the dump was made."""
    return pc.fill_null(pc.equal(table["state"].cast(pa.string()), State.RUNNING.value), False)


def until(table: pa.Table, last: int) -> pa.Table:
    """Return the jobs with a start and an end. Running jobs end at `last`, the last time in the
    dump (milliseconds since the epoch), since they hold their GPUs until then. A running job past
    its time limit is left out: its end was not recorded. So are starts that failed at once and were
    requeued: their jobs waited on, and nothing ran."""
    start, end = (table[name].cast(pa.int64()) for name in ("start_time", "end_time"))
    limit = pc.fill_null(pc.cast(table["time_limit_s"], pa.float64()), float("inf"))
    ran_s = pc.divide(pc.cast(pc.subtract(last, start), pa.float64()), 1000.0)
    still = pc.and_(pc.and_(runs(table), end.is_null()), pc.less(ran_s, limit))
    table = with_column(table, "end_time", pc.if_else(still, last, end))
    table = with_column(table, "duration_s", pc.if_else(still, ran_s, table["duration_s"]))
    table = table.filter(pc.and_(table["start_time"].is_valid(), table["end_time"].is_valid()))
    again = pc.equal(table["state"].cast(pa.string()), State.PREEMPTED.value)
    ran = pc.greater(table["end_time"].cast(pa.int64()), table["start_time"].cast(pa.int64()))
    return table.filter(pc.or_(ran, pc.invert(pc.fill_null(again, False))))


def from_eligible(table: pa.Table) -> tuple[pa.Table, int]:
    """Return (table, number of jobs moved), with each submission moved to the time when the job
    was eligible to start (at the latest, to its start), in the order of the new times.

    The new column `before_s` holds the seconds by which it was moved.
    """
    submit, start = (table[f"{n}_time"].cast(pa.int64()).to_numpy() for n in ("submit", "start"))
    eligible = pc.fill_null(table["eligible_time"].cast(pa.int64()), 0).to_numpy()
    moved = np.clip(eligible, submit, np.maximum(start, submit))
    order = np.argsort(moved, kind="stable")
    table = table.append_column("before_s", pa.array((moved - submit) / 1000))
    table = with_column(table, "submit_time", moved).take(pa.array(order))
    return table, int((moved > submit).sum())


class Window(TypedDict):
    """The window that is replayed: `days` out of `of_days` days and `of_jobs` jobs in the dump.
    `cut` says whether the dump was too large to replay all of it. `first` is when the window
    begins, seconds since the epoch."""

    days: float
    of_days: float
    of_jobs: int
    cut: bool
    first: float


def window_of(
    table: pa.Table, last_days: float | None, most: int | None
) -> tuple[pa.Table, Window]:
    """Return (jobs, window): the jobs of the last days, and those that ran or waited when these
    days began (marked `carried`).

    Args:
        last_days: number of days; None: as many as `most` allows.
        most: most jobs to keep, without `last_days`; None: keep all.
    """
    submit = table["submit_time"].cast(pa.int64()).to_numpy()
    first, last = int(submit[0]), int(submit[-1])
    cut = last_days is None and most is not None and len(submit) > most
    if cut and most is not None:
        held = (last - int(submit[-most])) / DAY_MS
        last_days = max(float(int(held)), min(held, 1.0))
    window: Window = {
        "days": (last - first) / DAY_MS if last_days is None else last_days,
        "of_days": (last - first) / DAY_MS,
        "of_jobs": len(submit),
        "cut": cut,
        "first": first / 1000,
    }
    if last_days is not None and last - last_days * DAY_MS > first:
        window["first"] = (last - int(last_days * DAY_MS)) / 1000
    return opened(table, int(window["first"] * 1000)), window


def opened(table: pa.Table, since: int) -> pa.Table:
    """Return the jobs submitted from the time `since` (milliseconds since the epoch) on, and those
    that ran or waited then. The new column `carried` marks the latter, and jobs that still run when
    the dump ends."""
    carried = table["submit_time"].cast(pa.int64()).to_numpy() < since
    kept = ~carried | (table["end_time"].cast(pa.int64()).to_numpy() > since)
    table, carried = table.filter(pa.array(kept)), carried[kept]
    if carried.any():
        table = _carried_over(table, carried, since)
    return table.append_column("carried", pc.or_(pa.chunked_array([carried]), runs(table)))


def _carried_over(table: pa.Table, carried: Any, since: int) -> pa.Table:
    """Return the table, sorted by submission, in which the jobs of mask `carried` are submitted
    just before the time `since` (milliseconds). Those that already ran have only the rest of
    their duration, and of their time limit, left."""
    submit, start, end = (
        table[f"{n}_time"].cast(pa.int64()).to_numpy() for n in ("submit", "start", "end")
    )
    runs = carried & (start < since)
    early = since - int(CARRIED_S * 1000)
    moved = np.where(runs, early, np.where(carried, since - 1, submit))
    left = np.where(runs, (end - since) / 1000, (end - start) / 1000)
    limits = pc.cast(table["time_limit_s"], pa.float64()).to_numpy(zero_copy_only=False)
    limits = np.where(runs, np.maximum(1.0, limits - (since - start) / 1000), limits)
    table = with_column(with_column(table, "submit_time", moved), "duration_s", left)
    table = with_column(table, "time_limit_s", pa.array(limits, from_pandas=True))
    return table.take(pa.array(np.argsort(moved, kind="stable")))


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    place, kind = table.schema.get_field_index(name), table.schema.field(name)
    column = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    return table.set_column(place, kind, column.cast(kind.type))
