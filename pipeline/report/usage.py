"""GPUs in use over time, from the decisions and ends of a run.

A start or a packing opens a spell on the job's GPUs that lasts until it is preempted or ends; a
profiling run lasts until the job joins its queue or ends. Two jobs on one GPU use it once: while
a pair shares, its GPUs are counted for one of them. Times are those of the records
(milliseconds), so the result is exact, with one exception: a profiling pass beside the clock is
left out, as its time was never charged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.report.comparison import PolicyRun
from scheduler.core.decisions import Action, Reason

Floats = NDArray[np.float64]

_OPENING = (Action.START.value, Action.PACK.value, Action.PROFILE.value)
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
    frame = run.decisions(
        ["seq", "time", "action", "reason", "job_id", "partner"], [*_OPENING, *_CLOSING]
    )
    frame = frame.astype({"action": str, "reason": str})
    submitted = frame[
        (frame["action"] == Action.ENQUEUE.value) & (frame["reason"] == Reason.SUBMITTED.value)
    ]
    proper = frame["job_id"].map(submitted.groupby("job_id")["seq"].max()).fillna(-1)
    frame = frame[frame["seq"] >= proper]  # what comes before was a pass beside the clock
    jobs = run.jobs.set_index("job_id")
    start = _floats(frame["time"])
    next_ = _floats(frame.groupby("job_id", sort=False)["time"].shift(-1))
    ends = _floats(frame["job_id"].map(jobs["end_time"]))
    horizon = max(np.nanmax(start, initial=0.0), np.nanmax(_floats(jobs["end_time"]), initial=0.0))
    end = np.where(np.isnan(next_), np.where(np.isnan(ends), horizon, ends), next_)
    opening = frame["action"].isin(_OPENING).to_numpy(dtype=bool)
    frame, start, end = frame[opening], start[opening], end[opening]
    job, action, partner = (frame[c].to_numpy(object) for c in ("job_id", "action", "partner"))
    return _Spells(job, action, partner, _floats(frame["job_id"].map(jobs["gpus"])), start, end)


def _floats(column: pd.Series) -> Floats:
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


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
