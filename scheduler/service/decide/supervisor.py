"""`pellucid serve`: starts the service's processes and minds them.

The processes share nothing but the database and the listening socket. One that dies is started
again, after a pause that grows; all end when this one does, however it ends.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import make_url

from features.files import sync, write_whole
from features.folders import OpenFolder, private_folder
from profiler import procs
from scheduler.assembly import ALL_STATED, CoreSpec, Stated
from scheduler.service.api.auth import service_user
from scheduler.service.api.tokens import guard
from scheduler.service.backends import host_of, open_backend
from scheduler.service.decide.decider import Decider
from scheduler.service.decide.start_time import check_time
from scheduler.service.decide.systemd import notify
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.export import keep_exporting
from scheduler.service.log.header import FOLLOWED, LogHeader, code_version, establish
from scheduler.service.log.notices import keep_notifying, mark
from scheduler.service.log.present import Present
from scheduler.service.log.restart import Choice, settle
from scheduler.service.log.retention import keep_pruning
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store.checkpoint import keep_checkpointed
from scheduler.service.log.store.line import line_of
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import WRITES_MS, Store
from scheduler.service.metrics import Counts
from scheduler.service.settings import Settings, SettingsError

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from scheduler.service.api.connections import Connections

# What the processes have in common, loaded once in the one they are forked from: they share the
# memory it takes.
COMMON = (
    "scheduler.service.api.connections",
    "uvloop",
    "scheduler.service.analyst.process",
    "scheduler.service.app",
    "scheduler.service.pages.operations",
    "scheduler.backends.simulated",
)
NOTICED = "notices.seq"  # in the state folder: of which events messages were sent
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a process is started again
STEADY_S = 60.0  # one that lived so long was not dying at its start
SWITCH_S = 0.0005  # longest turn of a thread of an API process at its interpreter
KILLED_PAUSE_S = 0.5  # before one that somebody killed is: it was not dying by itself
STOP_S = 10.0  # a process that does not end by then is killed
# One that has not been heard of for so long hangs, and is killed. The decider: as soon as others
# could have its lease, but not while it waits for a database that is locked, or the backend's lock,
# and so much later as the backend may wait for one command. One that computes has so much of the
# processor instead, whatever share of it it gets, but no longer than STARVED times as long.
DECIDER_HANGS_S, HANGS_S = 15.0, 120.0
BEGINS_S = 60.0  # time to be heard of first
STARVED = 20
COMPUTES_S = 0.1  # of the processor: whoever used so much did not just wait
# Whoever was killed for it has twice as long: what it meets again may just take that long.
DOUBLED, FORGOTTEN_S = 5, 3600.0  # times at most; after so long without

Stopping = Callable[[], bool]


def begin(
    settings: Settings,
    spec: CoreSpec,
    names: tuple[str, ...] = (),
    choice: Choice | None = None,
    stated: Stated = ALL_STATED,
) -> Present:
    """Bring the database up to date and begin its log, or bring log and cluster file together.

    Args:
        spec, names: as the cluster file, or Slurm, has them.
        choice: which holds where they differ.
        stated: what of them somebody wrote; a default never differs.

    Returns the nodes and settings that hold. Raises StoreError, LogHeaderError, SettingsError,
    HostError; FileDiffers when there is a choice to make.
    """
    _keep_others_out(settings)
    store = Store(settings.database)
    try:
        prepare(store)
        check_time(store, settings.accept_clock)
        if settings.backend == "local" and not settings.fake_gpus:
            with store.reading() as connection:
                first = store.first_in(connection)  # the log's nodes are the host's, once it began
            begun = spec if first is None else LogHeader.from_body(first.body).spec
            host_of(settings, begun.cluster)
        guard(settings, store)
        spec = spec if settings.profiling else replace(spec, profiling=None)
        header = LogHeader(
            spec,
            start=time.time(),
            pace=settings.pace if settings.backend == "simulated" else 1.0,
            backend=named(settings),
            site=_site(settings.state_dir),
            version=code_version(),
            names=names,
        )
        established = establish(store, header)
        if settings.mail_program:  # before any job could start
            mark(store, settings.state_dir / NOTICED)
        if established.backend == FOLLOWED:  # Slurm's nodes are as they are
            return Present.begun(established)
        return settle(
            store,
            spec,
            names,
            choice=choice,
            stated=stated,
            fake_gpus=settings.fake_gpus,
            actor=service_user(),
            at=lambda header: header.clock(time.time()),
        )
    finally:
        store.close()


def _keep_others_out(settings: Settings) -> None:
    """Raise SettingsError where others could put files in the way of the service's own."""
    folders = {"state_dir": settings.state_dir}
    url = make_url(settings.database)
    if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
        folders["database"] = Path(url.database).parent
    for name, folder in folders.items():
        try:
            private_folder(folder)
        except OpenFolder as error:
            raise SettingsError(f"{name}: {error}") from None
        except OSError as error:
            raise SettingsError(f"{name}: {folder}: {error.strerror or error}") from None


