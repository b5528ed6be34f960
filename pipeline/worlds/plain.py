"""Any trace on any cluster: what `simulate` does when no track is named."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from features.job import Job, Profile
from features.schema import State
from models.bundle import Bundle, BundleError
from models.training.packing import fit_packing, fit_pair_speed
from models.training.simulated import simulated_pairs
from pipeline.helios import OnlineHelios
from pipeline.online import OnlineEstimator
from pipeline.worlds.scenario import ProfilingSettings, Scenario, by_gpu_count, oracle
from pipeline.worlds.venus import TrackError
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import BundleEstimator, Estimator
from scheduler.core.pairs import BundleJudge
from scheduler.core.policy import Policy
from scheduler.simulation.work import Configuration, SimulatedContention, Work, Workload

_KNOWN_STATES = frozenset(State)

DURATIONS = ("own", "oracle", "gpus", "helios")


def cluster_of(table: pa.Table, *, gpus_per_node: int = 8, load: float = 0.9) -> ClusterSpec:
    """A cluster shape that would have carried a trace at the given offered load per VC."""
    frame = table.select(["vc", "gpus", "duration_s", "submit_time"]).to_pandas()
    span = (frame["submit_time"].max() - frame["submit_time"].min()).total_seconds() or 1.0
    known = frame["duration_s"].where(np.isfinite(frame["duration_s"]), 0.0)
    work = frame["gpus"] * known
    vcs: dict[str, int] = {}
    for vc, index in frame.groupby(frame["vc"].astype(str)).groups.items():
        need = float(work.loc[index].sum()) / span / load / gpus_per_node
        largest = int(frame.loc[index, "gpus"].max())
        vcs[str(vc)] = max(1, round(need), -(-largest // gpus_per_node))
    return ClusterSpec(vcs, gpus_per_node, name="inferred")


def workload_of(table: pa.Table, cluster: ClusterSpec, name: str) -> Workload:
    """Jobs and truth of a trace in `TRACE_SCHEMA`.

    Rows without a duration are left out and counted; a job id that comes again gets a suffix.
    Raises TrackError on a duration or state that cannot be.
    """
    jobs: list[Job] = []
    work: dict[str, Work] = {}
    left_out = 0
    columns: dict[str, list[Any]] = {
        f: table.column(f).to_pylist()
        for f in (
            "job_id", "user", "vc", "name", "gpus", "cpus", "memory_mib", "gpu_type",
            "time_limit_s", "state", "duration_s", "model", "dataset", "batch_size", "amp",
            "gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib",
        )
    }  # fmt: skip
    submit = table.column("submit_time").cast(pa.int64()).to_pylist()
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
        jobs.append(
            Job(
                job_id, submit[i] / 1000, row["gpus"], row["user"] or "", row["vc"] or "",
                row["name"] or "", row["cpus"], row["memory_mib"], row["gpu_type"],
                row["time_limit_s"],
            )
        )  # fmt: skip
        work[job_id] = Work(
            row["duration_s"], State(row["state"]), _configuration(row), _profile(row)
        )
    order = sorted(range(len(jobs)), key=lambda k: jobs[k].submit_time)
    return Workload(name, [jobs[k] for k in order], work, cluster, left_out)


def _learned(
    bundle: Bundle | None, seed: int, past: list[Job], workload: Workload, since: float | None
) -> Estimator:
    """An estimator that has seen the past: every job of it that had ended before `since`.

    A trace says when a job was submitted and how long it ran, not always when it started: the
    past is replayed as if nobody had waited.
    """
    estimator = OnlineEstimator(seed=seed) if bundle is None else BundleEstimator(bundle)
    return _told(estimator, past, workload, since)


def _told(
    estimator: Estimator, past: list[Job], workload: Workload, since: float | None
) -> Estimator:
    """The estimator, after the past was replayed to it."""
    moments: list[tuple[float, int, Job]] = []
    for job in past:
        end = job.submit_time + workload.work[job.job_id].duration_s
        if since is not None and end < since:
            moments += [(job.submit_time, 1, job), (end, 0, job)]
    for now, submits, job in sorted(moments, key=lambda m: m[:2]):
        work = workload.work[job.job_id]
        if submits:
            estimator.submitted(job, now)
            estimator.started(job.job_id, now)
            if isinstance(estimator, OnlineEstimator):
                estimator.estimate(job, now)  # takes the row it will learn from
        else:
            estimator.ended(job.job_id, work.state, work.duration_s, now)
    return estimator


def _configuration(row: dict[str, Any]) -> Configuration | None:
    if row["model"] is None:
        return None
    return Configuration(
        row["model"], row["dataset"] or "", row["batch_size"] or 0, bool(row["amp"])
    )


def _profile(row: dict[str, Any]) -> Profile | None:
    values = row["gpu_util_pct"], row["gpu_mem_util_pct"], row["gpu_mem_mib"]
    return None if None in values else Profile(*values, row["amp"])


def scenario(
    table: pa.Table,
    name: str,
    cluster: ClusterSpec,
    profiling: ProfilingSettings | None,
    *,
    durations: str | None = None,
    bundle: Path | None = None,
    seed: int = 0,
    since: float | None = None,
) -> Scenario:
    """A trace on a cluster. Pairs run at simulated speeds, since a trace holds none.

    Args:
        durations: `own` (the default; the bundle when one is given), `oracle`, `gpus` or `helios`.
        bundle: exported models; without one, durations are learned online and the packing
            models are fitted on simulated pairs.
        seed: of online fits.
        since: simulate only jobs submitted from then on (seconds since the epoch); what ended
            before is history that estimators may learn from.
    """
    workload = workload_of(table, cluster, name)
    past: list[Job] = []
    if since is not None:
        past = [job for job in workload.jobs if job.submit_time < since]
        workload.jobs = [job for job in workload.jobs if job.submit_time >= since]
    if not workload.jobs:
        raise TrackError(f"trace {name} holds no job with a duration to simulate")
    truth = oracle(workload)
    loaded = Bundle.load(bundle) if bundle is not None else None
    given: dict[str, Callable[[], Estimator]] = {
        "own": lambda: _learned(loaded, seed, past, workload, since),
        "oracle": lambda: truth,
        "gpus": by_gpu_count,
        "helios": lambda: _told(OnlineHelios(seed=seed), past, workload, since),
    }
    if durations is not None and durations not in given:
        raise TrackError(f"--durations {durations} needs a track; use one of {', '.join(given)}")

    def estimator(policy: Policy) -> Estimator:
        if not policy.estimates:
            return Estimator()
        return given["oracle" if policy.oracle else durations or "own"]()

    def judge() -> BundleJudge:
        if loaded is not None:
            try:
                return BundleJudge(loaded.packing, loaded.pair_speed)
            except BundleError:
                pass  # a bundle may hold a duration model only
        pairs = simulated_pairs(seed)
        return BundleJudge(fit_packing(pairs).model, fit_pair_speed(pairs).model)

    return Scenario(
        name,
        workload,
        SimulatedContention(),
        estimator,
        judge=judge,
        # packing is always on: Lucid's switch has a threshold made for one cluster, and was worth
        # nothing measurable there
        profiling=profiling,
        seed=seed,
    )
