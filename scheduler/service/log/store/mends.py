"""Corrections of the times of events that were logged by a wrong clock
(`scheduler.service.log.mend`).

The rows stay as they were written and hashed. Code that shows or uses a time subtracts what a
`CLOCK_MENDED` event says about the events before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from scheduler.backends.events import Event, Kind
from scheduler.service.log.store.tables import events

_TIMES = ("start", "submitted_at", "now")  # in bodies


@dataclass(frozen=True, slots=True)
class Mend:
    """A correction: the events `first` to `last` are dated `by_s` seconds too late."""

    first: int
    last: int
    by_s: float


class Mends:
    """All corrections of the times of one log."""

    def __init__(self, mends: Iterable[Mend] = ()):
        self._mends = list(mends)

    @classmethod
    def of(cls, connection: Connection, upto: int | None = None) -> Mends:
        """Return the corrections that the log holds. `upto`: only those logged up to this event;
        None: all.
        """
        query = select(events.c.seq, events.c.body).where(events.c.kind == Kind.CLOCK_MENDED.value)
        if upto is not None:
            query = query.where(events.c.seq <= upto)
        bodies = [(row.seq, json.loads(row.body)) for row in connection.execute(query)]
        return cls(Mend(body["first"], seq - 1, body["by_s"]) for seq, body in bodies)

    def late_s(self, seq: int) -> float:
        """Return by how many seconds event `seq`, and decisions recorded with it, are dated too
        late.
        """
        return sum(mend.by_s for mend in self._mends if mend.first <= seq <= mend.last)

    def mended(self, event: Event) -> Event:
        """Return the event with its times corrected."""
        late_s = self.late_s(event.seq)
        if not late_s:
            return event
        right = {name: event.body[name] - late_s for name in _TIMES if name in event.body}
        return replace(event, at=event.at - late_s, body={**event.body, **right})

    def cover(self, seq: int) -> bool:
        """Return whether the times of event `seq` are corrected."""
        return any(mend.first <= seq <= mend.last for mend in self._mends)
