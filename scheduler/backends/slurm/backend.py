"""Place: Slurm carries out what the core decides, on the nodes and GPUs it decides.

A job is submitted held and without GPUs, placed by one update, then released (`commands`); how it
does is seen by `polling`. What was asked of Slurm is in the journal before and after, and an
attempt is named in its job's comment, so that whoever opens the journal after a crash finds what
was begun. No command is waited for longer than `client.READ_PATIENCE_S`, and nothing is ever
cancelled but what was stopped or is over its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog

from features.clock import Clock
from features.schema import State
from scheduler.backends.base import Launch, Report
from scheduler.backends.events import Event
from scheduler.backends.local.host import Declared, HostError
from scheduler.backends.slurm import script
from scheduler.backends.slurm.attempt import Key, Stage
from scheduler.backends.slurm.attempts import Attempts, Pace, Timing
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.commands import Commands
from scheduler.backends.slurm.journal import Journal
from scheduler.backends.slurm.parse import ParseError, SlurmJob
from scheduler.backends.slurm.polling import Poller
from scheduler.backends.slurm.queue import Queue, is_slurm_id
from scheduler.backends.slurm.shape import Shape
from scheduler.core.decisions import Decision


class SlurmBackend:
    """Runs jobs where and when the core says, through Slurm.

    Args:
        folder: of the journal, made when missing; nobody else may write to it.
        shape: nodes by the core's numbers.
        slurm: reaches the controller.
        adopts: take over jobs that users submit to the governed partitions.
        declared: what profiles of commands are said to be, on fake GPUs. Nothing reads the
            counters of real ones yet: without it, jobs are profiled in vain.

    Raises JournalError: another service uses the folder.
    """

    name = "slurm"

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        slurm: Slurm,
        *,
        adopts: bool = True,
        declared: Sequence[Declared] = (),
        pace: Pace | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.shape, self.slurm, self.pace = shape, slurm, pace or Pace()
        self.journal = Journal(folder)
        output = folder / "output"
        output.mkdir(mode=0o700, exist_ok=True)
        self.clock = clock or Clock()
        self.timing = Timing()
        self.attempts = Attempts(self.journal, self.now, output)
        self.queue = Queue(shape, slurm, self.journal, self._stray) if adopts else None
        shared = self.pace, self.timing, self.queue
        self.commands = Commands(self.attempts, shape, slurm, *shared)
        self._poller = Poller(self.attempts, slurm, *shared, declared)
        self.log = structlog.get_logger("slurm")

    def now(self) -> float:
        return self.clock.now()

    def launch(self, launch: Launch) -> None:
        key = launch.job_id, launch.attempt
        if key in self.attempts.live or self.journal.knows(key):
            return
        attempt = self.attempts.add(key, launch)
        if not is_slurm_id(launch.job_id):
            try:
                script.script(launch)
            except HostError as error:
                self.attempts.not_started(attempt, str(error))
        self.attempts.save(attempt)

    def stop(self, job_id: str, attempt: int) -> None:
        key = job_id, attempt
        known = self.attempts.live.get(key)
        if known is None:
            if self.journal.knows(key):
                return
            known = self.attempts.add(key, None)
        if known.over or known.stop:
            return
        known.stop = True
        if known.stage is Stage.ASKED:
            self.attempts.not_started(known, "stopped before it began", State.CANCELLED)
        self.attempts.save(known)

    def reports(self, timeout_s: float) -> Sequence[Report]:
        until, timing = time.monotonic() + timeout_s, self.timing
        while True:
            if time.monotonic() >= timing.act_at and not self._tried(self.commands.act):
                timing.act_at = time.monotonic() + self.pace.calm_s
            # whatever cannot be asked for: runs end all the same
            if time.monotonic() >= timing.look_at and not self._tried(self._poller.look):
                timing.look_at = time.monotonic() + self.pace.calm_s
            found = self.attempts.untold()
            left = until - time.monotonic()
            if found or left <= 0:
                return found
            self.clock.sleep(max(0.0, min(left, self.pace.soon_s / 5)))

    def _tried(self, what: Callable[[], None]) -> bool:
        """Do it as far as Slurm answers; False: it says what is not understood."""
        try:
            what()
        except SlurmDown:
            self.timing.outage = time.time()
        except (ParseError, SlurmError) as error:
            self.log.error("slurm_unread", why=str(error))
            return False
        return True

    def _stray(self, job: SlurmJob) -> None:
        self.commands.stray(job)

    def acknowledge(self, reports: Sequence[Report]) -> None:
        self.attempts.acknowledge(reports)

    def begun(self) -> frozenset[Key]:
        return self.journal.begun()

    def output(self, job_id: str, attempt: int) -> Path:
        """Where the output of a job of the service's own user is, or would be."""
        return self.attempts.output((job_id, attempt))

    def story(self, job_id: str, attempt: int) -> str:
        """Everything that happened to an attempt that is not done, a line each."""
        known = self.attempts.live.get((job_id, attempt))
        return f"{job_id}, attempt {attempt} is not live" if known is None else known.story()

    def close(self) -> None:
        self.slurm.close()
        self.journal.close()

    # --- what others do -----------------------------------------------------------------------

    def news(self) -> list[Event]:
        """What was done in Slurm by others, as events; again until they are `heard`."""
        return self.queue.news(self.now()) if self.queue is not None else []

    def heard(self, events: Iterable[Event]) -> None:
        """These are in the log."""
        if self.queue is not None:
            self.queue.heard(events)

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Decisions that are in the log, before they are carried out: their reasons are shown
        where Slurm's users look."""
        if self.queue is not None:
            self.queue.decided(decisions)
