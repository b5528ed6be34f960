"""Looking how the jobs in Slurm do: they run, wait again, end, or are gone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.local.host import Declared
from scheduler.backends.slurm import script
from scheduler.backends.slurm.attempt import Did, SlurmAttempt, Stage
from scheduler.backends.slurm.attempts import Attempts, Pace, Timing
from scheduler.backends.slurm.client import Slurm
from scheduler.backends.slurm.job_states import (
    OVER,
    RUNNING,
    WAITING,
    judge,
    last_line,
    ran_out_of_memory,
)
from scheduler.backends.slurm.parse import Row
from scheduler.backends.slurm.queue import Queue, is_slurm_id

# Slurm counts a job that is put back as submitted anew
REQUEUED = "put back in the queue in Slurm, where it waits outside Pellucid"
GONE = "Slurm knows it no more, and keeps no record of its end"


class Poller:
    """Moves attempts by what Slurm says of their jobs.

    Args:
        declared: what profiles of commands are said to be.
    """

    def __init__(
        self,
        attempts: Attempts,
        slurm: Slurm,
        pace: Pace,
        timing: Timing,
        queue: Queue | None,
        declared: Sequence[Declared],
    ) -> None:
        self._attempts, self._slurm = attempts, slurm
        self._pace, self._timing, self._queue = pace, timing, queue
        self._declared = tuple(declared)

    def look(self) -> None:
        """See how the jobs do. Raises SlurmDown, SlurmError, ParseError."""
        began = time.monotonic()
        rows, live = self._slurm.rows(), self._attempts.live.values()
        self._timing.looked = began
        there = [attempt for attempt in live if attempt.slurm_id and not attempt.over]
        self._attempts.save(*[attempt for attempt in there if self._seen(attempt, rows)])
        if self._queue is not None:
            self._queue.look(rows, {a.slurm_id for a in live})
        moving = any(not a.over and (a.stage is not Stage.RUNNING or a.stop) for a in live)
        limits = any(a.launch and script.limit_s(a.launch) is not None for a in live)
        took = time.monotonic() - began
        calm = self._pace.soon_s if moving or limits else self._pace.calm_s
        self._timing.look_at = time.monotonic() + max(calm, 4 * took)

    def _seen(self, attempt: SlurmAttempt, rows: Mapping[str, Row]) -> bool:
        """Take in the row of an attempt. True when it tells something new."""
        row = rows.get(attempt.slurm_id)
        if row is None:
            return self._gone(attempt)
        if attempt.submitted not in (None, row.submit):
            self._attempts.lost(attempt, REQUEUED)
            return True
        attempt.absent_since = None
        new, attempt.submitted = attempt.submitted is None, row.submit
        if row.state in OVER:
            self._ended(attempt, row)
            return True
        if row.state in RUNNING and row.start is not None and attempt.let_go:
            return self._runs(attempt, row, row.start) or new
        # by whom one was let go that is still to be placed, is seen when it is placed
        return (row.state in WAITING and self._waits(attempt, row)) or new

    def _runs(self, attempt: SlurmAttempt, row: Row, start: float) -> bool:
        new = attempt.stage is not Stage.RUNNING
        if new:
            attempt.runs(self._moment(start, attempt), self._attempts.now())
        new = self._watch(attempt) or new
        return self._watch_limit(attempt, row) or new

    def _waits(self, attempt: SlurmAttempt, row: Row) -> bool:
        if attempt.stage is Stage.RUNNING:
            self._attempts.lost(attempt, REQUEUED)
            return True
        if not attempt.let_go:
            return False
        releasing, at = attempt.stage is Stage.RELEASING, self._attempts.now()
        if row.priority:
            if releasing:
                attempt.move(Did.HEARD, at)
            return releasing
        if releasing or attempt.since <= self._timing.outage:
            attempt.move(Did.HELD_AGAIN, at)
            return True
        return False  # somebody holds it

    def _watch(self, attempt: SlurmAttempt) -> bool:
        """A run that has its GPUs alone for `watch_s` is known from then on."""
        launch, since = attempt.launch, attempt.started_at
        if launch is None or attempt.observed is not None or since is None:
            return False
        if launch.watch_s is None or launch.partner is not None:
            return False
        profile = self._profile(launch)
        if profile is None or time.time() < since + launch.watch_s:
            return False
        at = self._attempts.now()
        attempt.observed = Report(*attempt.key, Happened.OBSERVED, at, profile=profile)
        return True

    def _profile(self, launch: Launch) -> Profile | None:
        words = " ".join(launch.command)
        found = (d.profile for d in self._declared if fnmatchcase(words, d.command))
        return next(found, None)

    def _watch_limit(self, attempt: SlurmAttempt, row: Row) -> bool:
        """Slurm's limits are minutes; a job of ours is ended to the second."""
        launch = attempt.launch
        if launch is None or attempt.limit or is_slurm_id(launch.job_id) or row.start is None:
            return False
        limit = script.limit_s(launch)
        if limit is None or time.time() < row.start + limit:
            return False
        attempt.limit = True
        return True

    # --- ends ---------------------------------------------------------------------------------

    def _gone(self, attempt: SlurmAttempt) -> bool:
        """Slurm does not know its job (any more)."""
        if attempt.absent_since is None:
            attempt.absent_since = time.monotonic()
        if time.monotonic() - attempt.absent_since < self._pace.calm_s:
            return False
        found = self._slurm.record(attempt.slurm_id, attempt.submitted)
        if found is not None and found.state in OVER:
            self._ended(attempt, found)
        elif attempt.let_go:
            self._attempts.lost(attempt, GONE)
        elif attempt.stop or is_slurm_id(attempt.key[0]):
            self._attempts.not_started(attempt, "its job is gone from Slurm", State.CANCELLED)
        else:  # the controller died before it kept it
            attempt.forget_job(Did.FORGOTTEN, self._attempts.now())
        return True

    def _moment(self, at: float, attempt: SlurmAttempt) -> float:
        """Slurm's whole seconds, never before it was asked for and never to come."""
        return min(max(at, attempt.started_at or attempt.sent_at or 0.0), self._attempts.now())

    def _ended(self, attempt: SlurmAttempt, row: Row) -> None:
        if attempt.stage is not Stage.RUNNING and attempt.let_go and _did_run(row):
            assert row.start is not None
            attempt.runs(self._moment(row.start, attempt), self._attempts.now())
        if attempt.stage is not Stage.RUNNING:
            self._never_began(attempt, row)
            return
        at = self._moment(row.end or self._attempts.now(), attempt)
        if row.state in ("NODE_FAIL", "BOOT_FAIL"):
            self._attempts.lost(attempt, "its node failed", at)
        else:
            attempt.end(self._report(attempt, row, at), self._attempts.now())

    def _never_began(self, attempt: SlurmAttempt, row: Row) -> None:
        if attempt.refusal:  # the answer to its cancel came late
            self._attempts.not_started(attempt, attempt.refusal)
        elif row.state == "CANCELLED":
            self._attempts.not_started(attempt, "cancelled before it began", State.CANCELLED)
        else:
            self._attempts.not_started(attempt, f"{row.state.lower()} in Slurm")

    def _report(self, attempt: SlurmAttempt, row: Row, at: float) -> Report:
        """How a run ended."""
        launch, key = attempt.launch, attempt.key
        ran_s = max(0.0, (row.end or at) - (row.start or at))
        state, code = judge(row)
        if attempt.limit and state is State.CANCELLED and launch is not None:
            asked = launch.time_limit_s
            if launch.purpose is Purpose.PROFILE and (asked is None or ran_s < asked):
                profile = self._profile(launch)
                return Report(*key, Happened.PROFILED, at, ran_s=ran_s, profile=profile)
            detail = f"ran for its {script.limit_s(launch):g} s"
            return Report(*key, Happened.ENDED, at, State.TIMEOUT, code, ran_s, detail)
        output, detail = self._attempts.output(key), ""
        if state is State.FAILED and ran_out_of_memory(row, output):
            state, code, detail = State.OUT_OF_MEMORY, None, "took more memory than it asked for"
        elif state is not State.COMPLETED:
            words = f"exit code {code}" if code is not None else row.state.lower()
            detail = ": ".join(filter(None, (words, last_line(output))))
        return Report(*key, Happened.ENDED, at, state, code, ran_s, detail)


def _did_run(row: Row) -> bool:
    """Whether what is over, and was let go, began."""
    if row.start is None:
        return False
    return row.state != "CANCELLED" or (row.end or 0.0) > row.start
