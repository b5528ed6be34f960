"""Place: Slurm carries out what the core decides, on the nodes and GPUs it decides.

A job is submitted held and without GPUs, placed by one update, then released. What was asked of
Slurm is in the journal before and after, and an attempt is named in its job's comment, so that
whoever opens the journal after a crash finds what was begun. Nothing here blocks for longer than
`client.PATIENCE_S`, and nothing is ever cancelled but what was stopped or is over its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import structlog

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.events import Event
from scheduler.backends.local.host import Declared, HostError, own_user
from scheduler.backends.slurm import script
from scheduler.backends.slurm.client import RestDown, Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.job_states import (
    OVER,
    RUNNING,
    WAITING,
    judge,
    last_line,
    ran_out_of_memory,
)
from scheduler.backends.slurm.journal import Attempt, Journal, Key
from scheduler.backends.slurm.parse import ParseError, Row, SlurmJob
from scheduler.backends.slurm.queue import Queue, is_slurm_id
from scheduler.backends.slurm.shape import Shape
from scheduler.core.decisions import Decision

# Slurm counts a job that is put back as submitted anew
REQUEUED = "put back in the queue in Slurm, where it waits outside Pellucid"
BY_HAND = "released in Slurm by hand; it runs outside Pellucid"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often Slurm is asked, seconds.

    Attributes:
        soon_s: between two looks while something is about to start or end.
        calm_s: otherwise.
        again_s: a cancel that shows no effect is repeated after so long.
        submit_s: longest time spent on submitting before looking again.
    """

    soon_s: float = 0.25
    calm_s: float = 1.0
    again_s: float = 10.0
    submit_s: float = 1.0


