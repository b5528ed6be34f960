"""Sets up simulated runs: the service with its operating system replaced, and a database."""

from __future__ import annotations

import fcntl
import logging
import shutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog
from sqlalchemy import Connection, create_engine, text

from benchmarks.chaos import between, costs, machine, starting, system
from benchmarks.chaos.changes import make_bundles
from benchmarks.chaos.kernel import EPOCH, active
from benchmarks.chaos.run import PEOPLE, Plan, Run, Simulation
from benchmarks.chaos.slurm import Commands, InFront
from features import aside
from profiler.progress import apart
from scheduler.backends.events import Event, Kind
from scheduler.service import app as apps
from scheduler.service import metrics
from scheduler.service.analyst import process as analysts
from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.api.turns import Turns
from scheduler.service.decide import begin, processes
from scheduler.service.decide import decider as deciders
from scheduler.service.decide import supervisor as supervisors
from scheduler.service.decide.decider import Decider
from scheduler.service.log.fold import State
from scheduler.service.log.store import leases, tables
from scheduler.service.log.store import line as lines
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings as ServiceSettings
from scheduler.slurm import entry
from scheduler.slurm.follow import follower as followers
from scheduler.slurm.follow.follower import Follower

# what processes load as they go, and draw ids by as they do: before the first run
LOADED = (*supervisors.COMMON, "pyarrow.parquet", "scheduler.slurm.follow.follower")


class Bench:
    """The service's code with its operating system replaced, and a database that is ready to be
    copied for each run. A context manager: on leaving, everything is as before.

    Args:
        url: URL of a PostgreSQL that is emptied for each run; None: SQLite files.
    """

    def __init__(self, folder: Path, url: str | None = None):
        for name in LOADED:
            import_module(name)
        self.folder, self.url = folder, url
        self.secrets: dict[str, str] = {}
        self._template = folder / "template.db"
        self._champions: list[Path] = []

    def _fresh(self, folder: Path) -> str:
        if self.url is not None:
            self._emptied()
            return self.url
        if not self._template.exists():
            self._prepared(f"sqlite:///{self._template}")
        shutil.copy(self._template, folder / "pellucid.db")
        return f"sqlite:///{folder / 'pellucid.db'}"

    def _emptied(self) -> None:
        """Empty the tables that a run fills. To create the tables again would take longer than a
        run.
        """
        assert self.url is not None
        if not self.secrets:
            engine = create_engine(self.url)
            with engine.begin() as connection:
                connection.execute(text("DROP SCHEMA IF EXISTS public CASCADE"))
                connection.execute(text("CREATE SCHEMA public"))
            engine.dispose()
            self._prepared(self.url)
        engine = create_engine(self.url)
        names = [t.name for t in tables.metadata.sorted_tables if t.name != "tokens"]
        with engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {', '.join(names)}"))
        engine.dispose()

    def _prepared(self, url: str) -> None:
        store = Store(url)
        prepare(store)
        for name, role in PEOPLE.items():
            vcs = () if role is Role.OPERATOR else ("left", "right")
            user = service_user()
            _, self.secrets[name] = tokens.create(
                store, name, role, vcs=vcs, os_user=user, now=EPOCH - 1e6
            )
        store.checkpoint()
        store.close()

    def play(self, plan: Plan) -> Run:
        """Play one run of the chaos test as `plan` says. Return the run with its history. Its files
        stay until the next run begins.
        """
        folder = self.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self._champions = self._champions or make_bundles(self.folder / "bundles")
        kind = InFront if plan.slurm else Simulation
        sim = kind(plan, folder, self._fresh(folder), self.secrets, self._champions)
        PLAYED[:], costs.BACKLOG[:] = [sim], [plan.backlog]
        return sim.live()

    def points(self, plan: Plan, named: str = "") -> list[int]:
        """Play a run. Return the numbers of the crash points that it passes; with `named`
        ("decider: before a commit"), only of those at which a process of that role comes by that
        place. A number is another moment as soon as the code changes, a name is not.
        """
        self.play(plan)
        trace = PLAYED[0].kernel.trace
        return [n for n, one in enumerate(trace, 1) if named in ("", one)]

    def __enter__(self) -> Bench:
        self._patches = system.installed()
        patches = self._patches.__enter__()
        machine.install(patches, lambda: PLAYED[0].machine)
        _install_supervisor(patches)
        _install_app(patches)
        _watch(patches)
        _watch_appends(patches)
        _watch_leases(patches)
        costs.install(patches)
        between.install(patches, lambda: PLAYED[0].between)
        starting.install(patches, lambda: PLAYED[0].starting)
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.__exit__(None, None, None)
        PLAYED.clear()


