"""Puts a backup in the place of a damaged database. The backup is checked before."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import create_engine, func, make_url, select

from features.files import sync
from features.given import read_given, regular
from scheduler.core.plural import count
from scheduler.service.log.record import Phase
from scheduler.service.log.store.schema import check_engine
from scheduler.service.log.store.soundness import Soundness
from scheduler.service.log.store.store import StoreError
from scheduler.service.log.store.tables import events, jobs

BESIDE = ("", "-wal", "-shm")  # files of one database
NAME = "pellucid.db"


@dataclass(frozen=True, slots=True)
class Restore:
    """What is to be restored.

    Attributes:
        file: file of the database. backup: file of the backup.
        folder: the backup's folder, with its models; None: the backup is a single file.
        events, waiting, running: what the backup holds: events, waiting and running jobs.
        at: when its last event was, seconds since the epoch.
    """

    file: Path
    state_dir: Path
    backup: Path
    folder: Path | None
    events: int
    waiting: int
    running: int
    at: float

    @classmethod
    def of(cls, database: str, state_dir: Path, backup: Path) -> Restore:
        """Read a backup and return what is to be restored. Raise StoreError where the
        service's database is no SQLite file, or the backup is none or is damaged itself.
        """
        url = make_url(database)
        if url.get_backend_name() != "sqlite" or not url.database:
            raise StoreError("only a SQLite file is restored here; PostgreSQL: pg_restore")
        folder = backup if backup.is_dir() else None
        file = backup / NAME if folder else backup
        try:
            regular(file)
        except OSError as error:
            raise StoreError(f"backup {file}: {error.strerror}") from None
        for damage in Soundness(f"sqlite:///{file}").look():
            raise StoreError(f"backup {file}: {damage.where}: {damage.what}: it is damaged itself")
        engine = create_engine(f"sqlite:///{file}", creator=partial(_read_only, file))
        try:
            check_engine(engine)
            with engine.connect() as connection:
                every, last = connection.execute(
                    select(func.count(), func.max(events.c.at)).select_from(events)
                ).one()
                phases = [Phase(one) for one in connection.execute(select(jobs.c.phase)).scalars()]
        finally:
            engine.dispose()
        waiting = sum(phase.waits for phase in phases)
        running = sum(not phase.waits and not phase.over for phase in phases)
        return cls(
            file=Path(url.database),
            state_dir=state_dir,
            backup=file,
            folder=folder,
            events=every,
            waiting=waiting,
            running=running,
            at=last or 0.0,
        )

    def lines(self) -> list[str]:
        """Return what the backup holds and what a restore would do, line by line."""
        at = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return [
            f"backup {self.backup}: sound; {count(self.events, 'event')}, the last of {at}",
            f"{count(self.waiting, 'job')} would wait again; {count(self.running, 'job')} ran "
            "then, and would be lost unless they still run here",
            f"{self.file} and its journal would be kept as {self._kept().name}",
        ]

    def apply(self) -> list[str]:
        """Restore the backup. Return what was done, line by line. Raise StoreError where a
        process uses the database."""
        for pid in _users(self.file):
            raise StoreError(f"process {pid} uses {self.file}: stop the service first")
        kept, partial = self._kept(), self.file.with_name(f".{self.file.name}.restoring")
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(_read_only(self.backup)) as given, closing(sqlite3.connect(partial)) as into:
            given.backup(into)
        sync(partial)
        # the database goes last, and in one step: a service that finds none begins an empty log
        for suffix in BESIDE:
            with suppress(FileNotFoundError):
                (os.rename if suffix else os.link)(f"{self.file}{suffix}", f"{kept}{suffix}")
        os.replace(partial, self.file)
        sync(self.file.parent)
        Soundness(f"sqlite:///{self.file}").note(None)
        done = [f"restored {self.file}; what was there is {kept.name}", *self._models()]
        return [*done, "next: pellucid audit, then pellucid serve with --keep-log"]

    def _models(self) -> Iterator[str]:
        """Copy the models and the site's name from a backup to the state folder, where it lacks
        them. Yield a line for each thing copied.
        """
        if self.folder is None:
            return
        bundles, site = self.folder / "bundles", self.folder / "site"
        if bundles.is_dir():
            for one in bundles.iterdir():
                if not (self.state_dir / "bundles" / one.name).exists():
                    shutil.copytree(one, self.state_dir / "bundles" / one.name)
                    yield f"restored models {one.name[:12]}"
        if site.exists() and not (self.state_dir / "site").exists():
            (self.state_dir / "site").write_bytes(read_given(site))
            yield "restored the name of the state folder"

    def _kept(self) -> Path:
        at = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return self.file.with_name(f"{self.file.name}.damaged-{at}")


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)


def _users(file: Path) -> Iterator[int]:
    """Yield the ids of the processes that have a file open, as far as this account may see."""
    real = os.path.realpath(file)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with suppress(OSError):
                for one in (folder / "fd").iterdir():
                    with suppress(OSError):
                        if os.readlink(one) == real:
                            yield int(folder.name)
