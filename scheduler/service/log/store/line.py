"""The queue in which processes wait to write to a SQLite file: a lock on a file beside the
database.

The kernel wakes the next process at once, whereas SQLite itself makes them sleep and try again, for
up to 100 ms. The process that has the lock writes its id into the file, so that one which keeps it
too long can be found.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from features.given import descriptor

SIZE = 48  # of what is written: it never grows, and needs no room on a full disk after the first


@dataclass(frozen=True, slots=True)
class Turn:
    """The process of this host that writes now. `pid`: its id; `since`: when it began, seconds on
    the monotonic clock.
    """

    pid: int
    since: float


def line_of(url: URL) -> Line | None:
    """Return the queue of writers to a database. Return None for PostgreSQL, which has its own
    queue, and for a database in memory, which no other process can open.
    """
    file = url.database if url.get_backend_name() == "sqlite" else None
    return Line(Path(f"{file}-line")) if file and file != ":memory:" else None


class Line:
    """The queue of processes that write to one database. Its lock file is made when it is first
    needed.
    """

    def __init__(self, path: Path):
        self.path = path

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until this process may write, and keep the lock inside the block."""
        # nobody else's: who can open a file can lock it
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            _write_holder(file, f"{os.getpid()} {time.monotonic()}")
            yield
            _write_holder(file, "")
        finally:
            os.close(file)

    def head(self) -> Turn | None:
        """Return the process that writes now, or None where none does."""
        try:
            file = descriptor(self.path)
        except OSError:
            return None
        try:
            words = os.pread(file, SIZE, 0).split()
            if len(words) != 2 or _free(file):  # who died in its turn left its name
                return None
            return Turn(int(words[0]), float(words[1]))
        finally:
            os.close(file)


def _write_holder(file: int, who: str) -> None:
    with suppress(OSError):  # a full disk: it is not known, and that is all
        os.pwrite(file, who.ljust(SIZE).encode(), 0)


def _free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
