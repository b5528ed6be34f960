"""Makes a table of what happened to each job of a dump."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.replay.causes import cause_of
from pipeline.replay.extra import Extra


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