PLAYED: list[Simulation] = []  # the run of now


def give_up() -> None:
    """Make the run that is being played end at its next step."""
    for simulation in PLAYED:
        simulation.kernel.most_steps = 0


def _install_supervisor(patches: system.Patches) -> None:
    """Let the service's supervisor fork simulated processes, and let those begin as real ones
    would.
    """
    patches.put(supervisors, "get_context", lambda _: SimpleNamespace(Process=system.Child))
    patches.put(supervisors, "_stop_signals", system.told_by_signal)
    patches.put(supervisors, "_end_with_parent", system.end_with_parent)
    patches.put(supervisors, "notify", system.notify)
    patches.put(supervisors, "run_api", lambda *args, **more: PLAYED[0].run_api(*args, **more))
    patches.put(begin, "prepare", lambda _: None)  # it was, before it was copied
    threads = SimpleNamespace(Thread=system.Thread, Event=system.Event)
    patches.put(processes, "threading", threads)
    # a real process, on its own time, reads what jobs print: here nobody does
    patches.put(apart.Reading, "put", lambda _, task: task.done(None))
    patches.put(aside.Aside, "ask", _asked_here)
    for module in (metrics, deciders):  # real shared memory would stay until the last run is over
        patches.put(module, "RawValue", lambda _: SimpleNamespace(value=0, at=0.0, count=0))
    patches.put(analysts, "ThreadedStore", Store)
    patches.put(analysts, "Analyst", partial(analysts.Analyst, samples=2, refresh_s=5.0))
    patches.put(followers, "SAMPLES", 2)


def _asked_here(self: aside.Aside, function: str, *given: Any, **more: Any) -> Any:
    """Stands in for `Aside.ask`: call the function here, and return what it returns. Real processes
    would answer on their own time, and so change the run on a busy machine."""
    module, _, name = function.partition(":")
    found = getattr(import_module(module), name)(*given)
    return found.file if isinstance(found, aside.Copy) else found


