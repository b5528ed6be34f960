"""Lifetimes of jobs (submission, start, end), read from a trace or from the schedule of a
simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from features.job import COUNTERS, Job, Profile
from features.replay import Lifetime
from features.state import FeatureError
from features.states import State

# Start and end of a job in seconds since the epoch; None for what did not happen.
Schedule = Mapping[str, tuple[float | None, float | None]]
Seconds = NDArray[np.float64]

_NEVER = float("nan")


def lifetimes(
    trace: pa.Table,
    schedule: Schedule | pa.Table | None = None,
    *,
    profile_after_s: float | None = None,
) -> tuple[list[Lifetime], int]:
    """Return the lifetimes of the jobs of a trace, in the trace's order, and the number of jobs
    whose times were out of order and were moved.

    Start and end are those of `schedule`, for example of a simulation: a mapping of job id to
    (start, end), or a table with `job_id, start_time, end_time` and perhaps `profiled_time`, as
    timestamps or seconds. Every job must be in it. Without a schedule they are the trace's own
    times. If the trace gives no start of a job that is over, the job is taken to start its duration
    before its end, or when submitted if no end is given either. If it gives no end, the job is
    taken to end after its duration. A job whose duration is not given neither starts nor ends at a
    time that the trace does not give. A job without an end that still runs or waits never ends.

    A job's profile, if the trace has one (`gpu_util_pct` and so on), becomes known at the
    schedule's `profiled_time`, or else `profile_after_s` seconds after the start, if the job runs
    that long. With neither, it never becomes known.

    Raises FeatureError if a column is missing, or a value in it is impossible.
    """
    missing = sorted({"job_id", "gpus", "submit_time", "state"} - set(trace.column_names))
    if missing:
        raise FeatureError(f"trace: column {missing[0]!r} is missing")
    states = [_state(value) for value in _values(trace, "state")]
    times, adjusted = _ordered(_times(trace, states, schedule, profile_after_s))
    rows = zip(*(column.tolist() for column in times[1:]), strict=True)
    lives = []
    for job, state, profile, row in zip(
        _jobs(trace, times.submit), states, _profiles(trace), rows, strict=True
    ):
        start, end, duration, profiled = (None if value != value else value for value in row)
        if profile is None:
            profiled = None
        lives.append(
            Lifetime(
                job=job,
                start_time=start,
                end_time=end,
                state=state,
                duration_s=duration,
                profile=profile,
                profiled_time=profiled,
            )
        )
    return lives, adjusted


class _Times(NamedTuple):
    """Times of all jobs: one array per kind of time, one entry per job. Seconds since the epoch (of
    `duration`: seconds); NaN for never."""

    submit: Seconds
    start: Seconds
    end: Seconds
    duration: Seconds
    profiled: Seconds


def _times(
    trace: pa.Table,
    states: list[State],
    schedule: Schedule | pa.Table | None,
    profile_after_s: float | None,
) -> _Times:
    submit = _numbers(trace, "submit_time")
    if np.isnan(submit).any():
        raise FeatureError("trace: column 'submit_time' has empty values")
    start, end = _numbers(trace, "start_time"), _numbers(trace, "end_time")
    recorded = _numbers(trace, "duration_s")
    duration = np.where(np.isnan(recorded), end - start, recorded)
    profiled = np.full(len(submit), _NEVER)
    if schedule is None:
        # A job still running has only a lower bound for a duration: it is not an end.
        over = np.array([state not in (State.RUNNING, State.PENDING) for state in states], bool)
        idle = np.where(np.isnan(end), submit, end - duration)
        start = np.where(np.isnan(start) & over, np.where(np.isnan(duration), start, idle), start)
        end = np.where(np.isnan(end) & over, start + duration, end)
    else:
        start, end, profiled = _scheduled(_values(trace, "job_id"), schedule)
        duration = np.where(np.isnan(duration), end - start, duration)
    if (duration < 0).any():
        job = _values(trace, "job_id")[int(np.argmax(duration < 0))]
        raise FeatureError(f"trace: job {job}: its duration is negative")
    if profile_after_s is not None:
        profiled = np.where(np.isnan(profiled), start + profile_after_s, profiled)
    return _Times(submit=submit, start=start, end=end, duration=duration, profiled=profiled)


def _ordered(times: _Times) -> tuple[_Times, int]:
    """Return (times, number of jobs moved): start and end moved forward where they would break
    submit <= start <= end. A profile at the job's end or later becomes NaN."""
    start = np.where(np.isnan(times.start), _NEVER, np.fmax(times.start, times.submit))
    # fmax passes over a NaN: a job may end without ever having started.
    end = np.where(np.isnan(times.end), _NEVER, np.fmax(times.end, np.fmax(start, times.submit)))
    moved = (start > times.start) | (end > times.end)
    # A profile that would come at the end or later never came.
    profiled = np.where(times.profiled >= end, _NEVER, np.fmax(times.profiled, times.submit))
    profiled = np.where(np.isnan(times.profiled), _NEVER, profiled)
    ordered = times._replace(start=start, end=end, profiled=profiled)
    return ordered, int(moved.sum())


