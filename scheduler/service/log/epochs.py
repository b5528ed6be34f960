"""Going on with a log that this code would not have written.

After an upgrade the same events may be decided otherwise, and what was decided then has long taken
effect. So the log is followed, not decided anew: the ledger and the histories are read off it, and
a new core is built in which what runs runs and what waits waits. A REBASED event marks the place;
from there on the log replays to the same bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import Connection, select

from features.job import Job, Profile
from features.schema import State as EndState
from models.bundle import Bundle
from scheduler.backends.base import Purpose
from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import LiveEstimator
from scheduler.service.log.fold import Bundles, Diverged, State, decision_of
from scheduler.service.log.snapshots import Snapshots
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions

BEAT = 500  # events


class Follower:
    """Listens to the log in the core's stead, and tells the estimator what the core would."""

    def __init__(self) -> None:
        self.estimator = LiveEstimator()
        self.bundle: Bundle | None = None
        self.refused: set[str] = set()

    def knows(self, job_id: str) -> bool:
        return job_id not in self.refused

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        if job.job_id not in self.refused:
            self.estimator.submitted(job, now)

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        if profile is not None:
            self.estimator.profiled(job_id, profile, now)

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        self.estimator.profiled(job_id, profile, now)

    def ended(self, job_id: str, state: EndState, duration_s: float, now: float) -> None:
        self.estimator.ended(job_id, state, duration_s, now)

    def withdrawn(self, job_id: str, now: float, reason: Reason = Reason.CANCELLED) -> None:
        self.estimator.withdrawn(job_id, now)

    def use(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.estimator.use(bundle)

    def set_priority(self, job_id: str, priority: int) -> None:
        """The ledger keeps it."""

    def set_node(self, node: int, is_open: bool) -> None:
        """The ledger keeps it."""

    def decided(self, taken: Sequence[Decision]) -> None:
        for d in taken:
            if d.action in (Action.START, Action.PACK):
                self.estimator.started(d.job_id, d.time)


class Followed(State):
    """The state as the log tells it, whoever decided."""

    def __init__(self, bundles: Bundles, *, keep: bool = False):
        super().__init__(bundles, keep=keep)
        self.follower = Follower()
        self.decided = 0  # decisions so far

    def follow(self, event: Event, taken: Sequence[Decision]) -> None:
        """Fold one event; `taken` are the decisions of a pass, as logged."""
        if event.kind is Kind.REBASED:
            self.seen = event.seq
            return
        if event.kind is not Kind.DECIDED:
            self.note(event)
            return
        follower, body = self.follower, event.body
        self.now, self.seen = body["now"], event.seq
        follower.refused = {d.job_id for d in taken if d.action is Action.REFUSE}
        self._advance(follower, body["upto"])
        follower.decided(taken)
        self.ledger.decided(taken)
        self.ledger.rekeyed(body.get("keys", ()))
        self.ledger.changes(event.seq)
        if taken:
            self.decided = taken[-1].seq + 1

    def rebased(self) -> State:
        """This state with a core of its own, built from what the log says."""
        assert self.genesis is not None
        follower, records = self.follower, self.ledger.records.values()
        core = self.core = self.genesis.core(follower.estimator)
        if follower.bundle is not None:
            core.policy.use(follower.bundle)
        core.resume(self.decided)
        live = [record for record in records if not record.phase.over]
        for record in sorted(live, key=lambda r: (not r.phase.holds_gpus, r.granted, r.seq)):
            placement = list(zip(record.nodes, record.gpus, strict=True))
            core.adopt(
                record.submission.job(),
                self.now,
                order=record.seq,
                priority=record.priority,
                profile=record.profile,
                looked_at=record.looked_at,
                queued_before=record.queued_at is not None,
                placement=placement,
                profiling=record.purpose is Purpose.PROFILE,
                since=record.granted_at,
                partner=record.partner,
            )
        for node in sorted(self.ledger.closed):
            core.set_node(node, False)
        self.wake_at = self.now
        return self


def folded(
    connection: Connection,
    store: Store,
    bundles: Bundles,
    upto: int,
    *,
    keep: bool = False,
    beat: Callable[[], None] = lambda: None,
    snapshots: Snapshots | None = None,
) -> State:
    """The state at event `upto`: decided anew since the log was rebased last, followed before; or
    since the newest snapshot, if that is later.

    `beat` is called now and then: a long log takes its time. Raises Diverged.
    """
    rebased = store.last_seq_in(connection, Kind.REBASED)
    state = snapshots.newest(connection, store, upto) if snapshots is not None else None
    if state is not None and state.seen > rebased:
        with suppress(Diverged):  # then it was no good
            return _onwards(state, connection, store, upto, beat)
    state = State(bundles, keep=keep)
    if rebased and rebased <= upto:
        state = followed(connection, store, bundles, rebased, keep=keep, beat=beat)
    return _onwards(state, connection, store, upto, beat)


def _onwards(
    state: State, connection: Connection, store: Store, upto: int, beat: Callable[[], None]
) -> State:
    """Fold what follows, up to event `upto`."""
    for event in store.each_in(connection, state.seen, upto=upto):
        state.apply(event)
        if event.seq % BEAT == 0:
            beat()
    return state


def followed(
    connection: Connection,
    store: Store,
    bundles: Bundles,
    upto: int,
    *,
    keep: bool = False,
    beat: Callable[[], None] = lambda: None,
) -> State:
    """The state at event `upto` as logged, with a new core; what was pending is pending still."""
    state = Followed(bundles, keep=keep)
    for event in store.each_in(connection, upto=upto):
        taken = logged(connection, event.seq) if event.kind is Kind.DECIDED else []
        state.follow(event, taken)
        if event.seq % BEAT == 0:
            beat()
    return state.rebased()


def logged(connection: Connection, event: int) -> list[Decision]:
    """The decisions of a pass, as they were taken."""
    query = select(decisions.c.body).where(decisions.c.event == event).order_by(decisions.c.seq)
    return [decision_of(json.loads(body)) for body in connection.execute(query).scalars()]
