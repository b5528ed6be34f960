"""GPUs in use over time, from the decisions and ends of a run.

A start or a packing opens a spell on the job's GPUs that lasts until it is preempted or ends; a
profiling run lasts until the job joins its queue or ends. Two jobs on one GPU use it once: while
a pair shares, its GPUs are counted for one of them. Times are those of the records
(milliseconds), so the result is exact, with one exception: a free profiling pass is
left out, as its time was never charged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.report.comparison import PolicyRun
from pipeline.tables import Floats, filled, floats, groups, of_jobs
from scheduler.core.decisions import GIVES_GPUS, Action, Reason

_OPENING = [move.value for move in GIVES_GPUS]
_CLOSING = (Action.PREEMPT.value, Action.ENQUEUE.value)


@dataclass(frozen=True)
class Usage:
    """GPUs holding at least one job: `gpus[i]` from `times[i]` to `times[i + 1]`."""

    times: Floats
    gpus: Floats

    def average(self, edges: Floats) -> Floats:
        """Mean GPUs in use between consecutive edges, (len(edges) - 1,)."""
        if len(self.times) < 2:
            return np.zeros(len(edges) - 1)
        steps = np.diff(self.times) * self.gpus[:-1]
        total = np.concatenate([[0.0], np.cumsum(steps)])
        at = np.interp(edges, self.times, total, left=0.0, right=float(total[-1]))
        mean: Floats = np.diff(at) / np.maximum(np.diff(edges), 1e-9)
        return mean


def usage(run: PolicyRun) -> Usage:
    """GPUs in use over the run."""
    spells = _spells(run)
    if not len(spells.start):
        return Usage(np.zeros(0), np.zeros(0))
    shared = spells.action == Action.PACK.value
    shared_end = _shared_until(spells, shared)
    gpus = spells.gpus
    times = np.concatenate([spells.start, spells.end, spells.start[shared], shared_end])
    change = np.concatenate([gpus, -gpus, -gpus[shared], gpus[shared]])
    order = np.argsort(times, kind="stable")
    at, first = np.unique(times[order], return_index=True)
    return Usage(at, np.cumsum(np.add.reduceat(change[order], first)))


@dataclass(frozen=True)
class _Spells:
    """Stretches on GPUs; every array has one entry per spell."""

    job: NDArray[np.object_]
    action: NDArray[np.object_]
    partner: NDArray[np.object_]
    gpus: Floats
    start: Floats
    end: Floats


def _spells(run: PolicyRun) -> _Spells:
    columns = ["seq", "time", "action", "reason", "job_id", "partner"]
    rows = filled(run.decisions(columns, [*_OPENING, *_CLOSING]), action="", reason="")
    joins = pc.equal(rows["action"], Action.ENQUEUE.value)
    submitted = rows.filter(pc.and_(joins, pc.equal(rows["reason"], Reason.SUBMITTED.value)))
    proper = submitted.group_by("job_id").aggregate([("seq", "max")])
    since = floats(of_jobs(proper, rows["job_id"])["seq_max"])
    rows = rows.filter(pa.array(~(floats(rows["seq"]) < since)))  # before: a free profiling pass
    jobs = of_jobs(run.jobs, rows["job_id"])
    start, ends = floats(rows["time"]), floats(jobs["end_time"])
    horizon = max(np.nanmax(of, initial=0.0) for of in (start, floats(run.jobs["end_time"])))
    end = np.where(np.isnan(ends), horizon, ends)
    for its in groups(rows["job_id"]).values():
        end[its[:-1]] = start[its[1:]]
    opening = pc.is_in(rows["action"], pa.array(_OPENING))
    rows, jobs, at = rows.filter(opening), jobs.filter(opening), opening.to_numpy()
    job, action, partner = (rows[name].to_numpy() for name in ("job_id", "action", "partner"))
    return _Spells(job, action, partner, floats(jobs["gpus"]), start[at], end[at])


def _shared_until(spells: _Spells, shared: NDArray[np.bool_]) -> Floats:
    """For each packed spell, when it or the one it was packed beside ended."""
    beside: dict[str, list[tuple[float, float]]] = defaultdict(list)
    partners = set(spells.partner[shared])
    for job, start, end in zip(spells.job, spells.start, spells.end, strict=True):
        if job in partners:
            beside[job].append((start, end))
    until = []
    for i in np.flatnonzero(shared):
        at = spells.start[i]
        ends = [end for start, end in beside[spells.partner[i]] if start <= at < end]
        until.append(min(spells.end[i], max(ends, default=at)))
    return np.array(until, dtype=np.float64)