def _scheduled(
    job_ids: list[str], schedule: Schedule | pa.Table
) -> tuple[Seconds, Seconds, Seconds]:
    """Return (start, end, profiled) times of the jobs in a schedule, in the order of `job_ids`.
    Raises FeatureError for a job that is not in it.
    """
    if isinstance(schedule, Mapping):
        found = {job: (*times, None) for job, times in schedule.items()}
    else:
        names = ("start_time", "end_time", "profiled_time")
        columns = [_numbers(schedule, name).tolist() for name in names]
        found = dict(zip(_values(schedule, "job_id"), zip(*columns, strict=True), strict=True))
    absent = [job for job in job_ids if job not in found]
    if absent:
        raise FeatureError(
            f"schedule: {len(absent)} jobs of the trace are not in it, {absent[0]} the first"
        )
    times = np.array([found[job] for job in job_ids], dtype=np.float64).reshape(-1, 3)
    return times[:, 0], times[:, 1], times[:, 2]


def _jobs(trace: pa.Table, submit: NDArray[np.float64]) -> list[Job]:
    names = ("job_id", "gpus", "user", "vc", "name", "cpus", "memory_mib", "gpu_type")
    columns = [_values(trace, name) for name in (*names, "time_limit_s")]
    return [
        Job(
            job_id=str(job_id),
            submit_time=at,
            gpus=gpus,
            user=user or "",
            vc=vc or "",
            name=name or "",
            cpus=cpus,
            memory_mib=memory,
            gpu_type=kind,
            time_limit_s=limit,
        )
        for at, (job_id, gpus, user, vc, name, cpus, memory, kind, limit) in zip(
            submit.tolist(), zip(*columns, strict=True), strict=True
        )
    ]


def _profiles(trace: pa.Table) -> list[Profile | None]:
    measured = [
        _numbers(trace, name).tolist()
        for name in ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib")
    ]
    counted = [_values(trace, name) for name in COUNTERS]
    return [
        Profile(util, activity, used, amp, *counters)
        if any(number == number for number in (util, activity, used))
        else None
        for util, activity, used, amp, *counters in zip(
            *measured, _values(trace, "amp"), *counted, strict=True
        )
    ]


def _values(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * table.num_rows
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values: list[Any] = column.to_pylist()
    return values


def _numbers(table: pa.Table, name: str) -> Seconds:
    """Return a column of seconds or timestamps as float seconds; NaN for null, or if there is
    no such column.
    """
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column, scale = table[name], 1.0
    if pa.types.is_timestamp(column.type):
        scale = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        column = column.cast(pa.int64())
    values = np.array(column.to_pylist(), dtype=np.float64)
    return values / scale


def _state(value: str) -> State:
    try:
        return State(value)
    except ValueError:
        accepted = ", ".join(State)
        raise FeatureError(f"trace: state is {value!r}, must be one of {accepted}") from None