def named(settings: Settings) -> str:
    """The backend's name in the log; one that only follows is another, and its log no log of
    decisions that took effect."""
    return FOLLOWED if settings.follows else settings.backend


def _site(state_dir: Path) -> str:
    """Names the state folder for good: a log belongs to one, since that is where its jobs are.
    Of services that begin at the same time one names it."""
    path = state_dir / "site"
    if not path.is_file():
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        proposed = state_dir / f".site.{secrets.token_hex(8)}"
        write_whole(proposed, secrets.token_hex(8) + "\n", durable=True)
        with suppress(FileExistsError):
            os.link(proposed, path)
        proposed.unlink()
        sync(state_dir)
    return path.read_text().strip()


def listen(settings: Settings) -> socket.socket | None:
    """The socket of the API; None where there is none. SettingsError when the address cannot be
    had."""
    if not settings.api_workers:
        return None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}. "
            "Is another service there? Choose another --port"
        ) from None
    listening.listen(128)
    return listening


# --- the processes ------------------------------------------------------------------------------


def run_decider(settings: Settings, stopping: Stopping, holder: str = "") -> None:
    """The process that decides, or stands by.

    `holder` names it in the lease: one that is started again under the same name need not wait for
    the lease to expire.
    """
    store = Store(settings.database)
    store.go_on()
    header = LogHeader.from_body(store.read(limit=1)[0].body)
    bundle_store = BundleStore(settings.state_dir / "bundles")
    decider = Decider(
        store,
        lambda: open_backend(settings, header, store.clock),
        bundle_store,
        holder=holder or this_process(),
        champion=settings.bundle,
        snapshots=StateCheckpoints(settings.state_dir / "snapshots", bundle_store.find),
        lease_s=settings.lease_s,
        bundle_poll_s=settings.bundle_poll_s,
    )
    # the simulated backend waits by its own clock
    decider.run(stopping, settings.poll_s * header.pace)


