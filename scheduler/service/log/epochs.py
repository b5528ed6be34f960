"""Going on with a log that this code would not have written.

After an upgrade the same events may be decided otherwise, and what was decided then has long taken
effect. So the log is followed, not decided again (`scheduler.core.following`). An EPOCH event marks
the place; from there on the log replays to the same bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection, select

from scheduler.backends.events import Kind
from scheduler.core.decisions import Decision
from scheduler.service.log.fold import Bundles, Diverged, State
from scheduler.service.log.snapshots import Snapshot, StateCheckpoints
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions

BEAT = 50  # events


class KeptByOtherCode(Exception):
    """A long log of which code of another version kept a snapshot: the log is to be followed from
    there, to a new epoch, rather than decided again from its start."""


def folded(
    connection: Connection,
    store: Store,
    bundles: Bundles,
    upto: int,
    *,
    beat: Callable[[int], object] = lambda _: None,
    snapshots: StateCheckpoints | None = None,
) -> State:
    """The state at event `upto`: decided again since its last epoch began, followed before; or
    since the newest snapshot, if that is later.

    `beat` is called now and then with the event reached: a long log takes its time. Raises
    Diverged; KeptByOtherCode.
    """
    epoch = store.last_seq_in(connection, Kind.EPOCH)
    kept = None
    if snapshots is not None:
        own = snapshots.newest(connection, store, upto, snapshots.version())
        if own is not None and own.state.seen > epoch:
            with suppress(Diverged):  # then it was no good
                return _onwards(own.state, connection, store, upto, beat)
        else:
            kept = recorded_before(connection, store, snapshots, upto)
    if kept is not None and kept.state.seen > epoch:
        raise KeptByOtherCode(f"the state was kept by code {kept.code} at event {kept.state.seen}")
    state = State(bundles)
    if epoch and epoch <= upto:
        state = followed(connection, store, bundles, epoch, beat=beat, since=kept)
    return _onwards(state, connection, store, upto, beat)


def recorded_before(
    connection: Connection, store: Store, snapshots: StateCheckpoints, upto: int
) -> Snapshot | None:
    """What a snapshot of whatever release tells, for a log that is long up to event `upto`."""
    kept = snapshots.newest(connection, store, upto) if upto > snapshots.short else None
    return None if kept is not None and Mends.of(connection).cover(kept.state.seen) else kept


def _onwards(
    state: State, connection: Connection, store: Store, upto: int, beat: Callable[[int], object]
) -> State:
    """Fold what follows, up to event `upto`."""
    for event in store.each_in(connection, state.seen, upto=upto):
        state.apply(event)
        if event.seq % BEAT == 0:
            beat(event.seq)
    return state


def followed(
    connection: Connection,
    store: Store,
    bundles: Bundles,
    upto: int,
    *,
    keep: bool = False,
    beat: Callable[[int], object] = lambda _: None,
    since: Snapshot | None = None,
) -> State:
    """The state at event `upto` as logged, whoever decided; what was pending is pending still.

    `since`: the state at an earlier event.
    """
    state = State(bundles, keep=keep) if since is None else since.state
    mends = Mends.of(connection)
    for event in store.each_in(connection, state.seen, upto=upto):
        taken = logged(connection, event.seq) if event.kind is Kind.DECIDED else []
        if late_s := mends.late_s(event.seq):
            taken = [replace(d, time=d.time - late_s) for d in taken]
        state.follow(mends.mended(event), taken)
        if event.seq % BEAT == 0:
            beat(event.seq)
    state.wake_at = state.now
    return state


def logged(connection: Connection, event: int) -> list[Decision]:
    """The decisions of a pass, as they were taken."""
    return [Decision.from_body(json.loads(body)) for body in texts_of(connection, event)]


def texts_of(connection: Connection, event: int) -> list[str]:
    """The same as they were written down."""
    query = select(decisions.c.seq, decisions.c.body).where(decisions.c.event == event)
    rows = connection.execute(query.order_by(decisions.c.seq)).all()
    return bodies(connection, decisions, rows)
