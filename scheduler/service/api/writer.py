"""Writes requests into the log, many in one transaction.

A commit waits for the disk, and writers wait for each other. So one thread of the process writes:
all requests that arrive during a commit go into the next transaction together. Nobody is answered
before their own event is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep

from sqlalchemy import Connection, func, insert, select

from scheduler.backends.events import Event, Kind
from scheduler.service.api.problems import Problem
from scheduler.service.log.record import JobColumns, Phase, first_row
from scheduler.service.log.store import chain
from scheduler.service.log.store.payloads import Payload, bytes_of
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import idempotency, jobs, payloads

MOST = 256  # events of one transaction; a request that has more has one of its own
APART_S = 0.01  # at least, from one transaction to the next: others write, too
COUNT_S = 10.0  # waiting jobs of a user are counted again after this; when there was no room,
COUNT_FULL_S = 1.0  # after this
_WAITING = [phase.value for phase in Phase if phase.waits]


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key. A request with this key and digest is written once. A request with this
    key and another digest is refused.
    """

    actor: str
    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a request.

    Attributes:
        job_id: id of the job it is about; of the earlier job when the key was used before.
        row: row of the table `jobs`, for a new submission; else None.
    """

    job_id: str
    row: JobColumns | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """The limits on the jobs of one submitter; 0 means no limit.

    Attributes:
        jobs: number of jobs that may wait.
        bytes: size of the commands and environments of all waiting and running jobs.
    """

    jobs: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    event: Event
    once: Once | None
    room: Room
    payload: Payload | None
    done: Future[Written] = field(default_factory=Future)


@dataclass(slots=True)
class _Waiting:
    """The waiting jobs of one submitter: as they were counted in the database, plus those submitted
    since through this process.

    Counting takes milliseconds in which nobody else can write. So it is repeated only after a
    while, or when a quarter of the free room has been used: other processes may have used as much.
    """

    jobs: int
    bytes: int
    recount_at: float  # monotonic
    recount_from: tuple[float, float]

    @classmethod
    def counted(cls, jobs: int, bytes: int, most: Room) -> _Waiting:
        left = [
            max(0, limit - has) for limit, has in ((most.jobs, jobs), (most.bytes, bytes)) if limit
        ]
        after = COUNT_S if all(left) else COUNT_FULL_S
        at_jobs = jobs + max(1, (most.jobs - jobs) // 4) if most.jobs else inf
        at_bytes = bytes + max(1, (most.bytes - bytes) // 4) if most.bytes else inf
        return cls(jobs, bytes, monotonic() + after, (at_jobs, at_bytes))

    @property
    def fresh(self) -> bool:
        at_jobs, at_bytes = self.recount_from
        return monotonic() < self.recount_at and self.jobs < at_jobs and self.bytes < at_bytes


class Writer:
    """Appends the events of one API process to the log, in a thread that starts with the first
    event.
    """

    def __init__(self, store: Store):
        self._store = store
        self._asked: SimpleQueue[Sequence[_Asked] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._waiting: dict[str, _Waiting] = {}  # by actor

    def append(
        self,
        event: Event,
        once: Once | None = None,
        *,
        room: Room | None = None,
        payload: Payload | None = None,
    ) -> Future[Written]:
        """Append an event. If it submits a job, also write the job's row of `jobs` and its payload
        (command and environment). Return a future that is done once it is committed.

        The future raises Problem: 422 when the idempotency key was used for another request, 429
        when the submitter has no `room` for one more job.
        """
        (done,) = self._put([_Asked(event, once, room or Room(), payload)])
        return done

    def append_all(self, events: Iterable[Event]) -> list[Future[Written]]:
        """Append events in one transaction: all of them, or none. None may submit a job. Return a
        future for each that is done once they are committed.
        """
        together = [_Asked(event, None, Room(), None) for event in events]
        return self._put(together) if together else []

    def _put(self, together: Sequence[_Asked]) -> list[Future[Written]]:
        """Hand what is written in one transaction to the thread that writes."""
        for asked in together:
            asked.done.set_running_or_notify_cancel()  # whoever leaves cannot take it back
        self._asked.put(together)
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._work, name="writer", daemon=True)
                self._thread.start()
        return [asked.done for asked in together]

    def close(self) -> None:
        """Write all requested changes to the log, then stop the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(None)
            thread.join()

    def _work(self) -> None:
        going_on = True
        while going_on:
            batch, together = list[_Asked](), self._asked.get()
            while together is not None:
                batch += together
                if len(batch) >= MOST or self._asked.empty():
                    break
                together = self._asked.get()
            going_on = together is not None
            began = monotonic()
            self._write(batch)
            if going_on:
                sleep(max(0.0, APART_S - (monotonic() - began)))

    def _write(self, batch: Sequence[_Asked]) -> None:
        outcomes: list[Written | Problem] = []
        try:
            with self._store.writing() as connection:
                outcomes = self._written(connection, batch)
        except Exception as error:  # the database: nothing of the batch is written
            for asked in batch:
                asked.done.set_exception(error)
            return
        for asked, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Problem):
                asked.done.set_exception(outcome)
            else:
                asked.done.set_result(outcome)

    def _written(self, connection: Connection, batch: Sequence[_Asked]) -> list[Written | Problem]:
        outcomes: list[Written | Problem | None] = []
        keys: dict[tuple[str, str], tuple[str, str]] = {}  # used in this batch
        for asked in batch:
            known = self._known(connection, asked.once, keys) or self._full(connection, asked)
            outcomes.append(known)
            if known is None and asked.once is not None:
                keys[asked.once.actor, asked.once.key] = asked.once.digest, asked.event.job_id
        new = [asked for asked, known in zip(batch, outcomes, strict=True) if known is None]
        appended = iter(self._store.append_in(connection, [asked.event for asked in new]))
        written = [known or _new(next(appended)) for known in outcomes]
        rows = [done.row for done in written if isinstance(done, Written) and done.row]
        if rows:
            connection.execute(insert(jobs), rows)
        kept = [
            asked.payload.row(asked.event.job_id, asked.event.actor)
            for asked in new
            if asked.payload is not None
        ]
        chain.write(connection, payloads, kept)
        used = [
            {
                "actor": asked.once.actor,
                "key": asked.once.key,
                "digest": asked.once.digest,
                "job_id": asked.event.job_id,
                "at": asked.event.at,
            }
            for asked in new
            if asked.once is not None
        ]
        if used:
            connection.execute(insert(idempotency), used)
        return written

    def _full(self, connection: Connection, asked: _Asked) -> Problem | None:
        """Return a problem (429) when the submitter has no room for this job. Otherwise count the
        job as waiting and return None.
        """
        room, actor = asked.room, asked.event.actor
        size = 0 if asked.payload is None else asked.payload.bytes
        if not room.jobs and not room.bytes:
            return None
        waiting = self._waiting.get(actor)
        if waiting is None or not waiting.fresh:
            waits = jobs.c.owner == actor, jobs.c.phase.in_(_WAITING)
            query = select(func.count()).where(*waits)
            counted = connection.execute(query).scalar_one()
            taken = bytes_of(connection, actor)
            waiting = self._waiting[actor] = _Waiting.counted(counted, taken, room)
        if room.jobs and waiting.jobs >= room.jobs:
            return Problem(
                429,
                "too-many-jobs",
                f"{waiting.jobs:,} jobs of yours wait already, the most that may: submit again "
                "when some have started, or cancel some",
                retry_after_s=60,
            )
        if room.bytes and waiting.bytes + size > room.bytes:
            return Problem(
                429,
                "too-many-bytes",
                f"commands and environments of your jobs take {waiting.bytes:,} bytes; "
                f"{room.bytes:,} is the most they may: submit again when some are over",
                retry_after_s=60,
            )
        waiting.jobs += 1
        waiting.bytes += size
        return None

    @staticmethod
    def _known(
        connection: Connection, once: Once | None, keys: dict[tuple[str, str], tuple[str, str]]
    ) -> Written | Problem | None:
        """Return the result of an earlier request with the same key, or a problem (422) where that
        was another request. Return None for a new request.
        """
        if once is None:
            return None
        found = keys.get((once.actor, once.key))
        if found is None:
            row = connection.execute(
                select(idempotency.c.digest, idempotency.c.job_id).where(
                    idempotency.c.actor == once.actor, idempotency.c.key == once.key
                )
            ).one_or_none()
            if row is None:
                return None
            found = row.digest, row.job_id
        if found[0] != once.digest:
            return Problem(
                422,
                "idempotency-key-reused",
                "Idempotency-Key: was used for another request before",
            )
        return Written(found[1])


def _new(event: Event) -> Written:
    submits = event.kind is Kind.SUBMITTED
    return Written(event.job_id, first_row(event) if submits else None)
