"""Jobs that may start only after other jobs have ended.

A job's request names the jobs that it waits for (`Job.after`, `Job.after_any`). How those ended is
remembered here as long as a job waits for them, and an hour longer, because a user learns of an end
a little later than the core.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable
from dataclasses import dataclass

from features.job import Job
from scheduler.core.decisions import Reason

RECENT_S = 3600.0
MOST = 16  # jobs that one may name


def named(text: str) -> tuple[str, ...]:
    """Return the ids in a list separated by commas or spaces, each once."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a job may not start yet.

    Attributes:
        by: id of the job that it waits for.
        never: whether it can never start, because `by` had to succeed and did not.
    """

    by: str
    never: bool = False

    def reason(self, job: Job) -> Reason:
        """Return why the job waits. For a task of an array behind another task, whose end it was
        given to wait for, that is the array's limit.
        """
        if self.never:
            return Reason.DEPENDENCY_NEVER_MET
        array = job.job_id.rpartition("_")[0]
        own = bool(array) and self.by.rpartition("_")[0] == array
        stated = self.by not in named(job.after_any)
        return Reason.DEPENDENCY_NOT_MET if stated or not own else Reason.ARRAY_LIMIT


@dataclass(slots=True, kw_only=True)
class EndMemory:
    """A plain record of how and when a job ended."""

    job_id: str
    at: float
    success: bool


class Dependencies:
    """The jobs that wait for other jobs to end, and how those other jobs ended."""

    def __init__(self) -> None:
        self._after: dict[str, dict[str, None]] = {}  # maps a job to the jobs that wait for it
        # when, and whether successfully; the front of a plain dict is not removed in constant time
        self._ends = OrderedDict[str, tuple[float, bool]]()

    def remember(self) -> list[EndMemory]:
        """Return, as plain records, how the jobs ended that waiting jobs may depend on."""
        return [
            EndMemory(job_id=job_id, at=at, success=success)
            for job_id, (at, success) in self._ends.items()
        ]

    def restore(self, ends: Iterable[EndMemory], jobs: Iterable[Job]) -> None:
        """Restore how jobs ended, and record which jobs must end before each of `jobs`."""
        self._ends = OrderedDict((one.job_id, (one.at, one.success)) for one in ends)
        for job in jobs:
            self.add(job)

    def add(self, job: Job) -> None:
        """Record which jobs must end before a job starts. Called when the job arrives, and after
        `drop` when its request has changed.
        """
        for other in _all(job):
            self._after.setdefault(other, {})[job.job_id] = None

    def drop(self, job: Job) -> None:
        """Forget which jobs must end before a job starts. Called when the job leaves, or before its
        request changes.
        """
        for other in _all(job):
            waiting = self._after.get(other, {})
            waiting.pop(job.job_id, None)
            if not waiting:
                self._after.pop(other, None)

    def ended(self, job_id: str, success: bool, now: float) -> list[str]:
        """Record that a job ended, was withdrawn or refused; `success` says whether it completed.
        Return the ids of the jobs that wait for it."""
        self._ends[job_id] = now, success
        while now - next(iter(self._ends.values()))[0] > RECENT_S:
            old, (_, succeeded) = self._ends.popitem(last=False)
            if old in self._after:
                self._ends[old] = now, succeeded
        return list(self._after.get(job_id, ()))

    def blocked(self, job: Job, live: Container[str]) -> Blocked | None:
        """Return which job keeps this job from starting, or None when none does.

        `live` are the jobs that have not ended. A job that is neither in `live` nor remembered
        ended long before this one was submitted; the service checked then how it ended
        (`service.api.changes`).
        """
        after, after_any = named(job.after), named(job.after_any)
        for other in after:
            if other not in live and not self._ends.get(other, (0.0, True))[1]:
                return Blocked(other, never=True)
        return next((Blocked(other) for other in (*after, *after_any) if other in live), None)


def _all(job: Job) -> tuple[str, ...]:
    return named(job.after) + named(job.after_any) if job.after or job.after_any else ()
