"""What `pellucid serve` does before its processes start: it prepares the database, its log and the
address to listen on.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from features.files import sync, write_whole
from features.folders import OpenFolder, private_folder
from features.given import read_text
from scheduler.assembly import ALL_STATED, CoreSpec, Stated
from scheduler.service.api.auth import service_user
from scheduler.service.api.tokens import guard
from scheduler.service.backends import host_of
from scheduler.service.decide.start_time import check_time
from scheduler.service.log.header import FOLLOWED, LogHeader, establish
from scheduler.service.log.notices import mark
from scheduler.service.log.present import Present
from scheduler.service.log.restart import Choice, settle
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.soundness import WHAT_TO_DO, Soundness, is_damage
from scheduler.service.log.store.store import Store, StoreError
from scheduler.service.settings import Settings, SettingsError

LOOKS_S = 2.0  # at the database's pages, before it begins
NOTICED = "notices.seq"  # in the state folder: of which events messages were sent


def begin(
    settings: Settings,
    spec: CoreSpec,
    names: tuple[str, ...] = (),
    choice: Choice | None = None,
    stated: Stated = ALL_STATED,
) -> Present:
    """Bring the database up to date. Begin its log, or settle whether the log or the cluster file
    holds where they differ. Return the nodes and settings that hold.

    Args:
        spec, names: cluster, policy and settings, and names of the nodes, from the cluster file or
            from Slurm.
        choice: whether the file or the log holds where they differ; None: raise FileDiffers then.
        stated: which parts of the file somebody wrote; a default never differs.

    Raise StoreError, LogHeaderError, SettingsError or HostError where database, log, settings or
    host cannot be used.
    """
    _keep_others_out(settings)
    store = Store(settings.database)
    _look_at_pages(store)
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
            # of one that only follows no decision took effect
            backend=FOLLOWED if settings.follows else settings.backend,
            site=_site(settings.state_dir),
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
    except DBAPIError as error:
        if not is_damage(error):
            raise
        raise StoreError(f"the database is damaged ({error.orig}); {WHAT_TO_DO}") from None
    finally:
        store.close()


def _look_at_pages(store: Store) -> None:
    """Check the database's pages for at most `LOOKS_S` seconds, and log the first damage. The
    rest is checked while the service runs."""
    soundness, until = Soundness(store.engine.url), time.monotonic() + LOOKS_S
    for one in soundness.look(lambda: time.monotonic() > until)[:1]:
        soundness.note(one)
        log = structlog.get_logger("soundness")
        log.error("database_damaged", where=one.where, what=one.what, do=WHAT_TO_DO)


def _keep_others_out(settings: Settings) -> None:
    """Raise SettingsError where other users could write to the folders of the service's state or
    database. Folders that are missing are made.
    """
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


def _site(state_dir: Path) -> str:
    """Return the lasting name of the state folder, from its file `site`, which is made where it is
    missing. Services that start at once agree on one name. A log belongs to one state folder,
    because its jobs run there.
    """
    path = state_dir / "site"
    if not path.is_file():
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        proposed = state_dir / f".site.{secrets.token_hex(8)}"
        write_whole(proposed, secrets.token_hex(8) + "\n", durable=True)
        with suppress(FileExistsError):
            os.link(proposed, path)
        proposed.unlink()
        sync(state_dir)
    return read_text(path).strip()


def listen(settings: Settings) -> socket.socket | None:
    """Return the listening socket of the API, or None where there is no API. Raise SettingsError
    where the service cannot listen on that address.
    """
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
