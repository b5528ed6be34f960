"""What the backend must not forget: every attempt, and what is done about it.

SQLite in the state folder. Written before Slurm is asked to do something and again after, so that
whoever opens it next knows what may have been done.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report

Key = tuple[str, int]


class JournalError(ValueError):
    """The state folder cannot be used; one line."""


@dataclass(slots=True)
class Attempt:
    """One attempt. Times are seconds since the epoch.

    Attributes:
        launch: None when it was stopped before it was ever asked for.
        slurm_id: its job in Slurm, once known.
        sent_at: Slurm was asked for something about it, or about to be.
        released_at: it was let go, or about to be: from here on it may run.
        started_at: it was seen to run, or to have run.
        submitted: Slurm's submit time of the job, which tells a job id from the same one reused.
        stop, limit: it is to be ended: it was asked for; its time is up.
        observed: what watching it showed.
        final: how it ended.
        told: reports of it that were acknowledged.
    """

    key: Key
    launch: Launch | None = None
    slurm_id: str = ""
    sent_at: float | None = None
    released_at: float | None = None
    started_at: float | None = None
    submitted: float | None = None
    stop: bool = False
    limit: bool = False
    observed: Report | None = None
    final: Report | None = None
    told: frozenset[Happened] = frozenset()

    @property
    def over(self) -> bool:
        return self.final is not None

    @property
    def done(self) -> bool:
        """Over, and whoever asks knows."""
        return self.final is not None and self.final.what in self.told

    @property
    def started(self) -> Report | None:
        if self.started_at is None:
            return None
        return Report(*self.key, Happened.STARTED, self.started_at)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    job_id TEXT, attempt INTEGER, begun INTEGER, done INTEGER, body TEXT,
    PRIMARY KEY (job_id, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS adopted (
    job_id TEXT PRIMARY KEY, submitted REAL, ask TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS site (name TEXT);
CREATE TABLE IF NOT EXISTS closed (node TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Journal:
    """The journal of one state folder; one process has it open at a time. `site` names it.

    Raises JournalError: another has it.
    """

    def __init__(self, folder: Path, *, patience_s: float = 10.0) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    os.close(self._lock)
                    raise JournalError(f"{folder}: another service uses it") from None
                time.sleep(0.05)
        self._db = sqlite3.connect(folder / "journal.db", isolation_level=None)
        os.chmod(folder / "journal.db", 0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self.site = self._site()

    def _site(self) -> str:
        found = self._db.execute("SELECT name FROM site").fetchone()
        if found is None:
            found = (secrets.token_hex(4),)
            self._db.execute("INSERT INTO site VALUES (?)", found)
        return str(found[0])

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    # --- attempts -----------------------------------------------------------------------------

    def save(self, *attempts: Attempt) -> None:
        """Write attempts, all or none."""
        rows = [
            (*a.key, a.started_at is not None, a.done, "" if a.done else json.dumps(_body(a)))
            for a in attempts
        ]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def live(self) -> Iterator[Attempt]:
        """Attempts that are not done."""
        for (body,) in self._db.execute("SELECT body FROM attempts WHERE NOT done"):
            yield _attempt(json.loads(body))

    def knows(self, key: Key) -> bool:
        query = "SELECT 1 FROM attempts WHERE job_id = ? AND attempt = ?"
        return self._db.execute(query, key).fetchone() is not None

    def begun(self) -> frozenset[Key]:
        query = "SELECT job_id, attempt FROM attempts WHERE begun"
        return frozenset((job_id, attempt) for job_id, attempt in self._db.execute(query))

    # --- what others did ----------------------------------------------------------------------

    def adopt(self, jobs: Sequence[tuple[str, float, str]]) -> None:
        """Jobs of Slurm that are in the service's log: id, submit time, what they asked for."""
        self._db.executemany("INSERT OR REPLACE INTO adopted VALUES (?, ?, ?)", jobs)

    def adopted(self) -> dict[str, tuple[float, str]]:
        """Submit time and ask of adopted jobs that were not seen to leave, by id."""
        query = "SELECT job_id, submitted, ask FROM adopted"
        return {job_id: (at, ask) for job_id, at, ask in self._db.execute(query)}

    def disown(self, job_id: str) -> None:
        """An adopted job has left."""
        self._db.execute("DELETE FROM adopted WHERE job_id = ?", (job_id,))

    def set_closed(self, node: str, closed: bool) -> None:
        """A node was told closed, or open again."""
        statement = "INSERT OR IGNORE INTO closed VALUES (?)"
        self._db.execute(statement if closed else "DELETE FROM closed WHERE node = ?", (node,))

    def closed(self) -> frozenset[str]:
        return frozenset(node for (node,) in self._db.execute("SELECT node FROM closed"))


def _body(attempt: Attempt) -> dict[str, Any]:
    found = asdict(attempt)
    found["told"] = sorted(attempt.told)
    return found


def _attempt(body: dict[str, Any]) -> Attempt:
    launch = body["launch"]
    body["key"] = tuple(body["key"])
    body["told"] = frozenset(map(Happened, body["told"]))
    if launch is not None:
        tuples = {"command": tuple(launch["command"]), "nodes": tuple(launch["nodes"])}
        gpus = tuple(map(tuple, launch["gpus"]))
        purpose = Purpose(launch["purpose"])
        body["launch"] = Launch(**{**launch, **tuples, "gpus": gpus, "purpose": purpose})
    body["observed"], body["final"] = _report(body["observed"]), _report(body["final"])
    return Attempt(**body)


def _report(body: dict[str, Any] | None) -> Report | None:
    if body is None:
        return None
    profile, state = body["profile"], body["state"]
    return replace(
        Report(**body),
        what=Happened(body["what"]),
        state=None if state is None else State(state),
        profile=None if profile is None else Profile(**profile),
    )
