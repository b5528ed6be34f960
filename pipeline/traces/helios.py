"""Reads the traces of Helios, SenseTime's clusters (Hu et al., SC'21): the published one, and the
one with more columns in Lucid's artifact."""

from __future__ import annotations

from features.schema import State
from pipeline.traces.base import Options
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column
from pipeline.traces.tables import TableAdapter

SLURM_ENDS = {
    "COMPLETED": State.COMPLETED,
    "CANCELLED": State.CANCELLED,
    "FAILED": State.FAILED,
    "TIMEOUT": State.TIMEOUT,
    "NODE_FAIL": State.NODE_FAIL,
}
SLURM_STATES = {
    **SLURM_ENDS,
    "REVOKED": State.CANCELLED,
    "DEADLINE": State.TIMEOUT,
    "BOOT_FAIL": State.NODE_FAIL,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "PREEMPTED": State.PREEMPTED,
    "RUNNING": State.RUNNING,
    "COMPLETING": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "PENDING": State.PENDING,
    "CONFIGURING": State.PENDING,
    "REQUEUED": State.PENDING,
    "REQUEUE_HOLD": State.PENDING,
}


class Helios(TableAdapter):
    """Reads ``cluster_log.csv`` of HeliosData. Its clock times are those of the site in China,
    without zone."""

    name = "helios"
    version = 1
    title = "Helios cluster_log.csv"
    timezone = "Asia/Shanghai"
    states = SLURM_ENDS
    columns = (
        Column("job_id", "job_id", "text"),
        Column("user", "user"),
        Column("vc", "vc"),
        Column("gpu_num", "gpus", "number"),
        Column("cpu_num", "cpus", "number"),
        Column("node_num", "nodes", "number"),
        Column("state", "state"),
        Column("submit_time", "submit_time", "time"),
        Column("start_time", "start_time", "time"),
        Column("end_time", "end_time", "time"),
        Column("duration", "recorded_duration_s", "number"),
        Column("jobname", "name", "text", required=False),
    )

    def convert(self, draft: Draft, options: Options) -> None:
        self.localise(draft, options.timezone, "submit_time", "start_time", "end_time")
        self.map_states(draft)


class HeliosFull(TableAdapter):
    """Reads ``cluster_full_log.csv`` of Lucid's artifact, which has no start or end, but a workload
    for each job.

    ``submit_time`` is not the wall clock: it shows the seconds since the first GPU job of the trace
    as a date counted from 2020-04-01 00:00:00. The date is read as it is written (in UTC unless
    another zone is declared). On the cluster Venus, the site's clock was 152 s later than that.
    """

    name = "helios-full"
    version = 1
    title = "Helios cluster_full_log.csv of Lucid's artifact"
    timezone = "UTC"
    states = SLURM_ENDS
    columns = (
        Column("job_id", "job_id", "text"),
        Column("user", "user"),
        Column("vc", "vc"),
        Column("jobname", "name", "text"),
        Column("gpu_num", "gpus", "number"),
        Column("cpu_num", "cpus", "number"),
        Column("state", "state"),
        Column("submit_time", "submit_time", "time"),
        Column("duration", "recorded_duration_s", "number"),
        Column("dataset", "dataset", required=False),
        Column("model", "model", required=False),
        Column("batchsize", "batch_size", "number", required=False),
        Column("amp", "amp", "number", required=False),
        Column("gpu_util", "gpu_util_pct", "number", required=False),
        Column("gmem_util", "gpu_mem_util_pct", "number", required=False),
        Column("gmem", "gpu_mem_mib", "number", required=False),
    )

    def convert(self, draft: Draft, options: Options) -> None:
        self.localise(draft, options.timezone, "submit_time")
        self.map_states(draft)
        if "amp" in draft.columns:
            amp = draft.number("amp")
            draft.refuse((amp != 0) & (amp != 1) & (amp == amp), "bad_amp")
