"""What a follower learns about durations: from changes between two polls of Slurm, and from jobs
that ended earlier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from features.job import Job
from features.states import State
from scheduler.core.durations import seconds_of
from scheduler.explain.whatif.memory import Memory
from scheduler.slurm.read.job_states import OVER, STATES, WAITING
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.snapshot import job_of

# how long a job ran that ended thus says something; not where its node or Slurm ended it
LEARNED = frozenset(
    (State.COMPLETED, State.FAILED, State.CANCELLED, State.TIMEOUT, State.OUT_OF_MEMORY)
)
Over = tuple[SlurmJob, float | None]

BACK, SUBMITTED, STARTED, LEFT = range(4)  # what happened to a job, in order where at once


@dataclass(frozen=True, slots=True)
class Seen:
    """A job as it was at the last poll: when it was submitted, and whether it ran."""

    submit: float
    runs: bool = False


class Histories:
    """Passes the events between two polls of Slurm, in order of time, to a memory that learns
    durations.

    Attributes:
        heard: the latest time that the memory was given, seconds since the epoch. No later event
            gets an earlier time.
        vc_of: function that returns the virtual cluster for a job's partitions.
    """

    def __init__(self, memory: Memory, vc_of: Callable[[str], str] = str) -> None:
        self.memory, self.heard, self.vc_of = memory, 0.0, vc_of
        self._live: dict[str, Seen] = {}
        self._ended: dict[str, float] = {}  # job -> submit time: it ended, and is still shown

    def update(self, jobs: Iterable[SlurmJob], now: float) -> list[Over]:
        """Pass what has happened to jobs since the last poll to the memory that learns durations.
        Return the jobs that have ended since, each with its predicted duration in seconds (None:
        unknown). A job that Slurm does not show any more counts as withdrawn, and is not among
        them."""
        mine = {job.id: job for job in jobs}
        happened: list[tuple[float, int, SlurmJob]] = []
        for job in mine.values():
            seen = self._live.get(job.id)
            if seen is not None and not seen.runs and job.state in WAITING:
                continue  # it still waits
            if job.state in OVER and self._ended.get(job.id) == job.submit:
                continue
            happened += _since(job, seen, now)
        ended: list[Over] = []
        for at, what, job in sorted(happened, key=lambda one: (one[0], one[1], one[2].id)):
            # what is only seen now is dated now: a history never goes back
            self.heard = max(self.heard, min(at, now))
            past = self.memory.of(job.id)
            self._apply(what, job, self.heard)
            if what == LEFT:
                known = past.predicted_s if past is not None else None
                ended.append((job, None if known is None else seconds_of(known)))
        for job_id in [job_id for job_id in self._live if job_id not in mine]:
            del self._live[job_id]
            self.memory.withdrawn(job_id, now)
        self.heard = now  # whoever came while `squeue` ran is dated as of now, next time
        self._ended = {job_id: at for job_id, at in self._ended.items() if job_id in mine}
        return ended

    def _apply(self, what: int, job: SlurmJob, at: float) -> None:
        if what == BACK:
            self._live[job.id] = Seen(job.submit)
            self.memory.stopped(job.id, at)
        elif what == SUBMITTED:
            self._ended.pop(job.id, None)  # an ended job that is put back keeps its id
            self._live[job.id] = Seen(job.submit)
            made = job_of(job, self.vc_of(job.partition))
            self.memory.submitted(made if job.submit == at else replace(made, submit_time=at), at)
        elif what == STARTED:
            self._live[job.id] = Seen(job.submit, runs=True)
            self.memory.started(job.id, at)
        else:
            self._ended[job.id] = job.submit
            ran_s = (job.end or at) - (job.start or at)
            state = STATES.get(job.state)
            if self._live.pop(job.id).runs and state in LEARNED and ran_s > 0:
                self.memory.ended(job.id, state, ran_s, at)
            else:
                self.memory.withdrawn(job.id, at)

    def recall(self, known: Sequence[Ended]) -> None:
        """Pass jobs that ended before this process began to the memory, in order of time, as if it
        had seen them run then."""
        happened: list[tuple[float, int, Ended]] = []
        for one in known:
            times = one.job.submit_time, one.started_at, one.ended_at
            happened += [(at, what, one) for what, at in enumerate(times, SUBMITTED)]
        asks = self.memory.asks
        for at, what, one in sorted(happened, key=lambda it: (it[0], it[1], it[2].job.job_id)):
            job_id, self.heard = one.job.job_id, max(self.heard, at)
            if what == SUBMITTED:
                self.memory.asks = asks and one.predicted_s is None
                self.memory.submitted(one.job, self.heard)
                seen = self.memory.of(job_id)
                if seen is not None and one.predicted_s is not None:
                    seen.predicted_s = one.predicted_s
            elif what == STARTED:
                self.memory.started(job_id, self.heard)
            else:
                ran_s = one.ended_at - one.started_at
                self.memory.ended(job_id, one.state, ran_s, self.heard)
                self._ended[job_id] = one.job.submit_time
        self.memory.asks = asks


def _since(job: SlurmJob, seen: Seen | None, now: float) -> Iterator[tuple[float, int, SlurmJob]]:
    """Yield the events of a job since the last poll: the time, the kind of event, and the job."""
    waits = job.state in WAITING
    runs = seen is not None and seen.runs
    if seen is None:
        yield job.submit, SUBMITTED, job
    elif runs and (waits or job.submit != seen.submit):  # put back: it counts as submitted again
        yield job.submit if job.submit != seen.submit else now, BACK, job
        runs = False
    if not (runs or waits) and job.start is not None:
        yield max(job.start, job.submit), STARTED, job
    if job.state in OVER:
        yield max(job.end or now, job.start or 0.0, job.submit), LEFT, job


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ran and ended. Times are seconds since the epoch.

    `predicted_s` is the duration that was predicted at its submission, seconds. If None, it is
    predicted when the job is passed to the memory.
    """

    job: Job
    predicted_s: float | None
    started_at: float
    ended_at: float
    state: State