class SlurmBackend:
    """Runs jobs where and when the core says, through Slurm.

    Args:
        folder: of the journal, made when missing; nobody else may write to it.
        shape: nodes by the core's numbers.
        slurm: reaches the controller.
        adopts: take over jobs that users submit to the governed partitions.
        declared: what profiles of commands are said to be, on fake GPUs. Nothing reads the
            counters of real ones yet: without it, jobs are looked at and no profile comes of it.

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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.shape, self.slurm, self.pace = shape, slurm, pace or Pace()
        self._output = folder / "output"
        self.journal = Journal(folder)
        self._output.mkdir(mode=0o700, exist_ok=True)
        self._sleep = sleep
        self._declared = tuple(declared)
        self._live = {attempt.key: attempt for attempt in self.journal.live()}
        self.queue = Queue(shape, slurm, self.journal, self._stray) if adopts else None
        self._clock = 0.0
        self._act_at = 0.0  # monotonic: when to ask for something next
        self._look_at = 0.0  # monotonic: when to look next
        self._looked = 0.0  # monotonic: when a look that succeeded began
        self._new: set[Key] = set()  # just submitted, and nothing else was asked yet
        self._words: dict[Key, str] = {}  # why Slurm would not place what is being cancelled
        self._cancelled: dict[Key, float] = {}  # when a cancel was last sent, monotonic
        self._absent: dict[Key, float] = {}  # since when Slurm does not know it, monotonic
        self._unheard: set[Key] = set()  # slurmrestd did not answer that it is let go
        self._outage = time.time()  # the controller may have forgotten what was asked before
        self.log = structlog.get_logger("slurm")

    # --- the contract -------------------------------------------------------------------------

    def now(self) -> float:
        self._clock = max(self._clock, time.time())
        return self._clock

    def launch(self, launch: Launch) -> None:
        key = launch.job_id, launch.attempt
        if key in self._live or self.journal.knows(key):
            return
        attempt = self._live[key] = Attempt(key, launch)
        if is_slurm_id(launch.job_id):
            attempt.slurm_id = launch.job_id
        else:
            try:
                script.script(launch)
            except HostError as error:
                attempt.final = self._not_started(key, str(error))
        self.journal.save(attempt)

    def stop(self, job_id: str, attempt: int) -> None:
        key = job_id, attempt
        known = self._live.get(key)
        if known is None:
            if self.journal.knows(key):
                return
            known = self._live[key] = Attempt(key)
        if known.over or known.stop:
            return
        known.stop = True
        if known.sent_at is None and not known.slurm_id:
            known.final = self._not_started(key, "stopped before it began", State.CANCELLED)
        self.journal.save(known)

    def reports(self, timeout_s: float) -> Sequence[Report]:
        until = time.monotonic() + timeout_s
        while True:
            if time.monotonic() >= self._act_at and not self._tried(self._act):
                self._act_at = time.monotonic() + self.pace.calm_s
            # whatever cannot be asked for: runs end all the same
            if time.monotonic() >= self._look_at and not self._tried(self._look):
                self._look_at = time.monotonic() + self.pace.calm_s
            found = self._untold()
            left = until - time.monotonic()
            if found or left <= 0:
                return found
            self._sleep(max(0.0, min(left, self.pace.soon_s / 5)))

    def _tried(self, what: Callable[[], None]) -> bool:
        """Do it as far as Slurm answers; False: it says what is not understood."""
        try:
            what()
        except SlurmDown:
            self._outage = time.time()
        except (ParseError, SlurmError) as error:
            self.log.error("slurm_unread", why=str(error))
            return False
        return True

    def acknowledge(self, reports: Sequence[Report]) -> None:
        changed: dict[Key, Attempt] = {}
        for report in reports:
            key = report.job_id, report.attempt
            attempt = self._live.get(key)
            if attempt is not None:
                attempt.told |= {report.what}
                changed[key] = attempt
        if not changed:
            return
        self.journal.save(*changed.values())
        for key, attempt in changed.items():
            if attempt.done:
                del self._live[key]
                self._cancelled.pop(key, None)
                self._absent.pop(key, None)
                self._words.pop(key, None)
                self._new.discard(key)
                self._unheard.discard(key)

    def begun(self) -> frozenset[Key]:
        return self.journal.begun()

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

    # --- asking -------------------------------------------------------------------------------

    def _act(self) -> None:
        """Ask Slurm for what is to be done. Raises SlurmDown, SlurmError, ParseError."""
        waiting = [a for a in self._live.values() if not a.over and a.released_at is None]
        if any(a.sent_at is not None and not a.slurm_id for a in waiting):
            self._find(waiting)
        until = time.monotonic() + self.pace.submit_s
        with self._by_rest():
            for attempt in waiting:
                if not (attempt.slurm_id or attempt.stop) and time.monotonic() < until:
                    self._submit(attempt)
        with self._by_rest():
            self._place([a for a in waiting if a.slurm_id and not a.stop and not a.over])
        with self._by_rest():
            for attempt in self._live.values():
                if (attempt.stop or attempt.limit) and attempt.slurm_id and not attempt.over:
                    self._cancel(attempt)
        with self._by_rest():
            if self.queue is not None:
                self.queue.show()

    @contextmanager
    def _by_rest(self) -> Iterator[None]:
        """What slurmrestd may have a part in: while it is down all else goes on, and this is tried
        again after its pause."""
        try:
            yield
        except RestDown as down:
            self._act_at = time.monotonic() + down.again_s

    def _find(self, waiting: Iterable[Attempt]) -> None:
        """Find the jobs of attempts whose `sbatch` may or may not have been heard."""
        there = {job.comment: job for job in self.slurm.jobs() if job.comment}
        for attempt in waiting:
            if attempt.sent_at is None or attempt.slurm_id or attempt.launch is None:
                continue
            job = there.get(script.mark(attempt.launch, self.journal.site))
            if job is not None and job.submit >= attempt.sent_at - 2.0:
                attempt.slurm_id, attempt.submitted = job.id, job.submit
            elif attempt.stop:
                attempt.final = self._not_started(attempt.key, "stopped", State.CANCELLED)
            else:
                attempt.sent_at = None
            self.journal.save(attempt)

    def _stray(self, job: SlurmJob) -> None:
        """A held job that may be ours, by an `sbatch` that was carried out after its answer was
        lost: the attempt takes it where it has none. Where it has another, or is over, this one is
        cancelled: it never ran, and never would. Raises SlurmDown."""
        key = script.marked(job, self.journal.site)
        if key is None or not self.journal.knows(key) or job.start is not None or job.placed:
            return
        attempt = self._live.get(key)
        launch = attempt.launch if attempt is not None else None
        if job.user != ((launch.user if launch is not None else "") or own_user()):
            return  # the comment of another can be copied
        if attempt is not None and not (attempt.over or attempt.stop or attempt.slurm_id):
            attempt.slurm_id, attempt.submitted = job.id, job.submit
            attempt.sent_at = attempt.sent_at or job.submit
            self.journal.save(attempt)
        elif attempt is None or attempt.slurm_id != job.id:
            self.log.warning("slurm_duplicate", job=key[0], attempt=key[1], slurm_job=job.id)
            try:
                self.slurm.cancel(job.id)
            except SlurmError as error:
                self.log.info("slurm_cancel", job=key[0], why=str(error))

    def _submit(self, attempt: Attempt) -> None:
        launch = attempt.launch
        assert launch is not None
        attempt.sent_at = self.now()
        self.journal.save(attempt)
        try:
            made = script.options(launch, self.shape, self.output(*attempt.key), self.journal.site)
            attempt.slurm_id = self.slurm.submit(made, script.script(launch))
            self._new.add(attempt.key)
        except (SlurmError, HostError) as error:
            attempt.final = self._not_started(attempt.key, str(error))
        self.journal.save(attempt)

    def _place(self, attempts: Sequence[Attempt]) -> None:
        """Place and release. Of what Slurm may have been asked for already (an answer came late, or
        the service crashed), the job itself says what is left to do."""
        there = self._jobs_of([a for a in attempts if not self._is_new(a)])
        placed = self._as_they_are(attempts, there)
        fresh = [a for a in attempts if self._is_new(a) or _is_bare(there.get(a.key))]
        at = self.now()
        for attempt in fresh:
            attempt.sent_at = attempt.sent_at or at
            self._new.discard(attempt.key)
        if fresh:
            self.journal.save(*fresh)
            said_of = self.slurm.write([self._update(attempt) for attempt in fresh])
            refused = [(a, said) for a, said in zip(fresh, said_of, strict=True) if said]
            placed += [a for a, said in zip(fresh, said_of, strict=True) if not said]
            placed += self._refused(refused)
        self._release(placed)

    def _is_new(self, attempt: Attempt) -> bool:
        """Whether nothing was ever asked of Slurm about its job but to have it."""
        if is_slurm_id(attempt.key[0]):
            return attempt.sent_at is None
        return attempt.key in self._new

    def _jobs_of(self, attempts: Sequence[Attempt]) -> dict[Key, SlurmJob]:
        """The jobs of attempts as they are now. Ids are used again: a submit time, or our mark,
        tells jobs apart. What is not there is left to the next look."""
        if not attempts:
            return {}
        there, found = {job.id: job for job in self.slurm.jobs()}, {}
        for attempt in attempts:
            job, launch = there.get(attempt.slurm_id), attempt.launch
            if job is None or launch is None or attempt.submitted not in (None, job.submit):
                continue
            known = attempt.submitted is not None or is_slurm_id(attempt.key[0])
            if known or job.comment == script.mark(launch, self.journal.site):
                found[attempt.key] = job
        return found

    def _as_they_are(
        self, attempts: Iterable[Attempt], there: Mapping[Key, SlurmJob]
    ) -> list[Attempt]:
        """Take in what became of jobs; those that are placed and wait for their release."""
        placed, changed = [], []
        for attempt in attempts:
            job = there.get(attempt.key)
            if job is None or _is_bare(job):
                continue
            if job.state in WAITING and job.priority == 0:
                placed.append(attempt)
            elif job.placed or not is_slurm_id(attempt.key[0]):  # let go, and perhaps over
                attempt.submitted, attempt.released_at = job.submit, self.now()
                changed.append(attempt)
            elif job.state in RUNNING:
                attempt.final = self._not_started(attempt.key, BY_HAND)
                changed.append(attempt)
        if changed:
            self.journal.save(*changed)
        return placed

    def _refused(self, refused: Sequence[tuple[Attempt, str]]) -> list[Attempt]:
        """What Slurm would not place is over, if it still waits; those that are placed after all
        (by an update that came late)."""
        there = self._jobs_of([attempt for attempt, _ in refused])
        placed = self._as_they_are([attempt for attempt, _ in refused], there)
        for attempt, said in refused:
            if not _is_bare(there.get(attempt.key)):
                continue
            self._words[attempt.key] = said
            if not is_slurm_id(attempt.key[0]):
                try:
                    self.slurm.cancel(attempt.slurm_id)
                except SlurmError as error:
                    self.log.info("slurm_cancel", job=attempt.key[0], why=str(error))
            attempt.final = self._not_started(attempt.key, said)
            self.journal.save(attempt)
        return placed

    def _release(self, attempts: Sequence[Attempt]) -> None:
        """Let jobs go. They count as let go before Slurm is asked: a late answer leaves it to the
        next look whether they run, or wait and are to be released again."""
        if not attempts:
            return
        at = self.now()
        for attempt in attempts:
            attempt.released_at = at
        self.journal.save(*attempts)
        self._look_at = 0.0
        try:
            said_of = self.slurm.write([f"release {attempt.slurm_id}" for attempt in attempts])
        except RestDown:  # no outage of the controller: what others hold stays held
            self._unheard |= {attempt.key for attempt in attempts}
            raise
        for attempt, said in zip(attempts, said_of, strict=True):
            if said:
                self.log.warning("slurm_release", job=attempt.key[0], why=said)

    def _update(self, attempt: Attempt) -> str:
        launch = attempt.launch
        assert launch is not None
        where = script.placement(launch, self.shape)
        ours = not is_slurm_id(launch.job_id)
        why = self.queue.words(launch.job_id) if self.queue is not None else ""
        total = sum(map(len, launch.gpus))
        ask = self.queue.ask(launch.job_id) if self.queue is not None and not ours else ""
        text = f"{ask or f'gpus={total}'}; on {where}" + (f"; {why}" if why else "")
        return script.update(attempt.slurm_id, launch, self.shape, text, ours=ours)

    def _cancel(self, attempt: Attempt) -> None:
        now, last = time.monotonic(), self._cancelled.get(attempt.key)
        if self._looked <= (last or 0.0):
            return  # never again before it was seen how the job is
        if last is not None and now < last + self.pace.again_s:
            return
        self._cancelled[attempt.key] = now
        try:
            self.slurm.cancel(attempt.slurm_id)
        except SlurmError as error:  # it is over, or gone: the next look tells
            self.log.info("slurm_cancel", job=attempt.key[0], why=str(error))
        self._look_at = 0.0

    # --- looking ------------------------------------------------------------------------------

    def _look(self) -> None:
        """See how the jobs do. Raises SlurmDown, SlurmError, ParseError."""
        began = time.monotonic()
        rows = self.slurm.rows()
        self._looked = began
        changed = [
            attempt
            for attempt in self._live.values()
            if attempt.slurm_id and not attempt.over and self._seen(attempt, rows)
        ]
        if changed:
            self.journal.save(*changed)
        if self.queue is not None:
            self.queue.look(rows, {a.slurm_id for a in self._live.values()})
        moving = any(not a.over and (a.started_at is None or a.stop) for a in self._live.values())
        limits = any(a.launch and script.limit_s(a.launch) is not None for a in self._live.values())
        took = time.monotonic() - began
        calm = self.pace.soon_s if moving or limits else self.pace.calm_s
        self._look_at = time.monotonic() + max(calm, 4 * took)

    def _seen(self, attempt: Attempt, rows: dict[str, Row]) -> bool:
        """Take in the row of an attempt. True when it tells something new."""
        row = rows.get(attempt.slurm_id)
        if row is not None and attempt.submitted not in (None, row.submit):
            attempt.final = Report(*attempt.key, Happened.LOST, self.now(), detail=REQUEUED)
            return True
        if row is None:
            return self._gone(attempt)
        self._absent.pop(attempt.key, None)
        changed = attempt.submitted is None
        attempt.submitted = row.submit
        if row.state in OVER:
            self._ended(attempt, row)
            return True
        if row.state in RUNNING and row.start is not None:
            if attempt.released_at is None:
                return changed  # by whom it was let go is seen when it is placed
            if attempt.started_at is None:
                attempt.started_at = self._moment(row.start, attempt)
                changed = True
            changed = self._watch(attempt) or changed
            return self._watch_limit(attempt, row) or changed
        if row.state in WAITING:
            return self._waits(attempt, row) or changed
        return changed

    def _waits(self, attempt: Attempt, row: Row) -> bool:
        if attempt.started_at is not None:
            attempt.final = Report(*attempt.key, Happened.LOST, self.now(), detail=REQUEUED)
            return True
        if row.priority == 0 and attempt.released_at is not None:
            if attempt.released_at > self._outage and attempt.key not in self._unheard:
                return False  # somebody holds it
            attempt.released_at = None  # the release was not heard, or died with the controller
            self._unheard.discard(attempt.key)
            return True
        if row.priority:
            self._unheard.discard(attempt.key)
        return False

    def _watch(self, attempt: Attempt) -> bool:
        """A run that has its GPUs alone for `watch_s` is known from then on."""
        launch, since = attempt.launch, attempt.started_at
        if launch is None or attempt.observed is not None or since is None:
            return False
        if launch.watch_s is None or launch.partner is not None:
            return False
        profile = self._profile(launch)
        if profile is None or time.time() < since + launch.watch_s:
            return False
        at = self.now()
        attempt.observed = Report(*attempt.key, Happened.OBSERVED, at, profile=profile)
        return True

    def _profile(self, launch: Launch) -> Profile | None:
        words = " ".join(launch.command)
        found = (d.profile for d in self._declared if fnmatchcase(words, d.command))
        return next(found, None)

    def _watch_limit(self, attempt: Attempt, row: Row) -> bool:
        """Slurm's limits are minutes; a job of ours is ended to the second."""
        launch = attempt.launch
        if launch is None or attempt.limit or is_slurm_id(launch.job_id) or row.start is None:
            return False
        limit = script.limit_s(launch)
        if limit is None or time.time() < row.start + limit:
            return False
        attempt.limit = True
        return True

    def _gone(self, attempt: Attempt) -> bool:
        """Slurm does not know its job (any more)."""
        since = self._absent.setdefault(attempt.key, time.monotonic())
        if time.monotonic() - since < self.pace.calm_s:
            return False
        found = self.slurm.record(attempt.slurm_id, attempt.submitted)
        if found is not None and found.state in OVER:
            self._ended(attempt, found)
        elif attempt.released_at is None:
            if attempt.stop or is_slurm_id(attempt.key[0]):
                detail = "its job is gone from Slurm"
                attempt.final = self._not_started(attempt.key, detail, State.CANCELLED)
            else:  # the controller died before it kept it
                attempt.slurm_id, attempt.sent_at, attempt.submitted = "", None, None
                self._absent.pop(attempt.key)
        else:
            detail = "Slurm knows it no more, and keeps no record of its end"
            attempt.final = Report(*attempt.key, Happened.LOST, self.now(), detail=detail)
        return True

    def _moment(self, at: float, attempt: Attempt) -> float:
        """Slurm's whole seconds, never before it was asked for and never to come."""
        return min(max(at, attempt.started_at or attempt.sent_at or 0.0), self.now())

    def _ended(self, attempt: Attempt, row: Row) -> None:
        launch, key = attempt.launch, attempt.key
        ran = row.start is not None and attempt.released_at is not None
        ran = ran and (row.state != "CANCELLED" or (row.end or 0.0) > (row.start or 0.0))
        if attempt.started_at is None and ran and row.start is not None:
            attempt.started_at = self._moment(row.start, attempt)
        at = self._moment(row.end or self.now(), attempt)
        if attempt.started_at is None:
            state = State.CANCELLED if row.state == "CANCELLED" else None
            detail = "cancelled before it began" if state else f"{row.state.lower()} in Slurm"
            if key in self._words:  # it was refused, and the answer to its cancel came late
                state, detail = None, self._words[key]
            attempt.final = self._not_started(key, detail, state)
            return
        if row.state in ("NODE_FAIL", "BOOT_FAIL"):
            detail = "its node failed"
            attempt.final = Report(*key, Happened.LOST, at, detail=detail)
            return
        ran_s = max(0.0, (row.end or at) - (row.start or at))
        state, code = judge(row)
        limited = attempt.limit and state is State.CANCELLED
        if limited and launch is not None and launch.purpose is Purpose.PROFILE:
            asked = launch.time_limit_s
            if asked is None or ran_s < asked:
                profile = self._profile(launch)
                attempt.final = Report(*key, Happened.PROFILED, at, ran_s=ran_s, profile=profile)
                return
        output = self.output(*key)
        detail = ""
        if limited:
            state, detail = State.TIMEOUT, f"ran for its {script.limit_s(launch):g} s"  # type: ignore[arg-type]
        elif state is State.FAILED and ran_out_of_memory(row, output):
            state, code, detail = State.OUT_OF_MEMORY, None, "took more memory than it asked for"
        elif state is not State.COMPLETED:
            words = f"exit code {code}" if code is not None else row.state.lower()
            detail = ": ".join(filter(None, (words, last_line(output))))
        attempt.final = Report(*key, Happened.ENDED, at, state, code, ran_s, detail)

    def _not_started(self, key: Key, detail: str, state: State | None = None) -> Report:
        return Report(*key, Happened.NOT_STARTED, self.now(), state, detail=detail)

    # --- telling ------------------------------------------------------------------------------

    def _untold(self) -> list[Report]:
        found = [
            report
            for attempt in self._live.values()
            for report in (attempt.started, attempt.observed, attempt.final)
            if report is not None and report.what not in attempt.told
        ]
        return sorted(found, key=lambda report: (report.at, report.what.final))

    def output(self, job_id: str, attempt: int) -> Path:
        """Where the output of a job of the service's own user is, or would be."""
        return self._output / f"{job_id}.{attempt}.log"


def _is_bare(job: SlurmJob | None) -> bool:
    """Whether it waits and was given no GPUs yet."""
    return job is not None and job.state in WAITING and not job.placed
