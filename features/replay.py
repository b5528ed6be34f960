"""Replaying the events of jobs (submission, start, profile, end), in time order, through a feature
state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import NamedTuple, Protocol

import numpy as np

from features.job import Job, Profile
from features.spec import FeatureSpec, Value
from features.states import State


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The life of a job from submission to end. Events that have not happened, or are not known,
    are None.

    Attributes:
        job: the job; submitted at `job.submit_time`.
        start_time: time when the job first held its GPUs; None while it waits.
        end_time: time when the job ended; None before.
        state: state in which the job ended, or its present state.
        duration_s: seconds of exclusive running time; None if the job never ran, or if unknown.
        profile: its profile, None when it has none.
        profiled_time: time when that profile became known; None without one.
    """

    job: Job
    start_time: float | None = None
    end_time: float | None = None
    state: State = State.UNKNOWN
    duration_s: float | None = None
    profile: Profile | None = None
    profiled_time: float | None = None

    @property
    def ended(self) -> bool:
        return self.end_time is not None

    def until(self, now: float) -> Lifetime:
        """Return this lifetime as it was known at the time `now`, without later events. The job
        must have been submitted by then."""
        if self.end_time is not None and self.end_time <= now:
            return self
        running = self.start_time is not None and self.start_time <= now
        profiled = self.profiled_time is not None and self.profiled_time <= now
        return replace(
            self,
            start_time=self.start_time if running else None,
            end_time=None,
            state=State.RUNNING if running else State.PENDING,
            duration_s=None,
            profile=self.profile if profiled else None,
            profiled_time=self.profiled_time if profiled else None,
        )


class Moment(StrEnum):
    """The moments in a job's life at which a feature row can be taken: at submission, or when its
    profile becomes known."""

    SUBMIT = "submit"
    PROFILED = "profiled"


class RowSource(Protocol):
    """The interface of what `replay` feeds with events and asks for feature rows.
    `features.state.FeatureState` implements it."""

    features: tuple[FeatureSpec, ...]

    def submit(self, job: Job, now: float) -> None: ...
    def start(self, job_id: str, now: float) -> None: ...
    def profiled(self, job_id: str, profile: Profile, now: float) -> None: ...
    def end(self, job_id: str, now: float, state: State, duration_s: float | None) -> None: ...
    def row(self, job: Job, now: float) -> list[Value]: ...


class _Kind(IntEnum):
    # The order at equal times: a job comes into being before it runs, and a submission does
    # not see what ended in the same instant ("had ended before it was submitted").
    SUBMIT = 0
    START = 1
    PROFILED = 2
    END = 3


class Taken(NamedTuple):
    """One feature row of a replay: of the lifetime with index `position`, with its `values` at the
    time `now`."""

    position: int
    moment: Moment
    now: float
    values: list[Value]


def replay(
    lifetimes: Sequence[Lifetime],
    source: RowSource,
    moments: Collection[Moment] = (Moment.SUBMIT,),
) -> Iterator[Taken]:
    """Feed the lifetimes, in time order, to `source`, and yield the feature rows taken at
    `moments`.

    Jobs submitted at the same time keep the order of `lifetimes`.
    """
    kinds, indices, times = _timeline(lifetimes)
    for kind, index, now in zip(kinds, indices, times, strict=True):
        yield from _apply(source, moments, kind, index, now=now, life=lifetimes[index])


def replay_parts(
    parts: Iterable[Sequence[Lifetime]],
    source: RowSource,
) -> Iterator[list[tuple[Taken, Lifetime]]]:
    """Yield lists of (feature row at submission, lifetime), for lifetimes that come in parts. Jobs
    of a part must be submitted after those of the part before.

    The lists are in time order. Memory holds one part, and the jobs that end after the part in
    which they were submitted.
    """
    ahead: list[tuple[float, int, int, Lifetime]] = []  # time, kind, place among all jobs
    before = 0
    for part in parts:
        if not part:
            continue
        now = min(life.job.submit_time for life in part)
        due = [event for event in ahead if event[0] < now]
        ahead = [event for event in ahead if event[0] >= now]
        taken = list(_happened(source, due))
        if taken:
            yield taken
        kinds, indices, times = _timeline(part)
        fresh = [
            (time, kind, before + i, part[i])
            for time, kind, i in zip(times, kinds, indices, strict=True)
        ]
        ahead = sorted([*ahead, *fresh], key=_order)
        before += len(part)
        last = max(life.job.submit_time for life in part)
        due = [event for event in ahead if event[0] < last or event[1] == _Kind.SUBMIT]
        # only what lies behind the last submission is certain to come before the next part
        ahead = [event for event in ahead if not (event[0] < last or event[1] == _Kind.SUBMIT)]
        yield list(_happened(source, due))
    taken = list(_happened(source, ahead))
    if taken:
        yield taken


_Event = tuple[float, int, int, Lifetime]


def _order(event: _Event) -> tuple[float, int, int]:
    return event[:3]


def _happened(source: RowSource, events: Iterable[_Event]) -> Iterator[tuple[Taken, Lifetime]]:
    for now, kind, place, life in events:
        for taken in _apply(
            source, moments=(Moment.SUBMIT,), kind=kind, index=place, now=now, life=life
        ):
            yield taken, life


def _apply(
    source: RowSource,
    moments: Collection[Moment],
    kind: int,
    index: int,
    now: float,
    life: Lifetime,
) -> Iterator[Taken]:
    job = life.job
    if kind == _Kind.SUBMIT:
        source.submit(job, now)
        if Moment.SUBMIT in moments:
            yield Taken(index, Moment.SUBMIT, now, source.row(job, now))
    elif kind == _Kind.START:
        source.start(job.job_id, now)
    elif kind == _Kind.END:
        source.end(job.job_id, now, life.state, life.duration_s)
    elif life.profile is not None:
        source.profiled(job.job_id, life.profile, now)
        if Moment.PROFILED in moments:
            yield Taken(index, Moment.PROFILED, now, source.row(job, now))


def _timeline(lifetimes: Sequence[Lifetime]) -> tuple[list[int], list[int], list[float]]:
    """Return three lists, one entry per event in time order: the kind of the event, the index of
    its job, and its time."""
    columns = (
        [life.job.submit_time for life in lifetimes],
        [life.start_time for life in lifetimes],
        [life.profiled_time for life in lifetimes],
        [life.end_time for life in lifetimes],
    )
    times = np.concatenate([np.array(column, dtype=np.float64) for column in columns])
    kinds = np.repeat(np.arange(len(_Kind)), len(lifetimes))
    indices = np.tile(np.arange(len(lifetimes)), len(_Kind))
    order = np.lexsort((indices, kinds, times))
    order = order[~np.isnan(times[order])]
    return kinds[order].tolist(), indices[order].tolist(), times[order].tolist()
