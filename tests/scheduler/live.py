"""A service without its API: a log, and deciders on it, driven by a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from scheduler.backends.base import Backend
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.backends.submission import Submission
from scheduler.core.decisions import Decision
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.record import first_row
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from scheduler.simulation.work import Work


class Service:
    """A log in `folder`, and how to reach it.

    Args:
        backend: opens the backend, anew for each decider.
        champion: folder of the bundle to use.
    """

    def __init__(
        self,
        folder: Path,
        header: LogHeader,
        backend: Callable[[], Backend],
        champion: Path | None = None,
    ):
        self.folder, self._champion = folder, champion
        self.store = Store(f"sqlite:///{folder / 'service.db'}")
        prepare(self.store)
        establish(self.store, header)
        self._backend = backend

    def decider(self) -> Decider:
        """One that holds the lease; the one before it died without a word."""
        found = Decider(
            self.store,
            self._backend,
            BundleStore(self.folder / "bundles"),
            holder="test",
            champion=self._champion,
        )
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


class Live:
    """The service's decider on the simulated backend; time passes only when it waits.

    Args:
        work: what is true of each job.
        champion: folder of a bundle, in use before the first job.
    """

    def __init__(
        self,
        header: LogHeader,
        work: Mapping[str, Work],
        folder: Path,
        champion: Path | None = None,
    ):
        outcomes = {job: JobOutcome(w) for job, w in work.items()}
        self.world = World(outcomes, start=header.start)
        self.service = Service(folder, header, lambda: SimulatedBackend(self.world), champion)
        self.decider = self.service.decider()

    def play(self, submissions: Sequence[Submission], *, crash_every: int = 0) -> list[Any]:
        """Every decision, as `told`."""
        decisions = self.decider.turn(0.0)
        coming, turns = list(submissions), 0
        while True:
            now = self.world.now()
            while coming and coming[0].submitted_at <= now:
                self.service.submit(coming.pop(0))
                decisions += self.decider.turn(0.0)
            times = [coming[0].submitted_at] if coming else []
            running = any(r.phase.holds_gpus for r in self.decider.state.ledger.records.values())
            if self.decider.state.wake_at is not None and (coming or running):
                times.append(self.decider.state.wake_at)
            if not times and not running:
                return [told(d) for d in decisions]
            decisions += self.decider.turn(max(0.0, min(times, default=now + 1e4) - now))
            turns += 1
            if crash_every and turns % crash_every == 0:
                self.decider = self.service.decider()


def told(d: Decision) -> Any:
    """What a decision comes to; times to the millisecond."""
    return (round(d.time, 3), d.action, d.reason, d.job_id, d.vc, d.nodes, d.gpus, d.partner)
