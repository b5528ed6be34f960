"""Deletes old rows that are not part of the log: idempotency keys, questions, claims (predictions
that were compared with what happened) and tokens that no longer work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError

from features.plain import first_line
from scheduler.service.log.header import service_clock
from scheduler.service.log.store import archive, chain, claims
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import idempotency, questions, tokens

HOUR_S, DAY_S = 3600.0, 86_400.0


def prune(store: Store, now: float, clock: float, keep_s: float) -> int:
    """Delete idempotency keys, questions and claims made more than `keep_s` seconds ago, tokens
    that expired or were revoked before then, and claims beyond the number that is kept. Return how
    many rows were deleted.

    Args:
        now: time of day, seconds since the epoch.
        clock: time on the service's own clock, which dates submissions.
    """
    since = now - keep_s
    old = (
        delete(idempotency).where(idempotency.c.at < clock - keep_s),
        delete(questions).where(questions.c.asked_at < since),
    )
    dead = (tokens.c.expires_at < since) | (tokens.c.revoked_at < since)
    with store.writing() as connection:
        went = chain.take_out(connection, tokens, dead)
        went += claims.prune(connection, clock - keep_s)
        return went + sum(connection.execute(query).rowcount for query in old)


def keep_pruning(
    database: str, keep_days: float, archive_days: float, stopping: Callable[[float], bool]
) -> None:
    """Once an hour, the first time after an hour, delete rows (see `prune`) older than `keep_days`,
    and archive bodies of the log older than `archive_days` (0: none), until stopped.

    Args:
        stopping: waits for so many seconds at most; returns True to stop.
    """
    store, log = Store(database), structlog.get_logger("retention")
    clock = service_clock(store)
    try:
        while not stopping(HOUR_S):
            try:
                gone = prune(store, time.time(), clock(), keep_days * DAY_S)
                log.info("pruned", rows=gone)
                if archive_days:
                    moved = archive.move(store, clock() - archive_days * DAY_S)
                    log.info("archived", bodies=moved)
            except (DBAPIError, OSError) as error:  # tried again the next time
                log.warning("prune_failed", why=first_line(error))
    finally:
        store.close()
