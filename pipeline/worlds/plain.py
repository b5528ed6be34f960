"""Worlds of any trace on any cluster, as `simulate` plays them when no track is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import pyarrow as pa

from features.job import COUNTERS, Job, Profile, of_trace
from features.schema import State
from models.bundle import Bundle
from pipeline.online import OnlineEstimator
from pipeline.systems import helios
from pipeline.worlds import durations as predicted
from pipeline.worlds.closed_loop import in_loop
from pipeline.worlds.pairs import of_bundle_or_simulated
from pipeline.worlds.playing import AS_IT_IS, Playing
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import TrackError, jitter
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import BundleEstimator, Estimator
from scheduler.core.policy import Policy
from scheduler.core.settings import ProfilingPartition
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import Configuration, Work, Workload

_KNOWN_STATES = frozenset(State)


def workload_of(table: pa.Table, cluster: ClusterSpec, name: str) -> Workload:
    """Return the workload (jobs, and the truth about them) of a trace in `TRACE_SCHEMA`.

    Rows without a duration are left out and counted; a job id that occurs again gets a suffix.
    Raises TrackError for an impossible duration or state.
    """
    jobs: list[Job] = []
    work: dict[str, Work] = {}
    left_out = 0
    columns: dict[str, list[Any]] = {
        f: table.column(f).to_pylist()
        for f in (
            "job_id",
            "user",
            "vc",
            "name",
            "gpus",
            "cpus",
            "memory_mib",
            "gpu_type",
            "time_limit_s",
            "state",
            "duration_s",
            "model",
            "dataset",
            "batch_size",
            "amp",
            "gpu_util_pct",
            "gpu_mem_util_pct",
            "gpu_mem_mib",
            *COUNTERS,
        )
    }
    submit = table.column("submit_time").cast(pa.int64()).to_pylist()
    ends = table.column("end_time").cast(pa.int64()).to_pylist()
    recorded: dict[str, float] = {}
    for i in range(table.num_rows):
        row = {field: values[i] for field, values in columns.items()}
        if row["duration_s"] is None:
            left_out += 1
            continue
        if not (isfinite(row["duration_s"]) and row["duration_s"] >= 0):
            raise TrackError(
                f"trace {name}: job {row['job_id']}: duration_s is {row['duration_s']}, "
                "must be a number of seconds, 0 or more"
            )
        if row["state"] not in _KNOWN_STATES:
            raise TrackError(
                f"trace {name}: job {row['job_id']}: state is {row['state']!r}, "
                f"must be one of {', '.join(sorted(_KNOWN_STATES))}"
            )
        job_id = row["job_id"] if row["job_id"] not in work else f"{row['job_id']}~{i}"
        jobs.append(of_trace({**row, "job_id": job_id}, submit[i] / 1000))
        made, model = None, row["model"]
        if model is not None:
            made = Configuration(
                model, row["dataset"] or "", row["batch_size"] or 0, bool(row["amp"])
            )
        used = row["gpu_util_pct"], row["gpu_mem_util_pct"], row["gpu_mem_mib"]
        counted = [row[name] for name in COUNTERS]
        profile = None if None in used else Profile(*used, row["amp"], *counted)
        work[job_id] = Work(row["duration_s"], State(row["state"]), made, profile)
        if ends[i] is not None:
            recorded[job_id] = ends[i] / 1000
    order = sorted(range(len(jobs)), key=lambda k: jobs[k].submit_time)
    return Workload(
        name=name,
        jobs=[jobs[k] for k in order],
        work=work,
        cluster=cluster,
        left_out=left_out,
        recorded_ends=recorded,
    )


def _unknown_vcs(workload: Workload) -> tuple[str, ...]:
    """Return notes about virtual clusters that the trace names but the cluster lacks. Raises
    TrackError if it lacks all of them."""
    jobs = Counter(job.vc for job in workload.jobs)
    unknown = [(vc, count) for vc, count in jobs.most_common() if vc not in workload.cluster.vcs]
    if not unknown:
        return ()
    named = ", ".join(f"{vc or '(no name)'} ({count:,} jobs)" for vc, count in unknown[:8])
    there = ", ".join(list(workload.cluster.vcs)[:8])
    more = f" and {len(unknown) - 8} more" if len(unknown) > 8 else ""
    missing = f"the cluster has no virtual cluster {named}{more}; it has {there}"
    if len(unknown) == len(jobs):
        raise TrackError(f"trace {workload.name}: {missing}")
    return (f"Every job of a virtual cluster that is not there is refused: {missing}.",)


def _warm(estimator: Estimator, past: list[Job], truth: dict[str, Work], since: float) -> Estimator:
    """Let the estimator learn from past jobs, those that had ended before `since`. Return it.

    Past jobs are replayed as if each had started when it was submitted, because a trace does not
    always say when a job started.
    """
    moments: list[tuple[float, int, Job]] = []
    for job in past:
        end = job.submit_time + truth[job.job_id].duration_s
        if end < since:
            moments += [(job.submit_time, 1, job), (end, 0, job)]
    for now, submits, job in sorted(moments, key=lambda m: m[:2]):
        work = truth[job.job_id]
        if submits:
            estimator.submitted(job, now)
            estimator.started(job.job_id, now)
            if isinstance(estimator, OnlineEstimator):
                estimator.enqueued(job, now)  # takes the row it will learn from
        else:
            estimator.ended(job.job_id, work.state, work.duration_s, now)
    return estimator


def scenario(
    table: pa.Table,
    name: str,
    cluster: ClusterSpec,
    profiling: ProfilingPartition | None,
    playing: Playing = AS_IT_IS,
) -> Scenario:
    """Return the scenario of a trace: its jobs on a cluster. Two jobs on one GPU run at simulated
    speeds, since a trace holds no measured ones."""
    return of_workload(workload_of(table, cluster, name), profiling, playing)


def of_workload(
    recorded: Workload, profiling: ProfilingPartition | None, playing: Playing = AS_IT_IS
) -> Scenario:
    """Return the same as `scenario`, for a workload that was already read from its trace.
    Raises TrackError if there is no job to simulate, or if the cluster has none of the trace's
    virtual clusters."""
    seed, since, bundle, loop = playing.seed, playing.since, playing.bundle, playing.loop or "open"
    name, whole = recorded.name, in_loop(recorded, loop)
    notes = _unknown_vcs(whole)
    start = -inf if since is None else since
    past = [job for job in whole.jobs if job.submit_time < start]
    played = replace(whole, jobs=[job for job in whole.jobs if job.submit_time >= start])
    if not played.jobs:
        raise TrackError(f"trace {name} holds no job with a duration to simulate")
    workload = jitter(played, seed, compress=playing.compress, permute=False)
    loaded = Bundle.load(bundle) if bundle is not None else None
    coming = loaded.arrivals if loaded is not None and "arrivals" in loaded.parts else None
    more: dict[str, Callable[[], Estimator]] = {"helios": lambda: helios(seed)}
    if loaded is not None:
        more["own"] = lambda: BundleEstimator(loaded)
    fresh = predicted.chosen(playing.durations, predicted.sources(workload, seed, **more))

    def estimator(policy: Policy) -> Estimator:
        return _warm(fresh(policy), past, whole.work, start)

    pairs_from, pair_predictor = of_bundle_or_simulated(loaded, seed)
    return Scenario(
        name,
        workload,
        SimulatedContention(),
        estimator,
        pair_predictor=pair_predictor,
        pairs_from=pairs_from,
        arrival_model=coming,
        arrived=[(job.submit_time, job.gpus) for job in past],
        profiling=profiling,
        seed=seed,
        loop=loop,
        notes=notes,
    )
