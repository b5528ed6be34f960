"""The results of a run: one row per job, and the figures by which policies are compared."""

from __future__ import annotations

from collections import defaultdict
from typing import TypedDict

import numpy as np
import pyarrow as pa

from scheduler.simulation.engine import JobResult, Outcome

_LABEL = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("ms", tz="UTC")

JOB_SCHEMA = pa.schema(
    [
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("user", _LABEL),
        pa.field("vc", _LABEL),
        pa.field("name", pa.string()),
        pa.field("gpus", pa.int32(), nullable=False),
        pa.field("duration_s", pa.float64(), nullable=False),  # on exclusive GPUs
        pa.field("submit_time", _TIME, nullable=False),
        pa.field("start_time", _TIME),  # null: never started
        pa.field("end_time", _TIME),
        pa.field("jct_s", pa.float64()),
        pa.field("queue_s", pa.float64()),  # without GPUs, between submission and end
        pa.field("ran_s", pa.float64()),
        pa.field("profile_s", pa.float64()),
        pa.field("estimate_s", pa.float64()),
        pa.field("pairings", pa.int32()),
        pa.field("preemptions", pa.int32()),
        pa.field("ended_in_profiling", pa.bool_()),
        pa.field("refused", pa.bool_()),
        pa.field("time_limit_s", pa.float64()),
    ]
)


class NothingEnded(ValueError):
    """Raised for a run that has no figures, because no job in it ended."""


def job_table(results: list[JobResult]) -> pa.Table:
    """Return one row per job, in `JOB_SCHEMA`."""

    def ms(seconds: float | None) -> int | None:
        return None if seconds is None else round(seconds * 1000)

    done = [r.end_time is not None for r in results]
    columns = {
        "job_id": [r.job.job_id for r in results],
        "user": [r.job.user for r in results],
        "vc": [r.job.vc for r in results],
        "name": [r.job.name for r in results],
        "gpus": [r.job.gpus for r in results],
        "duration_s": [r.duration_s for r in results],
        "submit_time": [ms(r.job.submit_time) for r in results],
        "start_time": [ms(r.start_time) for r in results],
        "end_time": [ms(r.end_time) for r in results],
        "jct_s": [r.jct_s if d else None for r, d in zip(results, done, strict=True)],
        "queue_s": [r.queue_s if d else None for r, d in zip(results, done, strict=True)],
        "ran_s": [r.ran_s for r in results],
        "profile_s": [r.profile_s for r in results],
        "estimate_s": [r.estimate_s for r in results],
        "pairings": [r.packed for r in results],
        "preemptions": [r.preemptions for r in results],
        "ended_in_profiling": [r.ended_in_profiling for r in results],
        "refused": [r.refused for r in results],
        "time_limit_s": [r.job.time_limit_s for r in results],
    }
    arrays = [pa.array(columns[f.name], type=f.type) for f in JOB_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=JOB_SCHEMA)


class Summary(TypedDict):
    """The figures of a run, as `summarise` describes them."""

    jobs: int
    ended: int
    refused: int
    avg_jct_s: float
    p50_jct_s: float
    avg_queue_s: float
    p99_queue_s: float
    p999_queue_s: float
    max_queue_large_s: float | None
    makespan_s: float
    gpu_utilisation: float
    packed_jobs: int
    over_memory: int
    mean_slowdown_packed: float
    preemptions: int
    ended_in_profiling: int
    ftf_user_p50: float | None
    ftf_user_p99: float | None
    held_back_jobs: int
    decisions: int


def summarise(outcome: Outcome, cluster_gpus: int) -> Summary:
    """Return the figures of a run. Raise NothingEnded where no job ended.

    Averages are over jobs that ended. `gpu_utilisation` is the share of GPU-time between first
    submission and last end in which a GPU held at least one job. `packed_jobs` counts jobs started
    on GPUs already in use, `over_memory` how many of these took, together with their partner, more
    memory than their GPUs have (the simulation lets them run); `mean_slowdown_packed` is wall time
    over exclusive time of jobs that ever shared. `ftf_user_p50` and `ftf_user_p99` are percentiles
    over users of finish-time fairness: the sum of a user's JCTs / the sum of the durations; None
    where the trace does not name two users. `max_queue_large_s` is the
    longest wait of a job of more than 8 GPUs; None where there is none.
    """
    ended = [r for r in outcome.jobs if r.end_time is not None]
    if not ended:
        raise NothingEnded(
            f"none of {len(outcome.jobs)} jobs ended; {sum(r.refused for r in outcome.jobs)} were "
            "refused: is this the right cluster for the trace?"
        )
    jct = np.array([r.jct_s for r in ended])
    queue = np.array([r.queue_s for r in ended])
    gpus = np.array([r.job.gpus for r in ended])
    first = min(r.job.submit_time for r in outcome.jobs)
    makespan = max(r.end_time or 0.0 for r in ended) - first
    shared = [r for r in ended if r.packed and not r.ended_in_profiling]
    slowdown = [r.ran_s / r.duration_s for r in shared if r.duration_s > 0]
    by_user = list(fairness_by_user(ended).values())
    fairness = by_user if len(by_user) > 1 else []
    large = queue[gpus > 8]
    return {
        "jobs": len(outcome.jobs),
        "ended": len(ended),
        "refused": sum(r.refused for r in outcome.jobs),
        "avg_jct_s": float(jct.mean()),
        "p50_jct_s": float(np.percentile(jct, 50)),
        "avg_queue_s": float(queue.mean()),
        "p99_queue_s": float(np.percentile(queue, 99)),
        "p999_queue_s": float(np.percentile(queue, 99.9)),
        "max_queue_large_s": float(large.max()) if len(large) else None,
        "makespan_s": float(makespan),
        "gpu_utilisation": outcome.busy_gpu_s / (cluster_gpus * makespan) if makespan else 0.0,
        "packed_jobs": outcome.packings,
        "over_memory": outcome.over_memory,
        "mean_slowdown_packed": float(np.mean(slowdown)) if slowdown else 1.0,
        "preemptions": outcome.preemptions,
        "ended_in_profiling": sum(r.ended_in_profiling for r in ended),
        "ftf_user_p50": float(np.percentile(fairness, 50)) if fairness else None,
        "ftf_user_p99": float(np.percentile(fairness, 99)) if fairness else None,
        "held_back_jobs": outcome.held_back,
        "decisions": outcome.decisions,
    }


def jct_by_vc(results: list[JobResult]) -> dict[str, float]:
    """Return the mean JCT of each virtual cluster, in seconds, over jobs that ended."""
    sums: dict[str, list[float]] = defaultdict(list)
    for r in results:
        if r.end_time is not None:
            sums[r.job.vc].append(r.jct_s)
    return {vc: float(np.mean(values)) for vc, values in sums.items()}


def fairness_by_user(results: list[JobResult]) -> dict[str, float]:
    """Return the finish-time fairness of each user: the sum of JCT over the sum of durations of
    the jobs that ended.

    Jobs without a user are left out, and users whose jobs lasted no time.
    """
    jct: dict[str, float] = defaultdict(float)
    alone: dict[str, float] = defaultdict(float)
    for r in results:
        if r.end_time is not None and r.job.user:
            jct[r.job.user] += r.jct_s
            alone[r.job.user] += r.duration_s
    return {user: jct[user] / alone[user] for user in jct if alone[user] > 0}
