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
    """Return the last moment (ms) that jobs tell of, or 0 where there are none."""
    return max((pc.max(table[name].cast(pa.int64())).as_py() or 0 for name in _TIMES), default=0)


def runs(table: pa.Table) -> pa.ChunkedArray:
    """Return which jobs had not ended when the trace was taken."""
    return pc.fill_null(pc.equal(table["state"].cast(pa.string()), State.RUNNING.value), False)


def until(table: pa.Table, last: int) -> pa.Table:
    """Return the jobs with a start and an end. Running jobs end at the last moment (ms) of the
    dump, since they hold their GPUs until then. One past its limit has ended without a record.
    """
    start, end = (table[name].cast(pa.int64()) for name in ("start_time", "end_time"))
    limit = pc.fill_null(pc.cast(table["time_limit_s"], pa.float64()), float("inf"))
    ran_s = pc.divide(pc.cast(pc.subtract(last, start), pa.float64()), 1000.0)
    still = pc.and_(pc.and_(runs(table), end.is_null()), pc.less(ran_s, limit))
    table = with_column(table, "end_time", pc.if_else(still, last, end))
    table = with_column(table, "duration_s", pc.if_else(still, ran_s, table["duration_s"]))
    return table.filter(pc.and_(table["start_time"].is_valid(), table["end_time"].is_valid()))


def from_eligible(table: pa.Table) -> tuple[pa.Table, int]:
    """Return the table with submissions moved to when jobs were eligible, in the new order, and how
    many were moved.

    A column `before_s` says by how much.
    """
    submit, start = (table[f"{n}_time"].cast(pa.int64()).to_numpy() for n in ("submit", "start"))
    eligible = pc.fill_null(table["eligible_time"].cast(pa.int64()), 0).to_numpy()
    moved = np.clip(eligible, submit, np.maximum(start, submit))
    order = np.argsort(moved, kind="stable")
    table = table.append_column("before_s", pa.array((moved - submit) / 1000))
    table = with_column(table, "submit_time", moved).take(pa.array(order))
    return table, int((moved > submit).sum())


class Window(TypedDict):
    """The days that are replayed, out of how many days and jobs. `cut`: the dump was too large
    to replay whole.
    """

    days: float
    of_days: float
    of_jobs: int
    cut: bool
    first: float


def window_of(
    table: pa.Table, last_days: float | None, most: int | None
) -> tuple[pa.Table, Window]:
    """Return the last days of a table, with the jobs that ran or waited as they began (`carried`),
    and the window.
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
    """Return the jobs submitted since a time (ms), and those that ran or waited then. The new
    column `carried` marks the latter, and jobs that still run when the dump ends.
    """
    carried = table["submit_time"].cast(pa.int64()).to_numpy() < since
    kept = ~carried | (table["end_time"].cast(pa.int64()).to_numpy() > since)
    table, carried = table.filter(pa.array(kept)), carried[kept]
    if carried.any():
        table = _carried_over(table, carried, since)
    return table.append_column("carried", pc.or_(pa.chunked_array([carried]), runs(table)))


def _carried_over(table: pa.Table, carried: Any, since: int) -> pa.Table:
    """Return the table with the jobs in mask `carried`, submitted before `since` (ms),
    submitted just before it instead; of those that ran then, only the rest is left to run.
    Sorted by submission.
    """
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
