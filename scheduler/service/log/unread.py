"""Finds since when the followed Slurm, or its slurmdbd, does not answer. Every answer of the
service mentions it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from scheduler.backends.events import Kind
from scheduler.explain.words import clock_time
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import events

HEADER = "Pellucid-Slurm-Unread-Since"  # of an answer: seconds since the epoch
DATABASE = "Pellucid-Slurmdbd-Unread-Since"  # the same of limits, accounts and shares
KEPT_S = 1.0  # for which the last finding is good


@dataclass(frozen=True, slots=True)
class Silent:
    """Which parts of a followed Slurm do not answer. Times are seconds since the epoch.

    Attributes:
        slurm: when the shown state of Slurm was read; None: slurmctld answers.
        database: when limits, accounts and shares were read; None: slurmdbd answers.
    """

    slurm: float | None = None
    database: float | None = None

    def checks(self, now: float) -> Iterator[tuple[str, str]]:
        """Yield (name, text) for each part of Slurm that does not answer. The text gives the time
        of the data shown.
        """
        if self.slurm is not None:
            shown = clock_time(self.slurm, now)
            yield "slurm", f"does not answer: what is shown is of {shown}"
        if self.database is not None:
            shown = clock_time(self.database, now)
            yield "slurmdbd", f"does not answer: limits, accounts and shares are of {shown}"

    def sentences(self, now: float) -> list[str]:
        """Return a sentence for each part of Slurm that does not answer."""
        return [f"{who[:1].upper()}{who[1:]} {what}." for who, what in self.checks(now)]


class Unread:
    """Reads from the log whether Slurm answers, at most once a second.

    Args:
        follows: whether the service follows a Slurm; if not, everything counts as answering.
    """

    def __init__(self, store: Store, *, follows: bool) -> None:
        self._store, self._follows = store, follows
        self._until = 0.0
        self._silent = Silent()

    def silent(self) -> Silent:
        """Return which parts of Slurm do not answer now."""
        now = self._store.clock.monotonic()
        if self._follows and now >= self._until:
            self._silent, self._until = silent(self._store), now + KEPT_S
        return self._silent


def silent(store: Store) -> Silent:
    """Return which parts of Slurm did not answer at the last poll. Return an empty record if that
    is unknown.
    """
    since, last = _last(store)
    return Silent(since if last.get("failed") else None, last.get("database_since"))


def read_at(store: Store) -> float | None:
    """Return when the followed queue was last read, seconds since the epoch; None where that is
    unknown.
    """
    return _last(store)[0]


def _last(store: Store) -> tuple[float | None, Mapping[str, Any]]:
    """Return when the follower last read Slurm's queue (seconds since the epoch), and the body of
    the event that it wrote then. Return (None, {}) where that is unknown.
    """
    of_looks = select(events.c.body, events.c.at).where(events.c.kind == Kind.ADVISED.value)
    try:
        with store.engine.connect() as connection:
            row = connection.execute(of_looks.order_by(events.c.seq.desc()).limit(1)).first()
    except SQLAlchemyError:
        return None, {}
    if row is None:
        return None, {}
    last = json.loads(row.body)
    # a follower that began while Slurm was down has read nothing: known since it noticed
    return float(last.get("unread_since") or row.at), last
