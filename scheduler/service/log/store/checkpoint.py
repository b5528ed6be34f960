"""Writes SQLite's journal back to the database file, in a process of its own, so that no commit has
to wait for that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import structlog

from scheduler.service.log.store.store import Store

EVERY_S = 1.0


def keep_checkpointed(database: str, stopping: Callable[[float], bool]) -> None:
    """Write the journal back every `EVERY_S` seconds, until stopped. With PostgreSQL, nothing is
    written.

    Args:
        stopping: waits for so many seconds at most; returns True to stop.
    """
    store, log = Store(database), structlog.get_logger("checkpoint")
    try:
        while not stopping(EVERY_S):
            try:
                store.checkpoint()
            except (sqlite3.Error, OSError) as error:  # commits do it where it cannot be done here
                log.warning("checkpoint_failed", why=str(error))
    finally:
        store.close()
