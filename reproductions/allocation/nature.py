"""The truth of a simulation with allocations: how jobs really progress.

It knows each job's work, and the rate at which an allocation does that work. Between two changes
the rate is constant. A change is a new allocation of the job or of a neighbour, or the end of a
restart, an epoch or a lease. The engine keeps the clock, and asks only when the next change is due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeVar

from features.job import Job
from reproductions.allocation.allocation import Allocation
from reproductions.allocation.policy import Evidence, Source
from reproductions.allocation.statistics import REMAINING_S, Statistic
from scheduler.core.decisions import Reason

T = TypeVar("T")


class GroundTruth(Source, Protocol):
    """The interface through which the engine reads the truth about jobs."""

    def duration_s(self, job: Job) -> float:
        """Return the seconds that the job runs alone on what it asks for."""
        ...

    def assigned(
        self, assignment: Mapping[str, Allocation], changed: Collection[str], now: float
    ) -> Collection[str]:
        """Called when the policy has allocated. Return the jobs whose next change may have moved.

        Args:
            assignment: what every job holds from now on.
            changed: jobs that got, lost or changed GPUs, or whose batch changed.

        Returns:
            jobs whose next change may have moved; at least those of `changed` that hold GPUs.
        """
        ...

    def next_change(self, job_id: str) -> float:
        """Return the time (seconds) at which the job's rate changes or its lease ends, if nothing
        else happens before; inf means never."""
        ...

    def passed(self, job_id: str, now: float) -> bool:
        """Called at the time that `next_change` returned. Return True when the job is done.

        When `next_change` is inf after that, the job's lease is over: it holds its GPUs and gets
        no further until the policy has allocated again.
        """
        ...


@dataclass(slots=True)
class Progress:
    """How far one job has progressed."""

    remaining: float  # work left, in its own unit
    rate: float = 0.0  # work per second, now
    since: float = 0.0  # `remaining` is of this moment
    resumes: float = 0.0  # a restart is over then
    allocation: Allocation | None = None
    done_at: float = inf


class RateGroundTruth(ABC):
    """A truth in which each job has one amount of work, done at a rate. Subclasses define both.

    Args:
        restart_s: seconds without progress after a job got other GPUs.
    """

    offers: frozenset[Statistic[object]] = frozenset()

    def __init__(self, restart_s: float = 0.0):
        self.restart_s = restart_s
        self.progress_of: dict[str, Progress] = {}
        self._assignment: Mapping[str, Allocation] = {}

    # --- what a subclass says -----------------------------------------------------------------

    @abstractmethod
    def work(self, job_id: str) -> float:
        """Return the total work of a job. A subclass chooses the unit (such as steps); `remaining`
        has the same unit."""

    @abstractmethod
    def rate(self, job_id: str, allocation: Allocation, partner: Allocation | None) -> float:
        """Return the work per second on an allocation, beside the job's partner on it."""

    def refusal(self, job: Job) -> tuple[Reason, Evidence] | None:
        return None

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        raise LookupError(statistic.name)

    @abstractmethod
    def duration_s(self, job: Job) -> float: ...

    # --- the contract -------------------------------------------------------------------------

    def remaining(self, job_id: str, now: float) -> float:
        """Return the work that a job still has to do at the time `now`, in the unit of `work`."""
        progress = self.progress_of.get(job_id)
        return self.work(job_id) if progress is None else self._left(progress, now)

    def assigned(
        self, assignment: Mapping[str, Allocation], changed: Collection[str], now: float
    ) -> Collection[str]:
        touched = dict.fromkeys(changed)
        for job_id in changed:  # a neighbour's coming or going changes the rate, too
            before, after = self._assignment.get(job_id), assignment.get(job_id)
            for allocation in (before, after):
                partner = allocation.partner if allocation is not None else None
                if partner is not None and partner in assignment:
                    touched[partner] = None
        self._assignment = dict(assignment)
        for job_id in touched:
            self._set(job_id, assignment.get(job_id), now)
        return touched

    def next_change(self, job_id: str) -> float:
        return self.progress_of[job_id].done_at

    def passed(self, job_id: str, now: float) -> bool:
        return now >= self.progress_of[job_id].done_at

    def _left(self, progress: Progress, now: float) -> float:
        worked = max(now - max(progress.since, progress.resumes), 0.0)
        return progress.remaining - worked * progress.rate

    def _set(self, job_id: str, allocation: Allocation | None, now: float) -> None:
        progress = self.progress_of.get(job_id)
        if progress is None:
            progress = self.progress_of[job_id] = Progress(self.work(job_id))
        progress.remaining, progress.since = self._left(progress, now), now
        if allocation is None:
            progress.allocation, progress.rate, progress.done_at = None, 0.0, inf
            return
        if not allocation.same_gpus(progress.allocation):
            progress.resumes = now + self.restart_s
        partner = self._assignment.get(allocation.partner) if allocation.partner else None
        progress.allocation = allocation
        progress.rate = self.rate(job_id, allocation, partner)
        needs = progress.remaining / progress.rate if progress.rate else inf
        progress.done_at = max(now, progress.resumes) + needs


class GangGroundTruth(RateGroundTruth):
    """A truth with jobs of known duration. With another number of GPUs than asked for, a job's
    speed changes in proportion. Jobs that share GPUs run at `shared_rate`.
    """

    offers = frozenset({REMAINING_S})

    def __init__(
        self, durations: Mapping[str, float], *, restart_s: float = 0.0, shared_rate: float = 1.0
    ):
        super().__init__(restart_s)
        self._durations = durations
        self._shared_rate = shared_rate
        self._gpus: dict[str, int] = {}

    def refusal(self, job: Job) -> tuple[Reason, Evidence] | None:
        self._gpus[job.job_id] = job.gpus
        if job.job_id not in self._durations:
            return Reason.NO_STATISTICS, (("missing", "duration"),)
        return None

    def duration_s(self, job: Job) -> float:
        return self._durations.get(job.job_id, 0.0)

    def work(self, job_id: str) -> float:
        return self._durations[job_id]

    def rate(self, job_id: str, allocation: Allocation, partner: Allocation | None) -> float:
        share = self._shared_rate if partner is not None else 1.0
        return share * allocation.count / self._gpus[job_id]

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        if statistic == REMAINING_S:
            return self.remaining(job_id, now)  # type: ignore[return-value]
        return super().report(statistic, job_id, now)
