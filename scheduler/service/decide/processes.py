"""What each process of the service does, until it is stopped."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from features.aside import Aside
from scheduler.service.backends import open_backend
from scheduler.service.decide.begin import NOTICED
from scheduler.service.decide.decider import Decider
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.export import keep_exporting
from scheduler.service.log.header import LogHeader
from scheduler.service.log.judging import Desk, keep_judging
from scheduler.service.log.notices import keep_notifying
from scheduler.service.log.retention import keep_pruning
from scheduler.service.log.served import keep_counting
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store.checkpoint import keep_checkpointed
from scheduler.service.log.store.soundness import keep_looking
from scheduler.service.log.store.store import Store
from scheduler.service.log.watch_models import keep_watching
from scheduler.service.metrics import Counts
from scheduler.service.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from scheduler.service.api.connections import Connections

SWITCH_S = 0.0005  # longest turn of a thread of an API process at its interpreter
STOP_S = 10.0  # a process that does not end by then is killed

Stopping = Callable[[], bool]


def run_decider(
    settings: Settings, stopping: Stopping, holder: str = "", counts: Counts | None = None
) -> None:
    """Run the process that decides, or stands by, until stopped.

    Args:
        holder: name of the process in its lease. A process that is started again under the same
            name need not wait for the lease to expire.
        counts: the counters that all processes share.
    """
    store = Store(settings.database)
    store.go_on()
    header = LogHeader.from_body(store.read(limit=1)[0].body)
    bundle_store = BundleStore(settings.state_dir / "bundles", Aside())
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
    decider.watches = settings.watch_models
    if counts is not None:
        decider.full_since = counts.full_since
    # the simulated backend waits by its own clock
    decider.run(stopping, settings.poll_s * header.pace)


def this_process() -> str:
    """Return a name for this process that is unique among all that use the database. Host and
    pid alone are not: containers may share them."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def run_api(
    settings: Settings, stopping: Stopping, listening: socket.socket, counts: Counts | None = None
) -> None:
    """Run one process of the API and the pages until stopped, on the socket `listening`. `counts`:
    the counters that all processes share; None: new ones.
    """
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
            """Called ten times a second by the loop that answers requests. Return whether to
            stop.
            """
            self.should_exit = self.should_exit or (counter % 2 == 0 and stopping())
            return await super().on_tick(counter)

    server = Server(config)
    gc.collect()
    gc.freeze()  # the app is for good: full collections need not look through it
    server.run(sockets=[listening])


def server_config(app: FastAPI, connections: Connections) -> uvicorn.Config:
    """Return uvicorn's configuration for serving the API. `connections` limits the connections."""
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
    """Run the analyst process, which forecasts and answers questions, until stopped."""
    from scheduler.service.analyst import process

    process.run_analyst(settings, stopping)


def follow(settings: Settings, stopping: Stopping, holder: str) -> None:
    """Run the process that follows a Slurm, in the modes `advise` and `order`, until stopped."""
    from scheduler.slurm import entry

    entry.follow(settings, stopping, holder)


def run_maintenance(settings: Settings, stopping: Stopping) -> None:
    """Run the process for all that recurs beside deciding, until stopped: it deletes old rows,
    looks after the database and counts how the models did. As set, it exports ended jobs, watches
    and judges models, and sends messages. Raise RuntimeError where one of these tasks ends by
    itself.
    """
    over = threading.Event()
    tasks = [
        partial(
            keep_pruning, settings.database, settings.keep_days, settings.archive_days, over.wait
        ),
        partial(keep_checkpointed, settings.database, over.wait),
        partial(keep_looking, settings.database, over.wait),
        partial(keep_counting, settings.database, settings.state_dir, over.wait),
    ]
    if settings.export_every:
        path = settings.state_dir / "export" / "finished.parquet"
        every = settings.export_every
        tasks.append(partial(keep_exporting, settings.database, path, every, over.wait))
    if settings.watch_models:
        folder = settings.state_dir / "bundles"
        tasks.append(partial(keep_watching, settings.database, folder, over.wait))
    if settings.params is not None and settings.bundle is not None:
        desk = Desk(params=settings.params, out=settings.bundle)
        tasks.append(partial(keep_judging, settings.database, settings.state_dir, desk, over.wait))
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
