"""The database: appending events to the log, reading them, and leases.

Appends are serialised (SQLite: `BEGIN IMMEDIATE`; PostgreSQL: an advisory lock held to the end of
the transaction), so `seq` is the order of commits: a reader that has seen event `n` never finds a
smaller number later. What an event changes in other tables is written in the same transaction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    PoolProxiedConnection,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.engine import Row, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from features.clock import Clock
from features.garbage import uncollected
from features.given import regular
from scheduler.backends.events import Event, Kind, canonical
from scheduler.service.log.store import chain, leases
from scheduler.service.log.store.alike import of_name
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.leases import Lease
from scheduler.service.log.store.line import line_of
from scheduler.service.log.store.tables import Columns, events

BUSY_TIMEOUT_MS = 10_000
JOURNAL_PAGES = 16_384  # of SQLite, 64 MiB: beyond, commits carry it over if nobody else does
LOCK = 0x70656C6C  # names the advisory lock of PostgreSQL: any number, the same in every process
# All writers wait for the one that writes. One that does nothing for so long hangs: PostgreSQL ends
# its transaction, and with SQLite its process is killed by who minds it.
WRITES_MS = 10_000
LOOK_S = 0.25  # between two looks at a lease
ALONE = text(
    "SELECT set_config('idle_in_transaction_session_timeout', :ms, true), pg_advisory_xact_lock(:n)"
)


class StoreError(ValueError):
    """Raised for a database that cannot be used. The message is one line with the reason."""


Also = Callable[[Connection, list[Event]], None]  # table changes that belong to the events


def must_exist(url: str) -> None:
    """Raise StoreError when a SQLite file is missing, because opening it would create an empty
    one.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        return  # the store says what is wrong with it
    file = parsed.database
    if parsed.get_backend_name() == "sqlite" and file and not Path(file).exists():
        raise StoreError(f"database {file}: no such file")


