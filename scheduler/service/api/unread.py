"""Since when the Slurm that is followed could not be read: every answer says so."""

from __future__ import annotations

import json

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from scheduler.backends.events import Kind
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import events

HEADER = "Pellucid-Slurm-Unread-Since"  # of an answer: seconds since the epoch
KEPT_S = 1.0  # for which the last finding is good


class Unread:
    """Asks the log, once a second at most.

    Args:
        follows: the service is in front of a Slurm; else it was always read.
    """

    def __init__(self, store: Store, *, follows: bool) -> None:
        self._store, self._follows = store, follows
        self._until = 0.0
        self._since: float | None = None

    def since(self) -> float | None:
        """Of when the answers are that are given now; None: Slurm answers."""
        now = self._store.clock.monotonic()
        if self._follows and now >= self._until:
            self._since, self._until = unread_since(self._store), now + KEPT_S
        return self._since


def unread_since(store: Store) -> float | None:
    """When a Slurm was read last that does not answer any more; None: it does."""
    of_looks = select(events.c.body, events.c.at).where(events.c.kind == Kind.ADVISED.value)
    try:
        with store.engine.connect() as connection:
            row = connection.execute(of_looks.order_by(events.c.seq.desc()).limit(1)).first()
    except SQLAlchemyError:
        return None
    last = json.loads(row.body) if row is not None else {}
    if row is None or not last.get("failed"):
        return None
    # a follower that began while Slurm was down has read nothing: known since it noticed
    return float(last.get("unread_since") or row.at)
