"""Makes a table of what happened to each job of a dump."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.replay.causes import CAPACITY, cause_of
from pipeline.replay.extra import Extra
from pipeline.replay.window import waits


def recorded_of(table: pa.Table, extra: Extra) -> pa.Table:
    """Return a table with one row per job. `pipeline.replay.site.Site.recorded` describes its
    columns."""
    submit, start, end = (seconds(table, f"{name}_time") for name in ("submit", "start", "end"))
    return pa.table(
        {
            "user": [name or "-" for name in text(table, "user")],
            "vc": [name or "" for name in text(table, "vc")],
            "gpus": table["gpus"],
            "state": text(table, "state"),
            "submit": submit,
            "wait_s": np.maximum(0.0, start - submit),
            "ran_s": np.maximum(0.0, end - start),
            "carried": table["carried"],
            "before_s": table["before_s"],
            "cause": [
                cause_of(reason, eligible_later=before > 0)
                for reason, before in zip(
                    extra.of("Reason"), table["before_s"].to_pylist(), strict=True
                )
            ],
            "started_by": [_PASSES.get(flags, "") for flags in map(_pass, extra.of("Flags"))],
        }
    )


def in_line(table: pa.Table, extra: Extra) -> tuple[pa.Table, Extra]:
    """Return the jobs without those that had not started when the dump was made and waited for
    anything but their turn, or are parts of heterogeneous jobs; and their further columns. Nobody
    knows when such a job could start, or what it waited for without the column Reason."""
    known = "Reason" in extra.columns
    kept = np.array(
        [
            not waiting or (known and cause_of(reason) == CAPACITY and "+" not in job_id)
            for waiting, reason, job_id in zip(
                waits(table).to_pylist(),
                extra.of("Reason"),
                table["job_id"].to_pylist(),
                strict=True,
            )
        ],
        bool,
    )
    return table.filter(pa.array(kept)), extra.at(np.flatnonzero(kept))


_PASSES = {
    "SchedSubmit": "as it was submitted",
    "SchedMain": "the main pass",
    "SchedBackfill": "backfill",
}


def _pass(flags: str) -> str:
    """Return which scheduling pass of Slurm (main or backfill) started a job, from sacct's column
    Flags; "" if it does not say."""
    return next((flag for flag in re.split(r"[,|]", flags) if flag in _PASSES), "")


def seconds(table: pa.Table, name: str) -> Any:
    """Return a column of times as seconds since the epoch."""
    return table[name].cast(pa.int64()).to_numpy() / 1000


def text(table: pa.Table, name: str) -> list[str | None]:
    """Return a column as Python texts; None for null."""
    values: list[str | None] = table[name].cast(pa.string()).to_pylist()
    return values
