"""The attempts that are not done, the journal they are kept in, and when Slurm is asked next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from features.schema import State
from scheduler.backends.base import Happened, Launch, Report
from scheduler.backends.slurm.attempt import Key, SlurmAttempt, Stage
from scheduler.backends.slurm.journal import Journal
from scheduler.backends.slurm.queue import is_slurm_id


@dataclass(frozen=True, slots=True)
class Pace:
    """How often Slurm is asked, seconds.

    Attributes:
        soon_s: between two looks while something is about to start or end.
        calm_s: otherwise.
        again_s: a cancel that shows no effect is repeated after so long.
        submit_s: longest time spent on submitting, or on cancelling, before looking again.
    """

    soon_s: float = 0.25
    calm_s: float = 1.0
    again_s: float = 10.0
    submit_s: float = 1.0


@dataclass(slots=True)
class Timing:
    """What is due, on the monotonic clock.

    Attributes:
        act_at, look_at: when to ask for something, and to look, next.
        looked: when a poll that succeeded began.
        outage: since the epoch: the controller may have forgotten what it was asked before.
    """

    act_at: float = 0.0
    look_at: float = 0.0
    looked: float = 0.0
    outage: float = field(default_factory=time.time)


class Attempts:
    """Those that are not done, by key; what is done to one is in the journal.

    Args:
        output: folder of what jobs of the service's own user write.
    """

    def __init__(self, journal: Journal, now: Callable[[], float], output: Path) -> None:
        self.journal, self.now, self._output = journal, now, output
        self.live = {attempt.key: attempt for attempt in journal.live()}

    def add(self, key: Key, launch: Launch | None) -> SlurmAttempt:
        """A new one. A job that its user submitted to Slurm waits there already."""
        attempt = self.live[key] = SlurmAttempt(key, launch)
        if launch is not None and is_slurm_id(launch.job_id):
            attempt.stage, attempt.slurm_id = Stage.HELD, launch.job_id
        return attempt

    def save(self, *attempts: SlurmAttempt) -> None:
        """Keep attempts as they are, all or none."""
        if attempts:
            self.journal.save(*attempts)

    def not_started(self, attempt: SlurmAttempt, detail: str, state: State | None = None) -> None:
        """It is over, and never began."""
        at = self.now()
        report = Report(*attempt.key, Happened.NOT_STARTED, at, state, detail=detail)
        attempt.end(report, at)

    def lost(self, attempt: SlurmAttempt, detail: str, at: float | None = None) -> None:
        """It was let go, and nobody knows how it ended."""
        now = self.now()
        report = Report(*attempt.key, Happened.LOST, now if at is None else at, detail=detail)
        attempt.end(report, now)

    def untold(self) -> list[Report]:
        """Reports that were not acknowledged, oldest first."""
        found = [
            report
            for attempt in self.live.values()
            for report in (attempt.started, attempt.observed, attempt.final)
            if report is not None and report.what not in attempt.told
        ]
        return sorted(found, key=lambda report: (report.at, report.what.final))

    def acknowledge(self, reports: Iterable[Report]) -> None:
        """These need not be reported again."""
        changed: dict[Key, SlurmAttempt] = {}
        for report in reports:
            attempt = self.live.get((report.job_id, report.attempt))
            if attempt is not None:
                attempt.told |= {report.what}
                changed[attempt.key] = attempt
        self.save(*changed.values())
        for key, attempt in changed.items():
            if attempt.done:
                del self.live[key]

    def output(self, key: Key) -> Path:
        """Where the output of a job of the service's own user is, or would be."""
        job_id, attempt = key
        return self._output / f"{job_id}.{attempt}.log"
