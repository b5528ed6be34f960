"""Reads Alibaba's trace of pods of 2023 (cluster-trace-gpu-v2023, "openb")."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from features.schema import State
from pipeline.traces.base import Options
from pipeline.traces.cast import from_floats, offset_times
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column
from pipeline.traces.tables import TableAdapter

_STATES = {
    "Succeeded": State.COMPLETED,
    "Failed": State.FAILED,
    "Running": State.RUNNING,
    "Pending": State.PENDING,
}


class Openb(TableAdapter):
    """Reads ``openb_pod_list_*.csv``. Times are seconds since an undisclosed time.

    The phase of a pod is that of a snapshot. Pods that were then running have a deletion time, too,
    which is kept as the end (warning ``ended_after_snapshot``).
    """

    name = "openb"
    version = 1
    title = "Alibaba openb 2023 pod list"
    origin = datetime(2023, 1, 1, tzinfo=UTC)
    states = _STATES
    columns = (
        Column("name", "job_id", "text"),
        Column("cpu_milli", "cpus", "number"),
        Column("memory_mib", "memory_mib", "number"),
        Column("num_gpu", "gpus", "number"),
        Column("gpu_milli", "gpu_share", "number"),
        Column("gpu_spec", "gpu_type"),
        Column("qos", "qos"),
        Column("pod_phase", "state"),
        Column("creation_time", "submit_time", "number"),
        Column("deletion_time", "end_time", "number"),
        Column("scheduled_time", "start_time", "number"),
    )

    def convert(self, draft: Draft, options: Options) -> None:
        self.map_states(draft)
        for name in ("submit_time", "start_time", "end_time"):
            draft.columns[name] = offset_times(draft.columns[name], options.origin)
        draft.columns["cpus"] = from_floats(draft.number("cpus") / 1000)
        share = draft.number("gpu_share") / 1000
        # A pod without GPUs asks for no share of one; it is refused for that, not for its share.
        share[draft.number("gpus") == 0] = np.nan
        draft.columns["gpu_share"] = from_floats(share)
        snapshot = draft.columns["state"]
        running = np.array([s == "running" for s in snapshot.dictionary.to_pylist()])
        ended = ~np.isnan(draft.millis("end_time"))
        draft.warn(running[snapshot.indices.to_numpy()] & ended, "ended_after_snapshot")
