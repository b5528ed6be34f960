"""Going on with a log that this code would not have written.

After an upgrade the same events may be decided otherwise, and what was decided then has long taken
effect. So the log is followed, not decided again: the ledger and the histories are read off it, and
a new core is built in which what runs runs and what waits waits. An EPOCH event marks the place;
from there on the log replays to the same bytes again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection, select

from features.job import Job, Profile
from features.progress import Progress
from features.schema import State as EndState
from models.bundle import Bundle
from scheduler.assembly import assemble
from scheduler.backends.base import Purpose
from scheduler.backends.events import Event, Kind
from scheduler.core.cluster import Node
from scheduler.core.decisions import STARTS, Action, Decision, Reason
from scheduler.core.estimates import LiveEstimator
from scheduler.core.nodes import KnownJob
from scheduler.core.policy import Policy
from scheduler.service.log.fold import Bundles, Diverged, State
from scheduler.service.log.record import Phase, Record
from scheduler.service.log.snapshots import Recorded, StateCheckpoints
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions

BEAT = 50  # events


class KeptByOtherCode(Exception):
    """A long log of which code of another version kept a snapshot: the log is to be followed from
    there, to a new epoch, rather than decided again from its start."""


class _Waiting:
    """What the core's `waiting` would tell the estimator; the rest the ledger keeps."""

    def __init__(self, estimator: LiveEstimator):
        self._estimator = estimator

    def set_priority(self, job_id: str, priority: int) -> None: ...
    def hold(self, job_id: str, now: float, reason: Reason = Reason.HELD_BY_OWNER) -> None: ...
    def release(self, job_id: str, now: float) -> None: ...

    def change(self, job: Job, now: float) -> None:
        self._estimator.changed(job, now)


class _Nodes:
    """The ledger keeps them."""

    def set_open(self, node: int, is_open: bool) -> None: ...
    def add(self, node: int, has: Node) -> None: ...
    def change(self, node: int, to: Node | None) -> None: ...


