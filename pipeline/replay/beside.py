"""Jobs without GPUs, which take CPUs and memory of nodes that jobs with GPUs wait for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.replay.extra import read_extra
from pipeline.replay.record import recorded_of
from pipeline.replay.twin import Rows
from pipeline.worlds.plain import workload_of
from pipeline.worlds.shape import Shape
from scheduler.simulation.work import Workload


@dataclass(frozen=True)
class Beside:
    """The jobs without GPUs, in their virtual clusters. `recorded` has the columns of
    `Site.recorded`."""

    workload: Workload
    recorded: pa.Table
    rows: Rows

    def arriving(self, modelled: frozenset[str]) -> Workload:
        """Return the workload of these jobs with the submission times that the function `arriving`
        changes."""
        return arriving(self.workload, self.recorded, modelled)


def arriving(workload: Workload, recorded: pa.Table, modelled: frozenset[str]) -> Workload:
    """Return the workload with changed submission times. A job that waited for a cause outside
    of `modelled` is submitted at its recorded start, since no policy could have started it
    before. Jobs that only fill the cluster (`carried`) are left as they are."""
    columns = ("job_id", "submit", "wait_s", "cause", "carried")
    late = {
        job_id: submit + wait
        for job_id, submit, wait, cause, carried in zip(
            *(recorded[name].to_pylist() for name in columns), strict=True
        )
        if cause not in modelled and wait > 0 and not carried
    }
    if not late:
        return workload
    jobs = [
        replace(job, submit_time=late.get(job.job_id, job.submit_time)) for job in workload.jobs
    ]
    jobs.sort(key=lambda job: job.submit_time)
    return replace(workload, jobs=jobs)


def beside_of(table: pa.Table, dump: Path, shape: Shape, taken: Collection[str]) -> Beside | None:
    """Return the jobs without GPUs that ask for no more CPUs than the nodes of the partition in
    which they ran have together. Return None if there are none.

    Args:
        table: the jobs without GPUs.
        dump: the file of sacct that they come from.
        shape: the nodes of the cluster, including those without GPUs.
        taken: ids of jobs with GPUs; a job without GPUs that has one of them is left out.
    """
    cpus: dict[str, int] = {}
    for node in shape.nodes:
        for name in node.partitions:
            cpus[name] = cpus.get(name, 0) + node.cpus
    partitions = [name or "" for name in table["vc"].cast(pa.string()).to_pylist()]
    asked = [count or 0 for count in table["cpus"].to_pylist()]
    ids = table["job_id"].to_pylist()
    fits = np.array(
        [
            cpus.get(name, 0) >= max(1, count) and job_id not in taken
            for name, count, job_id in zip(partitions, asked, ids, strict=True)
        ],
        bool,
    )
    table = table.filter(pa.array(fits))
    if not len(table):
        return None
    extra = read_extra(dump, table["source_line"].to_numpy())
    recorded = recorded_of(table, extra)
    workload = workload_of(table, shape.spec, "without GPUs")
    recorded = recorded.add_column(0, "job_id", [[job.job_id for job in workload.jobs]])
    partitions = recorded["vc"].to_pylist()
    jobs = [
        replace(job, vc=shape.pools[name])
        for job, name in zip(workload.jobs, partitions, strict=True)
    ]
    rows = Rows(jobs, partitions, extra)
    return Beside(replace(workload, jobs=jobs), recorded, rows)