class _Parts:
    """Stands in for the API's app where only its `state` is used. Building a real app, with its
    routes, takes longer than a run.
    """

    def __init__(self, **_: Any):
        self.state = SimpleNamespace()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _StateOfProcess:
    """Stands in for `app.state` of an app that all processes share; each process sees its own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(PLAYED[0].parts[PLAYED[0].kernel.me.pid], name)


def _install_app(patches: system.Patches) -> None:
    given: dict[str, Any] = {"auth": "off"}
    app = apps.create_app(ServiceSettings(**given), store=Store("sqlite://"), pages=False)
    app.state = _StateOfProcess()  # type: ignore[assignment]
    Simulation.app = app
    patches.put(apps, "FastAPI", _Parts)
    patches.put(apps, "Turns", partial(Turns, at_once=1_000))  # there is no loop to wait by


def _watch(patches: system.Patches) -> None:
    """Replace functions of the service: stores write to the simulated disk, and each round of a
    decider or a Slurm follower is noted in the run's history.
    """
    begins, turn, folded = Store.__init__, Decider.turn, Decider._folded
    look = Follower.look

    def begun(self: Store, *args: Any, **more: Any) -> None:
        begins(self, *args, **more)
        if active() is not None:
            PLAYED[0].disk.adopt(self)

    def turned(self: Decider, timeout_s: float) -> Any:
        done = turn(self, timeout_s)
        if active() is not None and self.lease is not None:
            PLAYED[0].decides(self.holder, self.lease.term)
        return done

    def folds(self: Decider, connection: Connection) -> State:
        if active() is not None and PLAYED[0].upgraded():
            self.snapshots = None  # of another schema
        return folded(self, connection)

    def looked(self: Follower) -> Any:
        found = look(self)
        if active() is not None and self.lease is not None:
            PLAYED[0].decides(self.lease.holder, self.lease.term)
        return found

    patches.put(Follower, "look", looked)
    patches.put(entry, "slurm_of", lambda _: Commands(PLAYED[0].controller))  # type: ignore[attr-defined]
    patches.put(Store, "__init__", begun)
    patches.put(Decider, "_folded", folds)
    patches.put(Decider, "turn", turned)
    locks = {name: getattr(fcntl, name) for name in ("LOCK_EX", "LOCK_SH", "LOCK_NB")}
    patches.put(lines, "fcntl", SimpleNamespace(flock=system.flock, **locks))


def _watch_appends(patches: system.Patches) -> None:
    """Patch `Store.append`: each committed write under a lease (the right of one process to
    decide), each write after another process took that lease, and each order to change a Slurm
    priority is noted in the run's history.
    """
    append = Store.append

    def appended(
        self: Store, new: Any, also: Any = None, *, lease: leases.Lease | None = None
    ) -> list[Event]:
        if active() is None:
            return append(self, new, also, lease=lease)

        def tables_too(connection: Connection, numbered: list[Event]) -> None:
            now = None if lease is None else leases.lease_of(connection, lease.name)
            if lease is not None and now is not None and now.term != lease.term:
                PLAYED[0].note(
                    "unfenced",
                    lease=lease.name,
                    holder=lease.holder,
                    term=lease.term,
                    by=now.holder,
                    now=now.term,
                )
            if also is not None:
                also(connection, numbered)

        done = append(self, new, tables_too, lease=lease)
        if done and lease is not None:
            PLAYED[0].note(
                "wrote", seq=done[0].seq, lease=lease.name, holder=lease.holder, term=lease.term
            )
        for event in done:
            if event.kind is Kind.ORDERED and "priority" in event.body:
                PLAYED[0].note("ordered", job=event.job_id, priority=event.body["priority"])
        return done

    patches.put(Store, "append", appended)


def _watch_leases(patches: system.Patches) -> None:
    """Note in the run's history, whenever a lease is taken from another holder, for how long that
    holder had not renewed it.
    """
    renew, take = leases.renew, leases.Watch.take

    def renewed(connection: Connection, clock: Any, lease: leases.Lease) -> leases.Lease:
        began = PLAYED[0].kernel.clock if active() is not None else 0.0
        done = renew(connection, clock, lease)
        if active() is not None:
            PLAYED[0].renewed[done.name, done.term, done.beats] = began
        return done

    def taken(
        self: leases.Watch, connection: Connection, clock: Any, name: str, holder: str, **more: Any
    ) -> leases.Lease | None:
        if active() is None:
            return take(self, connection, clock, name, holder, **more)
        was = leases.lease_of(connection, name)
        done = take(self, connection, clock, name, holder, **more)
        if done is not None and was is not None and was.for_s and was.holder != holder:
            at = PLAYED[0].renewed.get((name, was.term, was.beats))
            if at is not None:
                silent_s = PLAYED[0].kernel.clock - at
                PLAYED[0].note(
                    "took",
                    lease=name,
                    holder=holder,
                    term=done.term,
                    for_s=was.for_s,
                    silent_s=silent_s,
                )
        return done

    patches.put(leases, "renew", renewed)
    patches.put(leases.Watch, "take", taken)


def quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
