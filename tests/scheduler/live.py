"""A service without its API: a log, and deciders on it, driven by a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, insert, select

from scheduler.backends.base import Backend
from scheduler.backends.events import Event, Kind
from scheduler.backends.submission import Submission
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import Library
from scheduler.service.log.header import Genesis, establish
from scheduler.service.log.ledger import first_row
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs


class Service:
    """A log in `folder`, and how to reach it.

    Args:
        backend: opens the backend, anew for each decider.
    """

    def __init__(self, folder: Path, genesis: Genesis, backend: Callable[[], Backend]):
        self.folder = folder
        self.store = Store(f"sqlite:///{folder / 'service.db'}")
        prepare(self.store)
        establish(self.store, genesis)
        self._backend = backend

    def decider(self) -> Decider:
        """One that holds the lease; the one before it died without a word."""
        found = Decider(self.store, self._backend, Library(self.folder / "bundles"), holder="test")
        assert found.take_over()
        return found

    def submit(self, *submissions: Submission) -> None:
        for asked in submissions:

            def row(connection: Connection, new: list[Event]) -> None:
                connection.execute(insert(jobs).values(first_row(new[0])))

            event = Event(Kind.SUBMITTED, asked.submitted_at, asked.job_id, body=asked.body())
            self.store.append([event], row)

    def cancel(self, job_id: str, at: float) -> None:
        self.store.append([Event(Kind.CANCEL_ASKED, at, job_id)])

    def rows(self) -> dict[str, dict[str, object]]:
        """The table `jobs`, by job."""
        with self.store.reading() as connection:
            return {row["job_id"]: dict(row) for row in connection.execute(select(jobs)).mappings()}
