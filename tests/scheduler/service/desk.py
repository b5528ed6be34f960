"""A service in one process: a decider over a simulated world, driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from features.clock import Clock
from features.job import Profile
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Decision
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.record import first_row
from scheduler.service.log.snapshots import EVERY, StateCheckpoints
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, nodes
from scheduler.simulation.work import Work

START = 1.7e9
CLUSTER = ClusterSpec({"vc": 2}, 4, gpu_type="V100")
LIGHT = Profile(10.0, 5.0, 1000.0, False)


def lasting(seconds: float, **more: Any) -> JobOutcome:
    """The outcome of a job that runs so long."""
    return JobOutcome(Work(seconds, profile=LIGHT, **more))


class Desk:
    """One service and its world, at times of the test's choosing.

    Args:
        outcomes: what is true of each job; a minute's work for those not named.
        start: what the clock shows, seconds.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        outcomes: Mapping[str, JobOutcome] | Callable[[Launch], JobOutcome] | None = None,
        *,
        start: float = START,
        policy: str = "fifo",
        cluster: ClusterSpec = CLUSTER,
        partition: ProfilingPartition | None = None,
        champion: Path | None = None,
        snapshot_every: int | None = None,
    ):
        self.store = store
        self.bundle_store = BundleStore(folder / "bundles")
        self.snapshot_every = snapshot_every
        self.checkpoints = StateCheckpoints(
            folder / "snapshots", self.bundle_store.find, every=snapshot_every or EVERY
        )
        self.champion = champion
        self.wall = start
        store.clock = Clock.by(lambda: self.wall)
        if not callable(outcomes):
            known = outcomes or {}
            outcomes = lambda one: known.get(one.job_id, lasting(60.0))  # noqa: E731
        self.world = World(outcomes, start=start)
        establish(
            store,
            LogHeader(
                CoreSpec.of(cluster, policy, profiling=partition),
                start,
                backend="simulated",
            ),
        )
        self.decider = self.another()
        assert self.decider.take_over()

    def another(self, holder: str = "one", kind: type[Decider] = Decider) -> Decider:
        """A decider of its own, not yet in charge."""
        return kind(
            self.store,
            lambda: SimulatedBackend(self.world),
            self.bundle_store,
            holder=holder,
            champion=self.champion,
            bundle_poll_s=0.0,
            snapshots=self.checkpoints if self.snapshot_every else None,
        )

    def restart(self, *, upgraded: bool = False, released: bool = False) -> None:
        """The service dies and comes back; nothing that it had in memory is left.

        Args:
            upgraded: as code that cannot read a snapshot.
            released: as code of another version.
        """
        self.wall += 60.0
        if released:
            name = f"released at {self.wall}"
            self.checkpoints.version = lambda: name
        self.decider = self.another(f"after {self.wall}")
        kept = self.decider.snapshots
        self.decider.snapshots = None if upgraded else kept
        assert self.decider.take_over()
        self.decider.snapshots = kept

    # --- what people do -----------------------------------------------------------------------

    def submit(self, job_id: str, *, gpus: int = 1, **more: Any) -> None:
        wanted = {"command": ("train",), "owner": "ann", "vc": "vc", "gpus": gpus, **more}
        asked = Submission(job_id=job_id, submitted_at=self.world.now(), **wanted)
        event = Event(Kind.SUBMITTED, self.world.now(), job_id, asked.owner, body=asked.body())

        def row(connection: Connection, appended: list[Event]) -> None:
            connection.execute(insert(jobs).values(first_row(appended[0])))

        self.store.append([event], row)

    def ask(self, kind: Kind, job_id: str = "", **body: Any) -> None:
        self.store.append([Event(kind, self.world.now(), job_id, "op", body=body)])

    def cancel(self, job_id: str) -> None:
        self.ask(Kind.CANCEL_ASKED, job_id)

    # --- what happens -------------------------------------------------------------------------

    def turn(self, wait_s: float = 0.0) -> list[Decision]:
        return self.decider.turn(wait_s)

    def until_idle(self, most: int = 500) -> None:
        """Until every job is over."""
        for _ in range(most):
            self.turn(100.0)
            state = self.decider.state
            if not state.waiting and all(r.phase.over for r in state.ledger.records.values()):
                return
        raise AssertionError("jobs are left over")

    # --- what is seen -------------------------------------------------------------------------

    def row(self, job_id: str) -> Any:
        with self.store.engine.connect() as connection:
            return connection.execute(select(jobs).where(jobs.c.job_id == job_id)).one()

    def node(self, number: int) -> Any:
        with self.store.engine.connect() as connection:
            return connection.execute(select(nodes).where(nodes.c.node == number)).one()

    def phase(self, job_id: str) -> str:
        return str(self.row(job_id).phase)

    def kinds(self, job_id: str) -> list[str]:
        return [event.kind.value for event in self.store.read() if event.job_id == job_id]