def this_process() -> str:
    """Names this process among all that use the database; containers may share host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def run_api(
    settings: Settings, stopping: Stopping, listening: socket.socket, counts: Counts | None = None
) -> None:
    """One process of the API and its pages; `counts` are those of all."""
    import uvicorn

    from scheduler.service.api.connections import Connections, raise_file_limit
    from scheduler.service.app import create_app

    # the thread that writes must not keep the loop from the processor for 5 ms at a time
    sys.setswitchinterval(SWITCH_S)
    counts = counts or Counts()
    connections = Connections(raise_file_limit(), closed=counts.connections_closed)
    config = server_config(create_app(settings, counts=counts), connections)

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            """Ten times a second, on the loop that answers requests."""
            self.should_exit = self.should_exit or (counter % 2 == 0 and stopping())
            return await super().on_tick(counter)

    server = Server(config)
    gc.collect()
    gc.freeze()  # the app is for good: full collections need not look through it
    server.run(sockets=[listening])


def server_config(app: FastAPI, connections: Connections) -> uvicorn.Config:
    """How the API is served."""
    import uvicorn

    from scheduler.service.api.connections import Seldom, guarded

    logging.getLogger("uvicorn.error").filters = [Seldom()]
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=guarded(connections),
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        server_header=False,
        proxy_headers=False,  # X-Forwarded-For could name another's connection: see `peer_user`
    )


def run_analyst(settings: Settings, stopping: Stopping) -> None:
    """The process that looks ahead."""
    from scheduler.service.analyst import process

    process.run_analyst(settings, stopping)


def follow(settings: Settings, stopping: Stopping, holder: str) -> None:
    """The process that only follows Slurm, in its modes `advise` and `order`."""
    from scheduler.service.follow.follower import run_follower

    run_follower(settings, stopping, holder)


def run_maintenance(settings: Settings, stopping: Stopping) -> None:
    """The process that exports what has finished, forgets what is old and minds the database."""
    over = threading.Event()
    tasks = [
        partial(
            keep_pruning, settings.database, settings.keep_days, settings.archive_days, over.wait
        ),
        partial(keep_checkpointed, settings.database, over.wait),
    ]
    if settings.export_every:
        path = settings.state_dir / "export" / "finished.parquet"
        every = settings.export_every
        tasks.append(partial(keep_exporting, settings.database, path, every, over.wait))
    if settings.mail_program:
        cursor = settings.state_dir / NOTICED
        tasks.append(
            partial(keep_notifying, settings.database, settings.mail_program, cursor, over.wait)
        )
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    while not stopping() and all(thread.is_alive() for thread in threads):
        time.sleep(0.2)
    ended = [
        str(task.func.__name__)
        for task, thread in zip(tasks, threads, strict=True)
        if not thread.is_alive()
    ]
    over.set()
    for thread in threads:
        thread.join(STOP_S / 2)
    if ended and not stopping():
        raise RuntimeError(f"{ended[0]} ended by itself")


def _process(
    run: Callable[..., None],
    settings: Settings,
    supervisor: int,
    listening: socket.socket | None,
    beat: Any,
    *more: Any,
) -> None:  # in the child
    """Body of a child process: runs until stopped, or until its supervisor is gone.

    `beat` is a `Beat` in shared memory: when it last asked whether to stop.
    """
    signals = _stop_signals()
    _end_with_parent()
    if listening is not None and listening not in more:
        listening.close()  # or the port would be taken as long as we live

    def stopping() -> bool:
        beat.at = time.monotonic()
        beat.count += 1
        return bool(signals) or os.getppid() != supervisor

    try:
        run(settings, stopping, *more)
    except Exception as error:
        log = structlog.get_logger("process")
        ours = isinstance(error, ValueError) and type(error) is not ValueError
        log.error("process_failed", why=str(error), exc_info=not ours)
        sys.exit(1)


def _end_with_parent() -> None:
    """Have the kernel kill this process when its supervisor is gone: one that hangs could not see
    to it itself, and holds what others wait for."""
    procs.prctl(procs.PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_signals() -> list[int]:
    """Holds SIGTERM or SIGINT once one has come.

    A list, not an `Event`: a handler runs wherever the program is, and inside the lock of the event
    it would wait for itself.
    """
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    return signals


# --- minding them -------------------------------------------------------------------------------


@dataclass
class Silence:
    """A process that is not heard of.

    Attributes:
        since: when it was heard of last.
        moved: when it was seen to compute last, or that.
        cpu_s, used_s: what it had used of the processor as of `moved`; and since `since`.
    """

    since: float
    moved: float
    cpu_s: float
    used_s: float = 0.0

    def look(self, now: float, cpu_s: float) -> None:
        """See whether it computes."""
        used_s = cpu_s - self.cpu_s
        if used_s >= COMPUTES_S:
            self.moved, self.cpu_s, self.used_s = now, cpu_s, self.used_s + used_s

    def hangs(self, now: float, most_s: float) -> str:
        """Why it is believed to hang; "": it is not."""
        if now - self.since <= most_s:
            return ""
        if now - self.moved > most_s:
            return "waits"
        if self.used_s > most_s:
            return "computes and does not go on"
        return "computes little" if now - self.since > STARVED * most_s else ""


@dataclass
class Child:
    """One process, and what it takes to start it again."""

    name: str
    run: Callable[..., None]
    more: tuple[Any, ...] = ()
    process: ForkProcess | None = None
    started: float = 0.0
    failures: int = 0
    again_at: float = 0.0
    silence: Silence | None = None
    kills: int = 0  # as it hung, lately
    killed_at: float = 0.0


class Supervisor:
    """Starts the processes and starts again what dies.

    They are forked from this one, which has no threads of its own, keeps no connection and does
    nothing else.

    Args:
        listening: socket of the API; None: there is none.
        cpu_s: processor seconds that a process, by its id, has used.

    Attributes:
        counts: what happened to the processes; memory that those of the API share.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket | None,
        cpu_s: Callable[[int], float] = procs.cpu_s,
    ):
        self.settings = settings
        self._cpu_s = cpu_s
        self.listening = listening
        self.log = structlog.get_logger("supervisor")
        self._line = line_of(make_url(settings.database))
        decides = [Child("decider", run_decider, (this_process(),)), Child("analyst", run_analyst)]
        workers = settings.api_workers if listening is not None else 0
        apis = [f"api-{i}" for i in range(1, workers + 1)]
        names = ["follower"] if settings.follows else ["decider", "analyst"]
        self.counts = Counts.of((*names, "maintenance", *apis))
        self.children = [
            *([Child("follower", follow, (this_process(),))] if settings.follows else decides),
            Child("maintenance", run_maintenance),
            *(Child(name, run_api, (listening, self.counts)) for name in apis),
        ]

    def run(self) -> None:
        """Until SIGTERM or SIGINT."""
        signals = _stop_signals()
        for name in COMMON:
            import_module(name)
        gc.collect()
        gc.freeze()  # or the collectors of the children would write into the pages they share
        if self.listening is not None:
            host, port = self.listening.getsockname()[:2]
            self.log.info("listening", host=host, port=port)
        try:
            while not signals:
                self._kill_who_holds_up()
                for child in self.children:
                    self._mind(child)
                notify("READY=1\nWATCHDOG=1")
                time.sleep(0.2)
        finally:
            notify("STOPPING=1")
            self._stop()

    def _mind(self, child: Child) -> None:
        now = time.monotonic()
        self._kill_if_it_hangs(child, now)
        if child.process is not None and not child.process.is_alive():
            lived = now - child.started
            killed = (child.process.exitcode or 0) < 0
            child.failures = 0 if lived > STEADY_S or killed else child.failures + 1
            pause = PAUSES_S[min(child.failures, len(PAUSES_S)) - 1] if child.failures else 0.0
            pause = KILLED_PAUSE_S if killed else pause
            child.again_at = now + pause
            self.log.error(
                "process_died",
                process=child.name,
                exit_code=child.process.exitcode,
                again_in_s=pause,
            )
            self.counts.deaths[child.name].value += 1
            child.process = None
        if child.process is None and now >= child.again_at:
            self._start(child, now)

    def _kill_if_it_hangs(self, child: Child, now: float) -> None:
        if child.process is None:
            return
        since = self.counts.beats[child.name].at or child.started + BEGINS_S
        cpu_s = self._cpu_s(child.process.pid or 0)
        if child.silence is None or child.silence.since != since:
            child.silence = Silence(since, since, cpu_s)
        child.silence.look(now, cpu_s)
        why = child.silence.hangs(now, self._most_s(child, now))
        if why:
            self._kill(child, now - since, why)

    def _most_s(self, child: Child, now: float) -> float:
        """How long a process may be silent."""
        if now - child.killed_at > FORGOTTEN_S:
            child.kills = 0
        decides = child.run is run_decider
        most_s = max(DECIDER_HANGS_S, self.settings.lease_s * 4 / 3) if decides else HANGS_S
        return float(most_s * 2**child.kills)

    def _kill_who_holds_up(self) -> None:
        """Kill a process that hangs while all others wait for it to have written."""
        turn = None if self._line is None else self._line.head()
        now = time.monotonic()
        if turn is None or (writes_s := now - turn.since) < WRITES_MS / 1000:
            return
        for child in self.children:
            if child.process is None or child.process.pid != turn.pid:
                continue
            # a decider is one thread: what is heard, or computes, is what writes
            decides, silence = child.run is run_decider, child.silence
            if not decides or silence is None or now - silence.moved >= WRITES_MS / 1000:
                self._kill(child, writes_s, "writes, and others wait")

    def _kill(self, child: Child, silent_s: float, why: str) -> None:
        assert child.process is not None
        self.log.error(
            "process_hangs",
            process=child.name,
            silent_s=round(silent_s, 1),
            why=why,
            cpu_s=round(child.silence.used_s, 1) if child.silence else None,
            beats=self.counts.beats[child.name].count,
        )
        child.kills, child.killed_at = min(child.kills + 1, DOUBLED), time.monotonic()
        self.counts.hangs[child.name].value += 1
        child.process.kill()
        child.process.join()

    def _start(self, child: Child, now: float) -> None:
        self.counts.beats[child.name].at, child.silence = 0.0, None
        process = get_context("fork").Process(
            target=_process,
            args=(
                child.run,
                self.settings,
                os.getpid(),
                self.listening,
                self.counts.beats[child.name],
                *child.more,
            ),
            name=f"pellucid-{child.name}",
        )
        process.start()
        child.process, child.started = process, now
        self.log.info("process_started", process=child.name, pid=process.pid)

    def _stop(self) -> None:
        """Ask every process to end; kill what does not. The jobs run on."""
        alive = [c.process for c in self.children if c.process is not None]
        until = time.monotonic() + STOP_S
        while alive and time.monotonic() < until:
            for process in alive:
                process.terminate()  # again: one that was just begun may not have listened yet
            alive[0].join(1.0)
            self._kill_who_holds_up()
            for child in self.children:  # others wait for what one that hangs has
                if child.process is not None and child.process.is_alive():
                    self._kill_if_it_hangs(child, time.monotonic())
            alive = [process for process in alive if process.is_alive()]
        for process in alive:
            self.log.error("process_killed", process=process.name)
            process.kill()
            process.join()
        self.log.info("stopped")