class Store:
    """One database. Safe to share between threads; open one per process.

    Args:
        url: SQLAlchemy URL of SQLite or PostgreSQL.
        clock: clock of this process.
    """

    def __init__(self, url: str, clock: Clock | None = None):
        self.engine = _engine(url)
        self.clock = clock or Clock()
        self._watch = leases.Watch()
        self.line = line_of(self.engine.url)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        self.engine.dispose()

    # --- transactions -----------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection on which everything is read as of one moment."""
        with self.engine.connect() as connection:
            if not self.is_sqlite:
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection with a transaction that no other writer overlaps. It is committed when
        the block ends, and rolled back when the block fails.
        """
        with self._in_line(), uncollected(), self.engine.connect() as connection:
            connection.info["writes"] = True
            try:
                with connection.begin():
                    if not self.is_sqlite:
                        connection.execute(ALONE, {"n": LOCK, "ms": str(WRITES_MS)})
                    yield connection
                    chain.add_link(connection)
            finally:
                connection.info.pop("writes", None)
                chain.forget(connection)

    def _in_line(self) -> AbstractContextManager[None]:
        return nullcontext() if self.line is None else self.line.turn()

    def checkpoint(self) -> None:
        """Write SQLite's journal back to the database file, so that no commit has to.

        Most of it is written while others may write. What they have added meanwhile is written
        under the lock of the writers. After that the next writer begins the journal at its start.
        """
        if self.line is None:
            return
        connection = self.engine.raw_connection()  # not in a transaction, where none can be made
        try:
            pages = _carried_over(connection)
            if _carried_over(connection) > pages:  # somebody wrote meanwhile
                with self._in_line():
                    _carried_over(connection)
        finally:
            connection.close()

    # --- the log ----------------------------------------------------------------------------

    def append(
        self, new: Sequence[Event], also: Also | None = None, *, lease: Lease | None = None
    ) -> list[Event]:
        """Append events, and what they change in tables, in one transaction. Return them with their
        `seq`.

        Args:
            also: writes the changes of tables; an exception in it undoes everything.
            lease: the lease under which the caller acts. Where it was taken over, raise LeaseLost
                and write nothing.
        """
        with self.writing() as connection:
            if lease is not None:
                leases.fence(connection, lease)
            return self.append_in(connection, new, also)

    def append_in(
        self, connection: Connection, new: Sequence[Event], also: Also | None = None
    ) -> list[Event]:
        """Append events inside a transaction of `writing`. Return them with their `seq`. `also`:
        writes the changes of tables.
        """
        seq = connection.execute(select(func.max(events.c.seq))).scalar() or 0
        numbered = [replace(e, seq=seq + i) for i, e in enumerate(new, 1)]
        if numbered:
            chain.write(connection, events, [_row(e) for e in numbered])
        if also is not None:
            also(connection, numbered)
        return numbered

    def read(
        self, after: int = 0, *, limit: int | None = None, kinds: Iterable[Kind] | None = None
    ) -> list[Event]:
        """Return the events with `seq` greater than `after`, in order. `limit`: at most so
        many; `kinds`: only of these kinds; None: all."""
        query = select(events).where(events.c.seq > after).order_by(events.c.seq).limit(limit)
        if kinds is not None:
            query = query.where(events.c.kind.in_([k.value for k in kinds]))
        with self.engine.connect() as connection:
            return _events(connection, connection.execute(query).all())

    def last_in(self, connection: Connection, kind: Kind) -> Event | None:
        """Return the latest event of a kind, or None where there is none."""
        query = select(events).where(events.c.kind == kind.value)
        row = connection.execute(query.order_by(events.c.seq.desc()).limit(1)).one_or_none()
        return None if row is None else _events(connection, [row])[0]

    def of_kinds_in(self, connection: Connection, kinds: Iterable[Kind], after: int) -> list[Event]:
        """Return the events of these kinds with `seq` greater than `after`, in order."""
        query = select(events).where(events.c.seq > after).order_by(events.c.seq)
        query = query.where(events.c.kind.in_([kind.value for kind in kinds]))
        return _events(connection, connection.execute(query).all())

    def first_in(self, connection: Connection) -> Event | None:
        """Return the first event of the log, which says what the core is built from; None where
        the log is empty."""
        row = connection.execute(select(events).order_by(events.c.seq).limit(1)).one_or_none()
        return None if row is None else _events(connection, [row])[0]

    def each(
        self, after: int = 0, *, upto: int | None = None, batch: int = 5000
    ) -> Iterator[Event]:
        """Yield every event after number `after` and up to `upto` (None: all), read in batches, so
        that a long log fits into memory.
        """
        with self.reading() as connection:
            yield from self.each_in(connection, after, upto=upto, batch=batch)

    def each_in(
        self,
        connection: Connection,
        after: int = 0,
        *,
        upto: int | None = None,
        batch: int = 5000,
    ) -> Iterator[Event]:
        """Yield every event after `after`, up to `upto` (None: all), read in batches on a
        connection of `reading`.
        """
        query = select(events).order_by(events.c.seq).limit(batch)
        if upto is not None:
            query = query.where(events.c.seq <= upto)
        while rows := connection.execute(query.where(events.c.seq > after)).all():
            yield from _events(connection, rows)
            after = rows[-1].seq

    def last_seq(self) -> int:
        """Return the `seq` of the newest event, or 0 when there is none."""
        with self.engine.connect() as connection:
            return self.last_seq_in(connection)

    def last_seq_in(self, connection: Connection, kind: Kind | None = None) -> int:
        """Return the `seq` of the newest event inside a transaction, or 0 where there is none.
        `kind`: only events of this kind; None: all."""
        query = select(func.max(events.c.seq))
        if kind is not None:
            query = query.where(events.c.kind == kind.value)
        return connection.execute(query).scalar() or 0

    # --- leases -----------------------------------------------------------------------------

    def take(self, name: str, holder: str, for_s: float, *, ready: bool = True) -> Lease | None:
        """Take a lease that is free, expired or already held by `holder`, and return it. Return
        None while another process holds it.

        A holder that takes its own lease again keeps the term if no other has held it in between.
        """
        with self.writing() as connection:
            return self._watch.take(connection, self.clock, name, holder, for_s=for_s, ready=ready)

    def may_take(self, name: str, holder: str) -> bool:
        """Return whether `take` would return the lease now. Nothing is changed."""
        with self.engine.connect() as connection:
            return self._watch.may_take(leases.lease_of(connection, name), self.clock, holder)

    def is_renewed(self, name: str) -> bool:
        """Return whether a lease is being renewed. Wait until a renewal is seen, or the lease
        expires.
        """
        first = self.holder(name)
        while first is not None and not self.may_take(name, ""):
            now = self.holder(name)
            if now is not None and (now.term, now.beats) != (first.term, first.beats):
                return bool(now.for_s)
            self.clock.sleep(LOOK_S)
        return False

    def keep(self, lease: Lease) -> Lease:
        """Renew a lease if a third of its time has passed, and return it. Raise LeaseLost when
        another process has taken it.
        """
        if self.clock.monotonic() - lease.beat_at < lease.for_s / 3:
            return lease
        return self.renew(lease)

    def renew(self, lease: Lease) -> Lease:
        """Renew a lease now, write its fields (such as `ready` and `doing`), and return it. Raise
        LeaseLost when another process has taken it.
        """
        with self.writing() as connection:
            leases.fence(connection, lease)
            return leases.renew(connection, self.clock, lease)

    def let_go(self, lease: Lease) -> None:
        """Give up a lease, so that a stand-by process can take it at once. Do nothing if the lease
        was lost.
        """
        with self.writing() as connection:
            leases.let_go(connection, self.clock, lease)

    def holder(self, name: str) -> Lease | None:
        """Return the lease with this name, with its present or last holder. Return None if it was
        never held.
        """
        with self.engine.connect() as connection:
            return leases.lease_of(connection, name)

    def go_on(self) -> None:
        """Advance this process's clock to at least the latest time that any process has written."""
        with self.engine.connect() as connection:
            self.clock.not_before(leases.latest_time(connection, self.clock))

    def held(self, name: str, late_s: float = 0.0) -> bool:
        """Return whether the holder of a lease is known to be alive: it was renewed in time, or
        less than `late_s` too late.
        """
        with self.engine.connect() as connection:
            return self._watch.held(leases.lease_of(connection, name), self.clock, late_s)


