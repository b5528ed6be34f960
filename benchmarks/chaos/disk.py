"""A simulated database connection and file system on which every operation may fail, and may be the
last one of its process.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import event

from benchmarks.chaos.kernel import Kernel, Process, active
from benchmarks.chaos.power import Unsynced, WaitedFor
from scheduler.service.log.store.store import Store

SQLITE = {
    "locked": "database is locked",
    "full": "database or disk is full",
    "EIO": "disk I/O error",
    "unknown": "disk I/O error",
}
UNANSWERED_S = 1.0  # until a statement fails that the database never got
FULL = 2  # of `PRAGMA synchronous`: a commit waits for the disk


@dataclass
class Faults:
    """Draws, by the run's seed, which operations fail.

    Attributes:
        note: writes an event into the run's history.
        rate: share of transactions that fail, and of files that cannot be written.
        happened: maps a kind of fault to how often it happened.
    """

    draw: random.Random
    note: Callable[..., Any]
    rate: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)

    def drawn(self, kernel: Kernel, *kinds: str) -> str:
        """Draw whether one operation fails. Return one of `kinds`, or "" if it succeeds. A fault is
        counted and noted in the history.
        """
        if kernel.me.host.disk_full and "full" in kinds:
            kind = "full"
        elif self.rate and self.draw.random() < self.rate:
            kind = self.draw.choice(kinds)
        else:
            return ""
        self.happened[kind] += 1
        self.note("fault", kind=kind, process=kernel.me.name)
        return kind


class Disk:
    """The simulated disk and database connection of a process's store.

    Attributes:
        unsynced: what was written to files, and would be lost in a power cut now.
        waits: whether every commit waits for the disk, as the service's setting asks.
        apart: maps a process that cannot reach the database to the time until which that lasts.
    """

    def __init__(self, kernel: Kernel, faults: Faults, database: Path | None):
        self.kernel, self.faults, self.database = kernel, faults, database
        self.unsynced, self.waits = Unsynced(), True
        self.apart: dict[Process, float] = {}
        self._writer: tuple[Process, float, Any]  # the last to be given PostgreSQL's lock
        OF_RUN[:] = [self]

    def adopt(self, store: Store) -> None:
        """Make the transactions of a store able to fail, and release the store when its process
        dies.
        """
        self.kernel.me.on_death.append(store.engine.dispose)
        engine = store.engine
        if store.is_sqlite:
            event.listen(engine, "connect", _no_sync)
        kept = _COMPILED.get(engine.dialect.name)
        if kept is None:
            kept = _COMPILED[engine.dialect.name] = engine.dialect, engine._compiled_cache
            event.listen(engine, "do_execute", _executed)
            vars(engine.dialect)["do_commit"] = lambda connection: OF_RUN[0].commit(connection)
        # statements are compiled once for all processes, which takes longer than to run them
        engine.dialect, engine._compiled_cache = kept
        engine.pool._dialect = engine.dialect

    def cut(self, draw: random.Random, die: Callable[[], None]) -> None:
        """Simulate a power cut: call `die`, which kills the processes, and lose what was written to
        files but not synced.
        """
        path = self.database
        kept = None if self.waits or path is None else path.read_bytes()
        die()
        if kept is not None and path is not None:  # the journal was not waited for
            for name in ("-wal", "-shm"):
                path.with_name(path.name + name).unlink(missing_ok=True)
            path.write_bytes(kept)
            self.unsynced.lost["journal"] += 1
        self.unsynced.cut(draw)

    def commit(self, connection: Any) -> None:
        if active() is None or not connection.info.get("writes"):
            connection.commit()
            return
        self.kernel.point("before a commit")
        self._reach(connection)
        kind = self.faults.drawn(self.kernel, "full", "EIO", "unknown")
        if kind == "unknown":
            connection.commit()
        if kind:
            _fail(connection, kind)
        connection.commit()
        self.kernel.point("after a commit")

    def executed(self, cursor: Any, statement: str, parameters: Any, context: Any) -> bool | None:
        if active() is None:
            return None
        self._reach(context.root_connection.connection)
        if statement.startswith("BEGIN IMMEDIATE"):
            self.kernel.point("before a write")
            if self.faults.drawn(self.kernel, "locked"):
                raise sqlite3.OperationalError(SQLITE["locked"])
        elif "pg_advisory_xact_lock" in statement:
            self.kernel.point("before a write")
            connection = context.root_connection.connection
            if self.faults.drawn(self.kernel, "locked"):
                _fail(connection, "locked")
            self._wait_for_lock(cursor, parameters)
            self._writer = self.kernel.me, self.kernel.clock, connection.driver_connection
            return True
        return None

    def _reach(self, connection: Any) -> None:
        """If the current process is cut off from the database now, wait, and raise the error that
        the driver would raise. Otherwise do nothing.
        """
        if self.apart and self.kernel.clock < self.apart.get(self.kernel.me, 0.0):
            self.kernel.sleep(UNANSWERED_S)
            _fail(connection, "unknown")

    def _wait_for_lock(self, cursor: Any, parameters: Any) -> None:
        """Wait for PostgreSQL's lock. If the statement sets a time limit, a holder of the lock that
        idles for longer loses its connection, by the simulated clock.

        A stopped process idles. A running process counts as active at each of its pauses.
        """
        trying = "SELECT pg_try_advisory_xact_lock(%(n)s)"
        while not cursor.execute(trying, {"n": parameters["n"]}).fetchone()[0]:
            process, since, connection = self._writer
            if connection.closed:  # the server has not noticed yet: that takes no simulated time
                cursor.execute("SELECT pg_sleep(0.001)")
                continue
            idle_s = self.kernel.clock - max(since, process.stopped_at)
            hangs = process.frozen_until > self.kernel.clock
            if hangs and 0 < int(parameters.get("ms", 0)) < idle_s * 1000:
                connection.close()
                process.cut_off = True
                continue
            self.kernel.sleep(0.01)


_COMPILED: dict[str, tuple[Any, Any]] = {}  # statements, with the dialect they are in


OF_RUN: list[Disk] = []  # of the run of now


def _executed(*args: Any) -> bool | None:
    return OF_RUN[0].executed(*args)


def _no_sync(dbapi: Any, _record: Any) -> None:
    [(level,)] = dbapi.execute("PRAGMA synchronous")
    OF_RUN[0].waits &= level >= FULL
    dbapi.execute("PRAGMA synchronous=OFF")  # what a power cut takes is in `power`


def _fail(connection: Any, kind: str) -> None:
    """Raise the error that the database driver raises for a fault of this kind. A connection to
    PostgreSQL is closed, too.
    """
    if isinstance(connection.driver_connection, sqlite3.Connection):
        raise sqlite3.OperationalError(SQLITE[kind])
    import psycopg

    connection.driver_connection.close()
    raise psycopg.OperationalError("server closed the connection unexpectedly")


def point(where: str) -> None:
    """Pass the crash point `where`: inside the simulation the process may be killed here; outside
    it, do nothing.
    """
    kernel = active()
    if kernel is not None:
        kernel.point(where)


def unsynced() -> Unsynced:
    """Return the current run's record of writes that were not synced; outside a simulation, an
    empty record.
    """
    return Unsynced() if active() is None else OF_RUN[0].unsynced


class FaultyOs(WaitedFor):
    """Stands in for the module `os` in code that writes files: a write may fail."""

    def write(self, file: int, data: bytes) -> int:
        point("before a write to a file")
        kernel = active()
        unsynced().written(file)
        if kernel is not None and kernel.me.role in ("decider", "shim"):
            kind = OF_RUN[0].faults.drawn(kernel, "full", "EIO")
            if kind:
                os.write(file, data[: len(data) // 2])  # torn
                number = errno.ENOSPC if kind == "full" else errno.EIO
                raise OSError(number, os.strerror(number))
        return os.write(file, data)
