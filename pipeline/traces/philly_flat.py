"""Reads the flat list of Philly's jobs that the artifacts of several schedulers contain."""

from __future__ import annotations

import numpy as np

from pipeline.traces.base import Options
from pipeline.traces.check import TOLERANCE_S, Draft
from pipeline.traces.delimited import Column
from pipeline.traces.tables import TableAdapter


class PhillyFlat(TableAdapter):
    """Reads ``philly.csv``: submission, duration, GPUs and VC. It has no ids, users, names, states
    or starts."""

    name = "philly-csv"
    version = 1
    title = "Philly flat philly.csv"
    timezone = "America/Los_Angeles"
    line_ids = True
    columns = (
        Column("timestamp", "submit_time", "time"),
        Column("duration", "recorded_duration_s", "number"),
        Column("num_gpus", "gpus", "number"),
        Column("gpu_time", "gpu_time", "number"),
        Column("cluster", "vc"),
    )

    def convert(self, draft: Draft, options: Options) -> None:
        self.localise(draft, options.timezone, "submit_time")
        with np.errstate(invalid="ignore"):
            expected = draft.number("recorded_duration_s") * draft.number("gpus")
            draft.warn(
                np.abs(draft.number("gpu_time") - expected) > TOLERANCE_S, "gpu_time_differs"
            )
