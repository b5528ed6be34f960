"""A database and a backend on which anything may be the last thing that happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, event

from features.clock import Clock
from features.schema import State
from scheduler.backends.base import Launch, Report
from scheduler.backends.events import Kind
from scheduler.backends.simulated import SimulatedBackend, World
from scheduler.service.decide.decider import Decider
from scheduler.service.log import fold
from scheduler.service.log.store.store import Store

Key = tuple[str, int]  # job, attempt


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Fuse:
    """Burns down by one at every write and action, and then the process dies.

    Attributes:
        left: until the next crash; None = no more.
        crashes: where it died so far, and how often.
    """

    left: int | None = None
    crashes: Counter[str] = field(default_factory=Counter)

    def burn(self, where: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            self.left = None
            self.crashes[where] += 1
            raise Crash(where)


def hurry(store: Store) -> None:
    """Let SQLite not wait for the disk: a process dies here, not the machine."""
    if store.is_sqlite:

        @event.listens_for(store.engine, "connect")
        def _connected(dbapi: Any, _record: Any) -> None:
            dbapi.execute("PRAGMA synchronous=OFF")


class UpgradedDecider(Decider):
    """One of other code: it would have decided something else than what stands in the log."""

    _seen_it = False

    def _folded(self, connection: Connection) -> fold.State:
        passes = self.store.each_in(connection, upto=self.store.last_seq_in(connection))
        last = [event for event in passes if event.kind is Kind.DECIDED][-1:]
        if last and not self._seen_it:
            self._seen_it = True
            raise fold.Diverged(last[0], [])
        return super()._folded(connection)


class FaultyStore(Store):
    """A store on which a write may be the last thing that happens, done or not done."""

    def __init__(self, url: str, fuse: Fuse, clock: Clock):
        super().__init__(url, clock)
        self.fuse = fuse
        hurry(self)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        self.fuse.burn("before a write")
        with super().writing() as connection:
            yield connection
            self.fuse.burn("before a commit")
        self.fuse.burn("after a commit")


class FaultyBackend(SimulatedBackend):
    """A backend whose every action may be the last thing that happens, done or not done."""

    def __init__(
        self,
        world: World,
        fuse: Fuse,
        asked: dict[Key, Launch],
        ends: dict[Key, State],
    ):
        super().__init__(world)
        self.fuse, self.asked, self.ends = fuse, asked, ends

    def launch(self, launch: Launch) -> None:
        self.fuse.burn("before a launch")
        self.asked.setdefault((launch.job_id, launch.attempt), launch)
        super().launch(launch)
        self.fuse.burn("after a launch")

    def stop(self, job_id: str, attempt: int) -> None:
        self.fuse.burn("before a stop")
        super().stop(job_id, attempt)
        self.fuse.burn("after a stop")

    def reports(self, timeout_s: float) -> Sequence[Report]:
        self.fuse.burn("before reports")
        reports = super().reports(timeout_s)
        self.ends.update({(r.job_id, r.attempt): r.state for r in reports if r.state is not None})
        return reports

    def acknowledge(self, reports: Sequence[Report]) -> None:
        self.fuse.burn("before an acknowledgement")
        some = len(reports) // 2
        super().acknowledge(reports[:some])
        if some:
            self.fuse.burn("within an acknowledgement")
        super().acknowledge(reports[some:])
        self.fuse.burn("after an acknowledgement")
