"""Reads Alibaba's trace of 2026 with jobs on spot GPUs (cluster-trace-v2026-spot-gpu)."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from pipeline.traces.base import Options
from pipeline.traces.cast import from_floats, offset_times
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column
from pipeline.traces.tables import TableAdapter


class Spot(TableAdapter):
    """Reads ``job_info_df.csv``. Times are seconds since the first job; requests are per worker.

    The GPUs that a worker asks for are rounded up to whole ones; ``gpu_share`` is the part of
    these that it asks for, such as 0.75 if it asks for 1.5. The trace has no states and no
    starts: it does not say how a job ended or whether it was preempted."""

    name = "spot2026"
    version = 1
    title = "Alibaba v2026 spot job_info_df.csv"
    origin = datetime(2025, 1, 1, tzinfo=UTC)
    columns = (
        Column("job_name", "job_id", "text"),
        Column("organization", "vc"),
        Column("gpu_model", "gpu_type"),
        Column("cpu_request", "cpus", "number"),
        Column("gpu_request", "gpu_request", "number"),
        Column("worker_num", "workers", "number"),
        Column("submit_time", "submit_time", "number"),
        Column("duration", "recorded_duration_s", "number"),
        Column("job_type", "qos"),
    )

    def convert(self, draft: Draft, options: Options) -> None:
        draft.columns["submit_time"] = offset_times(draft.columns["submit_time"], options.origin)
        request, workers = draft.number("gpu_request"), draft.number("workers")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            draft.refuse(
                (workers < 1) | (workers != np.floor(workers)) & (workers == workers), "bad_workers"
            )
            draft.refuse(request < 0, "bad_gpus")
            whole = np.ceil(request)
            draft.columns["gpus"] = from_floats(whole * workers)
            draft.columns["gpu_share"] = from_floats(np.where(whole > 0, request / whole, np.nan))
            draft.columns["cpus"] = from_floats(draft.number("cpus") * workers)
