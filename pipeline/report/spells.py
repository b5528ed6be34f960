"""Spells: the periods in which jobs had GPUs, computed from the decisions and ends of a run.

When a job starts, or is packed onto another job's GPUs, a spell begins, which lasts until the job
is preempted or ends. A profiling run is a spell that lasts until the job joins its queue or ends.
Times are as recorded (to milliseconds). A profiling run that took no simulated time is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
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
class Spells:
    """Spells: periods in which jobs held GPUs. Every field has one entry per spell.

    Attributes:
        nodes, masks: the nodes of the spell, and for each node a number with a bit for each GPU
            held.
    """

    job: NDArray[np.object_]
    vc: NDArray[np.object_]
    action: NDArray[np.object_]
    partner: NDArray[np.object_]
    gpus: Floats
    start: Floats
    end: Floats
    nodes: Sequence[Sequence[int]]
    masks: Sequence[Sequence[int]]


def spells(run: PolicyRun) -> Spells:
    """Return all spells (periods of jobs on GPUs) of a run, in the order of the decisions that
    began them."""
    columns = ["seq", "time", "action", "reason", "job_id", "partner", "nodes", "gpus"]
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
    nodes, masks = ([one or () for one in rows[name].to_pylist()] for name in ("nodes", "gpus"))
    vc, gpus = jobs["vc"].to_numpy(), floats(jobs["gpus"])
    return Spells(
        job=job,
        vc=vc,
        action=action,
        partner=partner,
        gpus=gpus,
        start=start[at],
        end=end[at],
        nodes=nodes,
        masks=masks,
    )


def shared_until(found: Spells, shared: NDArray[np.bool_]) -> Floats:
    """Return, for each spell in which a job joined another on its GPUs, the time when the sharing
    ended: the earlier end of the two.

    Args:
        shared: mask of the spells that joined another job.
    """
    beside: dict[str, list[tuple[float, float]]] = defaultdict(list)
    partners = set(found.partner[shared])
    for job, start, end in zip(found.job, found.start, found.end, strict=True):
        if job in partners:
            beside[job].append((start, end))
    until = []
    for i in np.flatnonzero(shared):
        at = found.start[i]
        ends = [end for start, end in beside[found.partner[i]] if start <= at < end]
        until.append(min(found.end[i], max(ends, default=at)))
    return np.array(until, dtype=np.float64)