class EpochFollower:
    """Listens to the log in the core's stead, and tells the estimator what the core would."""

    def __init__(self) -> None:
        self.estimator = LiveEstimator()
        self.bundle: Bundle | None = None
        self.refused: set[str] = set()
        self.jobs: set[str] = set()  # that have not ended
        self.waiting = _Waiting(self.estimator)
        self.nodes = _Nodes()

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None:
        if job.job_id not in self.refused:
            self.jobs.add(job.job_id)
            self.estimator.submitted(job, now)

    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None:
        self.estimator.outlived(job_id, now)
        if profile is not None:
            self.estimator.profiled(job_id, profile, now)

    def observed(self, job_id: str, profile: Profile, now: float) -> None:
        self.estimator.profiled(job_id, profile, now)

    def pair_speed_observed(self, job_id: str, speed: float, now: float) -> None:
        """Nothing that an estimator learns from."""

    def progressed(self, job_id: str, progress: Progress, now: float) -> None:
        self.estimator.progressed(job_id, progress, now)

    def ended(self, job_id: str, state: EndState, duration_s: float, now: float) -> None:
        self.jobs.discard(job_id)
        self.estimator.ended(job_id, state, duration_s, now)

    def withdrawn(self, job_id: str, now: float, reason: Reason = Reason.CANCELLED) -> None:
        self.jobs.discard(job_id)
        self.estimator.withdrawn(job_id, now)

    def use(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.estimator.use(bundle)

    def use_policy(self, policy: Policy, now: float) -> None:
        """The state keeps its settings."""

    def decided(self, taken: Sequence[Decision], records: Mapping[str, Record]) -> None:
        """What was decided; `records` are of before it."""
        joined: dict[str, float | None] = {}  # what was predicted of those that joined a queue
        for d in taken:
            before = records.get(d.job_id)
            if d.action is Action.ENQUEUE:
                joined[d.job_id] = d.estimate_s
            if before is not None and _predicted_again(d, joined.get(d.job_id, before.estimate_s)):
                self.estimator.changed(before.submission.job(), d.time)
            if d.action is Action.PROFILE:
                self.estimator.profiling(d.job_id, d.time)
            if d.action in STARTS:
                self.estimator.started(d.job_id, d.time)


def _predicted_again(d: Decision, before_s: float | None) -> bool:
    """Whether a job that was in its queue had been predicted otherwise."""
    if d.action not in (Action.WAIT, *STARTS):
        return False
    known = d.estimate_s is not None and before_s is not None
    return known and d.estimate_s != before_s


class Followed(State):
    """The state as the log tells it, whoever decided."""

    def __init__(self, bundles: Bundles, *, keep: bool = False):
        super().__init__(bundles, keep=keep)
        self.follower = EpochFollower()
        self.decided = 0  # decisions so far

    @classmethod
    def resumed(cls, header: Event, recorded: Recorded, bundles: Bundles) -> Followed:
        """As it was when a snapshot was kept; `header` is the log's first event."""
        state, values = cls(bundles), dict(recorded.values)
        state.note(header)
        follower = state.follower
        follower.estimator, follower.jobs = values.pop("estimator"), set(values.pop("jobs"))
        follower.bundle = follower.estimator.bundle
        state.decided = values.pop("decided")
        state.present.changes, state.present.coming = values.pop("changes"), values.pop("coming")
        state.present.nodes = values["ledger"].nodes
        for name in ("features", "bundles"):
            del values[name]
        vars(state).update(values)
        return state

    def follow(self, event: Event, taken: Sequence[Decision]) -> None:
        """Fold one event; `taken` are the decisions of a pass, as logged."""
        if event.kind is Kind.EPOCH:
            self.seen = event.seq
            return
        if event.kind is not Kind.DECIDED:
            self.note(event)
            return
        follower, body = self.follower, event.body
        self.now, self.seen = body["now"], event.seq
        follower.refused = {d.job_id for d in taken if d.action is Action.REFUSE}
        self._advance(follower, body["upto"])
        follower.decided(taken, self.ledger.records)
        self.ledger.decided(taken)
        self.ledger.rekeyed(body.get("keys", ()))
        self.ledger.changes(event.seq)
        if taken:
            self.decided = taken[-1].seq + 1

    def next_epoch(self) -> State:
        """This state with a core of its own, built from what the log says."""
        assert self.header is not None
        follower, records = self.follower, self.ledger.records.values()
        nodes = self.ledger.nodes.records
        live = [record for record in records if not record.phase.over]
        policy = self.present.policy_for(self.ledger.nodes.spec())
        core = self.core = assemble(self.present.spec, follower.estimator, policy=policy)
        core.nodes.begin_with(
            {node: record.has for node, record in nodes.items()},
            [node for node, record in nodes.items() if record.profiling],
            [record.submission.vc for record in live],
        )
        core.resume(self.decided, follower.bundle)
        for record in sorted(live, key=lambda r: (not r.phase.holds_gpus, r.granted, r.seq)):
            grant = record.grant
            known = KnownJob(
                job=record.submission.job(),
                order=record.seq,
                priority=record.priority,
                profile=record.profile,
                profiled=record.profiled,
                queued_before=record.queued_at is not None and record.phase is not Phase.SUBMITTED,
                placement=list(zip(grant.nodes, grant.gpus, strict=True)) if grant else None,
                profiling=grant is not None and grant.purpose is Purpose.PROFILE,
                since=grant.at if grant else None,
                partner=grant.partner if grant else None,
                held_s=record.held_s,
                held_since=record.hold.since if record.hold else None,
                depends_since=record.depends.since if record.depends else None,
                failed=record.depends.failed if record.depends else "",
            )
            core.nodes.adopt(known, self.now)
        for node, node_record in nodes.items():
            if not node_record.open:
                core.nodes.set_open(node, False)
            if node_record.leaves or node_record.becomes is not None:
                core.nodes.set_open(node, node_record.opens)
                core.nodes.change(node, node_record.becomes)
        self.wake_at = self.now
        return self


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
    state = kept = None
    if snapshots is not None:
        state = snapshots.newest(connection, store, upto)
        if state is not None and state.seen > epoch:
            with suppress(Diverged):  # then it was no good
                return _onwards(state, connection, store, upto, beat)
        else:
            kept = recorded_before(connection, store, snapshots, upto)
    if kept is not None and kept.seen > epoch:
        raise KeptByOtherCode(f"the state was kept by code {kept.code} at event {kept.seen}")
    state = State(bundles)
    if epoch and epoch <= upto:
        state = followed(connection, store, bundles, epoch, beat=beat, since=kept)
    return _onwards(state, connection, store, upto, beat)


def recorded_before(
    connection: Connection, store: Store, snapshots: StateCheckpoints, upto: int
) -> Recorded | None:
    """What a snapshot of whatever release tells, for a log that is long up to event `upto`."""
    kept = snapshots.recorded(connection, store, upto) if upto > snapshots.short else None
    return None if kept is not None and Mends.of(connection).cover(kept.seen) else kept


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
    since: Recorded | None = None,
) -> State:
    """The state at event `upto` as logged, with a new core; what was pending is pending still.

    `since`: what is known of the log up to an earlier event.
    """
    state, header = Followed(bundles, keep=keep), store.first_in(connection)
    mends = Mends.of(connection)
    if since is not None and header is not None:
        state = Followed.resumed(mends.mended(header), since, bundles)
    for event in store.each_in(connection, state.seen, upto=upto):
        taken = logged(connection, event.seq) if event.kind is Kind.DECIDED else []
        if late_s := mends.late_s(event.seq):
            taken = [replace(d, time=d.time - late_s) for d in taken]
        state.follow(mends.mended(event), taken)
        if event.seq % BEAT == 0:
            beat(event.seq)
    return state.next_epoch()


def logged(connection: Connection, event: int) -> list[Decision]:
    """The decisions of a pass, as they were taken."""
    return [Decision.from_body(json.loads(body)) for body in texts_of(connection, event)]


def texts_of(connection: Connection, event: int) -> list[str]:
    """The same as they were written down."""
    query = select(decisions.c.seq, decisions.c.body).where(decisions.c.event == event)
    rows = connection.execute(query.order_by(decisions.c.seq)).all()
    return bodies(connection, decisions, rows)
