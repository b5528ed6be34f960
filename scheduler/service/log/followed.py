"""Makes the service's state from the decisions that its log holds, without deciding again.

Decisions of the log have taken effect, so they hold whatever version of the code reads the log
(`scheduler.core.following`). Reading starts at the newest snapshot, where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection, select

from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Decision
from scheduler.service.log.fold import Bundles, State
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions

BEAT = 50  # events


def followed(
    connection: Connection,
    store: Store,
    bundles: Bundles,
    upto: int,
    *,
    keep: bool = False,
    beat: Callable[[int], object] = lambda _: None,
    snapshots: StateCheckpoints | None = None,
    mends: Mends | None = None,
) -> State:
    """Return the state at event `upto`. Events that no decision pass covers are still held back in
    it.

    Args:
        keep: remember jobs that are over, too; then no snapshot is used.
        beat: called now and then with the `seq` of the event reached, since a long log takes time.
        snapshots: where states were kept; None: the log is read from its start.
        mends: corrections of the log's times; None: all corrections that the log holds.
    """
    mends = mends or Mends.of(connection)
    state = None
    if snapshots is not None and not keep:
        state = snapshots.newest(connection, store, upto)
        if state is not None and mends.cover(state.seen):  # its times are wrong
            state = None
    state = state or State(bundles, keep=keep)
    for event in store.each_in(connection, state.seen, upto=upto):
        follow(state, connection, event, mends)
        if event.seq % BEAT == 0:
            beat(event.seq)
    return state


def follow(
    state: State, connection: Connection, event: Event, mends: Mends | None = None
) -> list[Decision]:
    """Apply one more event of the log to a state, with its recorded decisions. Return these where
    the event is a decision pass, else [].
    """
    texts = texts_of(connection, event.seq) if event.kind is Kind.DECIDED else []
    return follow_texts(state, event, texts, mends)


def follow_texts(
    state: State, event: Event, texts: Iterable[str], mends: Mends | None = None
) -> list[Decision]:
    """Apply one more event to a state. `texts`: the stored decisions, if the event is a decision
    pass. Return these decisions. `mends` corrects the times of the event and of the decisions.
    """
    taken = decisions_of(texts)
    if mends is not None:
        late_s, event = mends.late_s(event.seq), mends.mended(event)
        if late_s:
            taken = [replace(d, time=d.time - late_s) for d in taken]
    state.follow(event, taken)
    return taken


def logged(connection: Connection, event: int) -> list[Decision]:
    """Return the decisions of a decision pass as they were taken. `event`: `seq` of its DECIDED
    event.
    """
    return decisions_of(texts_of(connection, event))


def decisions_of(texts: Iterable[str]) -> list[Decision]:
    """Return decisions from their stored form."""
    return [Decision.from_body(json.loads(body)) for body in texts]


def texts_of(connection: Connection, event: int) -> list[str]:
    """Return the decisions of a decision pass in their stored form. `event`: `seq` of its DECIDED
    event.
    """
    query = select(decisions.c.seq, decisions.c.body).where(decisions.c.event == event)
    rows = connection.execute(query.order_by(decisions.c.seq)).all()
    return bodies(connection, decisions, rows)
