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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.busy import BackendBusy
from scheduler.backends.slurm.attempt import Did, Key, SlurmAttempt, Stage
from scheduler.core.transitions import Step


class JournalError(ValueError):
    """The state folder cannot be used; one line."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    job_id TEXT, attempt INTEGER, begun INTEGER, done INTEGER, body TEXT,
    PRIMARY KEY (job_id, attempt)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS adopted (
    job_id TEXT PRIMARY KEY, submitted REAL, ask TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS site (name TEXT);
CREATE TABLE IF NOT EXISTS closed (node TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class JournalBusy(JournalError, BackendBusy):
    """Another service uses it."""


class Journal:
    """The journal of one state folder; one process has it open at a time. `site` names it.

    Raises JournalBusy: another has it.
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
                    raise JournalBusy(f"{folder}: another service uses it") from None
                time.sleep(0.05)
        self._db = sqlite3.connect(folder / "journal.db", isolation_level=None)
        os.chmod(folder / "journal.db", 0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA secure_delete=ON")  # of users' environments nothing is to be left
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

    def save(self, *attempts: SlurmAttempt) -> None:
        """Write attempts, all or none."""
        rows = [
            (*a.key, a.started_at is not None, a.done, "" if a.done else json.dumps(_body(a)))
            for a in attempts
        ]
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def live(self) -> Iterator[SlurmAttempt]:
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
        """A node was closed, or opened again."""
        statement = "INSERT OR IGNORE INTO closed VALUES (?)"
        self._db.execute(statement if closed else "DELETE FROM closed WHERE node = ?", (node,))

    def closed(self) -> frozenset[str]:
        return frozenset(node for (node,) in self._db.execute("SELECT node FROM closed"))


def _body(attempt: SlurmAttempt) -> dict[str, Any]:
    found = asdict(attempt)
    found["told"] = sorted(attempt.told)
    del found["cancelled_at"], found["absent_since"]  # another process has another clock
    return found


def _attempt(body: dict[str, Any]) -> SlurmAttempt:
    if "stage" not in body:
        body |= _stage_of_earlier(body)
    launch = body["launch"]
    body["key"] = tuple(body["key"])
    body["told"] = frozenset(map(Happened, body["told"]))
    body["stage"] = Stage(body["stage"])
    body["steps"] = tuple(Step(at, Did(did), Stage(to)) for at, did, to, _ in body["steps"])
    if launch is not None:
        tuples = {"command": tuple(launch["command"]), "nodes": tuple(launch["nodes"])}
        gpus = tuple(map(tuple, launch["gpus"]))
        purpose = Purpose(launch["purpose"])
        body["launch"] = Launch(**{**launch, **tuples, "gpus": gpus, "purpose": purpose})
    body["observed"], body["final"] = _report(body["observed"]), _report(body["final"])
    return SlurmAttempt(**body)


def _stage_of_earlier(body: dict[str, Any]) -> dict[str, Any]:
    """Where an attempt stands that a version without stages wrote: it kept `released_at` instead.
    Where that leaves two stages open, the earlier one, in which Slurm is asked what is so."""
    released_at = body.pop("released_at")
    if body["final"] is not None:
        stage = Stage.OVER
    elif body["started_at"] is not None:
        stage = Stage.RUNNING
    elif released_at is not None:
        stage = Stage.RELEASING
    elif body["slurm_id"]:  # a job of a user has its id before anything was asked about it
        stage = Stage.HELD if body["sent_at"] is None else Stage.PLACING
    else:
        stage = Stage.ASKED if body["sent_at"] is None else Stage.SENT
    return {"stage": stage, "steps": ()}


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
