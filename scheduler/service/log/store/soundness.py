"""Checks whether the pages of a SQLite file are sound, table by table, while the file is in use.

Damage that is found is noted in a file beside the database, so that every process, and the next
start, knows of it. PostgreSQL checks its pages itself.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import structlog
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

from features.files import write_json
from features.given import read_text

SUFFIX = "-damage"
EVERY_S = 3600.0  # from one look at everything to the next
PAUSE_S = 0.5  # between two pieces
PIECE_S = 1.0  # of a table that takes longer, rows are read in pieces
ROWS = 5_000
STEPS = 10_000  # of SQLite's machine, between two looks at the time
LONGEST = 300  # characters of what SQLite says
WHAT_TO_DO = "stop the service and restore a backup: pellucid restore --help"
_TEXTS = ("malformed", "file is not a database", "database corruption")


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage that was found in a database.

    Attributes:
        where: a table, or the file as a whole.
        what: the damage in SQLite's words: a page, an index.
        at: when it was found, seconds since the epoch.
    """

    where: str
    what: str
    at: float

    def sentence(self) -> str:
        return f"the database is damaged: {self.where}: {self.what}"


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that a database's file is damaged."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, sqlite3.DatabaseError) and any(text in str(cause) for text in _TEXTS)


class Soundness:
    """Checks a SQLite database for damage, and keeps the result in a file beside it."""

    def __init__(self, url: URL | str) -> None:
        parsed = make_url(url)
        file = parsed.database if parsed.get_backend_name() == "sqlite" else None
        self.file = None if not file or file == ":memory:" else Path(file)

    @property
    def _mark(self) -> Path | None:
        return None if self.file is None else self.file.with_name(self.file.name + SUFFIX)

    def damage(self) -> Damage | None:
        """Return the damage found in the database. Return None if none was found, or the database
        was not checked yet.
        """
        if self._mark is None:
            return None
        try:
            return Damage(**json.loads(read_text(self._mark)))
        except (OSError, ValueError, TypeError):
            return None

    def note(self, found: Damage | None) -> None:
        """Write the damage found to the file beside the database. None: everything was checked and
        is sound, so that file is deleted.
        """
        if self._mark is None:
            return
        with suppress(OSError):
            if found is None:
                self._mark.unlink(missing_ok=True)
            else:
                write_json(self._mark, asdict(found))

    def look(self, pause: Callable[[], bool] = lambda: False) -> list[Damage]:
        """Check the whole file in pieces. Return the damage found; empty for a database without a
        file.

        Args:
            pause: called between two pieces; returns True to stop checking.
        """
        if self.file is None or not self.file.exists():
            return []
        return list(_damages(self.file, pause))


def _damages(file: Path, pause: Callable[[], bool]) -> Iterator[Damage]:
    tables: list[str] = []
    try:
        with closing(_opened(file)) as connection:
            query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            tables = [name for (name,) in connection.execute(query)]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) and not is_damage(error):
            return  # locked, or away: no damage
        yield Damage("its list of tables, on page 1", str(error)[:LONGEST], time.time())
    for table in tables:
        if pause():
            return
        with closing(_opened(file)) as connection:
            found = _of_table(connection, table, pause)
        if found:
            yield Damage(f"table {table}", found[:LONGEST], time.time())


def _of_table(connection: sqlite3.Connection, table: str, pause: Callable[[], bool]) -> str:
    """Return what SQLite finds wrong with a table and its indexes; "" where nothing is wrong."""
    until = time.monotonic() + PIECE_S
    connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    try:
        rows = connection.execute(f"PRAGMA quick_check({_named(table)})")
        return " ".join(" ".join(text.split()) for (text,) in rows if text != "ok")
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            return str(error) if is_damage(error) else ""
    except sqlite3.DatabaseError as error:
        return str(error)
    connection.set_progress_handler(None, 0)
    return _of_rows(connection, table, pause)


def _of_rows(connection: sqlite3.Connection, table: str, pause: Callable[[], bool]) -> str:
    """Read all rows of a large table, and return SQLite's error as text. Return "" without an
    error, if the table cannot be read by row id, or if stopped by `pause`. The rows are read in
    pieces, so that the journal can be written back in between.
    """
    after, name = -(2**63), _named(table)
    while not pause():
        try:
            query = f"SELECT rowid, * FROM {name} WHERE rowid > ? ORDER BY rowid LIMIT {ROWS}"
            last = deque(connection.execute(query, (after,)), maxlen=1)
        except sqlite3.OperationalError as error:
            return str(error) if is_damage(error) else ""  # a table without row ids, or locked
        except sqlite3.DatabaseError as error:
            return f"{error}, behind row {after}"
        if not last:
            return ""
        after = last[0][0]
    return ""


def _opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=5.0)


def _named(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def keep_looking(database: str, stopping: Callable[[float], bool]) -> None:
    """Check the whole database file now, and again an hour after each check, until stopped. Log
    damage, and note the first beside the file; delete that note where all is sound.

    Args:
        stopping: waits for so many seconds at most; returns True to stop.
    """
    soundness, log = Soundness(database), structlog.get_logger("soundness")
    while True:
        try:
            stopped = False

            def pause() -> bool:
                nonlocal stopped
                stopped = stopped or stopping(PAUSE_S)
                return stopped

            found = soundness.look(pause)
            if found or not stopped:
                soundness.note(found[0] if found else None)
            for one in found:
                log.error("database_damaged", where=one.where, what=one.what, do=WHAT_TO_DO)
        except (sqlite3.Error, OSError) as error:
            log.warning("soundness_not_known", why=str(error))
        if stopping(EVERY_S):
            return
