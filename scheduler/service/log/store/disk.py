"""Finds out whether an error is due to a full disk, and when there is room again."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from features.clock import Clock
from scheduler.service.log.store.store import Store

FULL = (errno.ENOSPC, errno.EDQUOT)
ROOM = 256 * 1024  # bytes that can be written where a disk is not full
LOOK_S = 0.5
_TEXTS = ("is full", "No space left", "could not extend file")  # by SQLite and PostgreSQL


def is_full(error: BaseException) -> bool:
    """Return whether an error says that the disk is full, or that an account's quota is used up."""
    if isinstance(error, OSError):
        return error.errno in FULL
    return isinstance(error, DBAPIError) and any(text in str(error.orig) for text in _TEXTS)


def has_room(store: Store) -> bool:
    """Return whether the disk has room, by writing `ROOM` bytes; True also where the write fails
    for another reason than a full disk.

    The bytes are written beside a SQLite file, and for PostgreSQL to the temporary folder.
    """
    file = store.engine.url.database
    try:
        folder = Path(file).parent if store.is_sqlite and file else Path(tempfile.gettempdir())
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(os.urandom(ROOM))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno not in FULL
    return True


def wait_for_room(store: Store, clock: Clock, stopping: Callable[[], object]) -> None:
    """Wait until the disk has room, or `stopping` returns true. The disk is looked at every
    `LOOK_S` seconds, the first time after `LOOK_S`.

    Args:
        stopping: called at once, and before each further wait.
    """
    while not stopping():
        clock.sleep(LOOK_S)
        if has_room(store):
            return