def _row(e: Event) -> Columns:
    return {
        "seq": e.seq,
        "at": e.at,
        "kind": e.kind.value,
        "job_id": e.job_id,
        "actor": e.actor,
        "cause": e.cause,
        "body": canonical(dict(e.body)),
    }


def _events(connection: Connection, rows: Sequence[Row[Any]]) -> list[Event]:
    return [
        Event(
            kind=Kind(row.kind),
            at=row.at,
            job_id=row.job_id,
            actor=row.actor,
            cause=row.cause,
            body=json.loads(body),
            seq=row.seq,
        )
        for row, body in zip(rows, bodies(connection, events, rows), strict=True)
    ]


def _engine(url: str) -> Engine:
    """Return the SQLAlchemy engine of a database. A missing SQLite file is created, with its
    folder. Raise StoreError for a URL or a file that cannot be used, and ImportError where psycopg
    is missing. Errors of this engine never show a statement's parameters, which may be users'
    commands and environments.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(
            f"database {url!r} is no URL: sqlite:///PATH or postgresql://..."
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if parsed.database and parsed.database != ":memory:":
            Path(parsed.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _of_ours(parsed.database)
        engine = create_engine(
            parsed, hide_parameters=True, connect_args={"check_same_thread": False}
        )
        _tune_sqlite(engine)
        return engine
    try:
        return create_engine(parsed, hide_parameters=True, pool_pre_ping=True)
    except (NoSuchModuleError, ImportError) as error:
        if getattr(error, "name", None) == "psycopg":
            raise  # the command line knows the extra that brings it
        raise StoreError(f"database {parsed.render_as_string()}: {error}") from None


def _carried_over(connection: PoolProxiedConnection) -> int:
    """Write SQLite's journal (WAL) back to the database file without waiting for readers. Return
    the number of pages in the journal.
    """
    cursor = connection.cursor()
    cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
    [(_, pages, _)] = cursor.fetchall()
    cursor.close()
    return int(pages)


def _of_ours(path: str) -> None:
    """Create an empty SQLite file that only its owner may read, if there is none, since it will
    hold the commands of all users. Raise StoreError if the file is no regular one, or cannot be
    created.

    An existing file is not opened, because closing it would release the locks of other processes.
    """
    try:
        regular(path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o600))
    except OSError as error:
        raise StoreError(f"database {path}: {error.strerror}") from None


def _tune_sqlite(engine: Engine) -> None:
    """Set up each SQLite connection: a journal (WAL), foreign keys, and waiting for other writers.
    A transaction that writes takes the lock when it begins.
    """

    @event.listens_for(engine, "connect")
    def _connected(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # no implicit BEGIN: see below
        cursor = dbapi.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute(f"PRAGMA wal_autocheckpoint={JOURNAL_PAGES}")
        cursor.execute("PRAGMA secure_delete=ON")  # of users' environments nothing is to be left
        cursor.close()
        dbapi.create_function("alike", 1, of_name, deterministic=True)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.info.get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
