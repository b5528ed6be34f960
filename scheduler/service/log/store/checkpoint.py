"""A process of its own that carries SQLite's journal over into the file, so that nobody waits for
that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import structlog

from scheduler.service.log.store.store import Store

EVERY_S = 1.0


def keep_checkpointed(database: str, stopping: Callable[[float], bool]) -> None:
    """Checkpoint every `EVERY_S`, until stopped. Nothing is done for PostgreSQL.

    Args:
        stopping: waits for so many seconds at most; True: stop.
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
