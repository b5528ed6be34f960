"""The state of the service, made by reading its log (docs/service-internals.md).

An event is held back until the decision pass (one round of decisions) that covers it. So what
arrived during a pass belongs to the next one, whether the log is followed (`State.follow`) or
decided again by an audit (`State.apply`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from features import pulse
from features.codec import Json
from features.job import Job, Profile
from features.progress import Progress
from features.states import State as EndState
from models.bundle import Bundle
from scheduler.assembly import policy_of
from scheduler.backends.base import Launch, Purpose
from scheduler.backends.events import INPUTS, Event, Kind, canonical
from scheduler.core.cluster import Node
from scheduler.core.core import Core
from scheduler.core.decisions import GIVES_GPUS, Decision, Reason
from scheduler.core.policy import Policy
from scheduler.service.log.header import LogHeader
from scheduler.service.log.ledger import REPORTS, Ledger
from scheduler.service.log.nodes import node_of, well_formed
from scheduler.service.log.present import Present
from scheduler.service.log.record import JobColumns, Record, first_row, indices, profile_of

Bundles = Callable[[Mapping[str, Any]], Bundle]  # the bundle that a BUNDLE event's body names


class WaitingListener(Protocol):
    """The changes of waiting jobs that a reader of the log passes on to a `Listener`."""

    def set_priority(self, job_id: str, priority: int) -> None: ...
    def hold(self, job_id: str, now: float, reason: Reason = ...) -> None: ...
    def release(self, job_id: str, now: float) -> None: ...
    def change(self, job: Job, now: float) -> None: ...


class NodesListener(Protocol):
    """The changes of nodes that a reader of the log passes on to a `Listener`."""

    def set_open(self, node: int, is_open: bool) -> None: ...
    def close_alone(self, node: int, gpus: int) -> None: ...
    def add(self, node: int, has: Node) -> None: ...
    def change(self, node: int, to: Node | None) -> None: ...


class Listener(Protocol):
    """Receives the events of the log: the decision core, or an object that only follows recorded
    decisions.
    """

    @property
    def jobs(self) -> Container[str]: ...
    @property
    def waiting(self) -> WaitingListener: ...
    @property
    def nodes(self) -> NodesListener: ...

    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None: ...
    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None: ...
    def observed(self, job_id: str, profile: Profile, now: float) -> None: ...
    def pair_speed_observed(self, job_id: str, speed: float, now: float) -> None: ...
    def progressed(self, job_id: str, progress: Progress, now: float) -> None: ...
    def ended(self, job_id: str, state: EndState, duration_s: float, now: float) -> None: ...
    def withdrawn(self, job_id: str, now: float, reason: Reason = ...) -> None: ...
    def use_policy(self, policy: Policy, now: float) -> None: ...
    def use(self, bundle: Bundle) -> None: ...


_ASKED = (Kind.CANCEL_ASKED, Kind.PRIORITY_SET, Kind.HELD, Kind.RELEASED, Kind.CHANGED)


class Diverged(Exception):
    """Raised when a decision pass that is decided again comes out otherwise than in the log.

    Attributes:
        event: the pass's DECIDED event.
        decisions: the decisions as they come out now.
    """

    def __init__(self, event: Event, decisions: Sequence[Decision]):
        super().__init__(f"the pass of event {event.seq} is decided differently now")
        self.event = event
        self.decisions = list(decisions)


def encoded(decisions: Iterable[Decision]) -> list[str]:
    """Return each decision as canonical JSON, the form in which it is stored and hashed."""
    return [canonical(d.body()) for d in pulse.beating(decisions)]


def digest_of(texts: Sequence[str]) -> str:
    """Return the SHA-256 (hex) of decisions, given as `encoded` returns them."""
    return hashlib.sha256(f"[{','.join(texts)}]".encode()).hexdigest()


class State:
    """The decision core and the ledger (a record of every job), as the events read so far made
    them.

    Args:
        bundles: returns the bundle of models that a BUNDLE event names.
        keep: remember jobs that are over, too.

    Attributes:
        header: what the core is built from; None before the first event.
        now: time of the last decision pass, seconds since the epoch.
        seen: `seq` of the last event read, whether a pass covers it yet or not.
        covered: `seq` of the last event that a pass covers.
        wake_at: when the core asked to be woken, seconds since the epoch; None: it did not ask.
        keys: [job ID, new key] of each waiting job that the last pass moved in its queue without a
            decision about it.
        last: decisions of the last pass.
        bundle: digest of the models that decide now.
        present: nodes and settings; none before the first event.
    """

    def __init__(self, bundles: Bundles, *, keep: bool = False):
        self.ledger = Ledger(keep=keep)
        self.header: LogHeader | None = None
        self.now = 0.0
        self.seen = 0
        self.covered = 0
        self.wake_at: float | None = None
        self.keys: list[list[Any]] = []
        self.last: list[Decision] = []
        self.bundle = ""
        self.present: Present
        self.core: Core
        self.bundles = bundles
        self._pending: deque[Event] = deque()

    # --- fold -------------------------------------------------------------------------------

    def apply(self, event: Event) -> list[Decision]:
        """Apply one event; a decision pass is decided again. Return the pass's decisions, or [] for
        any other event. Raise Diverged where the pass comes out otherwise than in the log, and
        ValueError for an event that was read already.
        """
        if event.seq <= self.seen:
            raise ValueError(f"event {event.seq} comes after event {self.seen}")
        if event.kind is not Kind.DECIDED:
            self.note(event)
            return []
        decisions = self.take(event.body["upto"], event.body["now"])
        self.seen = event.seq
        if self.passed(encoded(decisions)) != event.body:
            raise Diverged(event, decisions)
        self.ledger.changes(event.seq)
        return decisions

    def follow(self, event: Event, taken: Sequence[Decision]) -> None:
        """Apply one event of the log; a decision pass is not decided again.

        Args:
            taken: the recorded decisions, if the event is a decision pass.
        """
        if event.kind is not Kind.DECIDED:
            self.note(event)
            return
        core, body = self.core, event.body
        core.following.begin(taken)
        self.now, self.seen = body["now"], event.seq
        self._advance(core, body["upto"])
        self._wakes()
        core.following.end(self.now)
        self.ledger.decided(taken)
        self.keys = list(body.get("keys", ()))
        core.following.rekey(dict(self.keys))
        for _ in core.waiting.rekeyed():  # these are in the log
            pass
        self.ledger.rekeyed(self.keys)
        self.ledger.changes(event.seq)
        self._asks_to_be_woken()

    def _wakes(self) -> None:
        """Wake the core if the time at which it asked to be woken has come."""
        if self.wake_at is not None and self.now >= self.wake_at:
            self.wake_at = None
            self.core.wake(self.now)

    def _asks_to_be_woken(self) -> None:
        wake = self.core.next_wake(self.now)
        if wake is not None and (self.wake_at is None or wake < self.wake_at):
            self.wake_at = wake  # one asked for earlier still comes, as in simulation

    def passed(self, texts: Sequence[str]) -> Json:
        """Return the body of the DECIDED event for the decision pass just taken; `texts` are its
        decisions as `encoded` returns them.
        """
        body = {
            "upto": self.covered,
            "now": self.now,
            "count": len(texts),
            "digest": digest_of(texts),
        }
        return {**body, "keys": self.keys} if self.keys else body

    def note(self, event: Event) -> None:
        """Hold an event back until a decision pass covers it. A HEADER takes effect at once: it
        makes a new core. Other events that are no input of the core change nothing.
        """
        self.seen = event.seq
        if event.kind is Kind.HEADER:
            self.header = LogHeader.from_body(event.body)
            self.present = Present.begun(self.header)
            self.ledger.nodes = self.present.nodes
            self.core = self.header.core()
            self.now = self.header.start
        elif event.kind in INPUTS:
            self._pending.append(event)

    @property
    def waiting(self) -> int:
        """Return how many events no decision pass covers yet."""
        return len(self._pending)

    def upto(self, most: int) -> int:
        """Return up to which event (`seq`) the next decision pass may go, so that it covers at most
        `most` events that no pass covers yet.
        """
        return self._pending[most - 1].seq if len(self._pending) > most else self.seen

    def due(self, now: float) -> bool:
        """Return whether a decision pass is due at `now`: events wait for one, or the core asked to
        be woken by then.
        """
        return bool(self._pending) or (self.wake_at is not None and now >= self.wake_at)

    def take(self, upto: int, now: float) -> list[Decision]:
        """Take a decision pass over all events up to `upto`, at the time `now`, but no earlier than
        the last pass. Return its decisions.
        """
        core = self.core
        self.now = max(now, self.now)
        self._advance(core, upto)
        self._wakes()
        decisions = core.decide(self.now)
        self.last = decisions
        self.ledger.decided(decisions)
        records = self.ledger.records
        self.keys = [
            [q.job.job_id, q.key]
            for q in core.waiting.rekeyed()
            if records[q.job.job_id].key != q.key
        ]
        self.ledger.rekeyed(self.keys)
        self._asks_to_be_woken()
        return decisions

    # --- events into the core ---------------------------------------------------------------

    def _advance(self, core: Listener, upto: int) -> None:
        """Pass the held-back events up to `upto` to the core and the ledger, at the time of this
        decision pass. Skip events that are malformed, too late or cannot be carried out.
        """
        while self._pending and self._pending[0].seq <= upto:
            event = self._pending.popleft()
            unknown = event.kind in _ASKED and event.job_id not in core.jobs  # just refused
            if not well_formed(event):
                continue
            if self.ledger.matters(event) and not unknown and self.present.admits(event):
                self._cover(core, event)
            pulse.beat()
        self.covered = upto

    def _cover(self, core: Listener, event: Event) -> None:
        handle = HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, core, event)
        self.ledger.take(event)
        if event.kind is Kind.SUBMITTED:
            record = self.ledger.records[event.job_id]
            core.submitted(record.submission.job(), self.now, priority=record.priority)

    def apply_to(self, core: Core, event: Event, now: float) -> None:
        """Apply to `core`, a copy of this state's core, a change of nodes or settings that is not
        in the log.
        """
        if event.kind is Kind.SETTINGS_SET:
            spec = self.present.spec.with_settings(event.body["settings"])
            core.use_policy(policy_of(replace(spec, cluster=self.ledger.nodes.spec())), now)
        else:
            HANDLERS[event.kind](self, core, event)

    # --- what is to be done -----------------------------------------------------------------

    def reported(self) -> dict[tuple[str, int], Kind]:
        """Return the kind of the latest report about each attempt, by (job id, attempt), among the
        events that no decision pass covers yet.
        """
        reported = (event for event in self._pending if event.kind in REPORTS)
        return {(event.job_id, event.body["attempt"]): event.kind for event in reported}

    def launches(self) -> list[Record]:
        """Return the records of the attempts that were decided on but not yet reported begun, in
        the order of their decisions.
        """
        reported = self.reported()
        waiting = [
            r
            for r in self.ledger.holding.values()
            if r.waits_to_begin and (r.job_id, r.attempt) not in reported
        ]
        return sorted(waiting, key=lambda r: r.granted)

    def launch(self, record: Record) -> Launch:
        """Return the launch to be sent to the backend for an attempt. It is the same every time it
        is sent.
        """
        asked, grant, stage = record.submission, record.grant, self.core.profiling
        assert grant is not None
        policy = self.core.policy
        profile_s = stage.limit_s if stage is not None else policy.capabilities.watch_s
        profiling = grant.purpose is Purpose.PROFILE
        watched = policy.capabilities.watches_runs and self.core.jobs[record.job_id].profile is None
        return Launch(
            job_id=record.job_id,
            attempt=record.attempt,
            purpose=grant.purpose,
            command=asked.command,
            nodes=grant.nodes,
            gpus=tuple(map(indices, grant.gpus)),
            environment=asked.environment,
            workdir=asked.workdir,
            user=asked.user,
            memory_mib=asked.memory_mib,
            time_limit_s=asked.time_limit_s,
            limit_s=profile_s if profiling else None,
            watch_s=profile_s if watched and not profiling else None,
            partner=grant.partner,
            pair_watch_s=policy.capabilities.pace_s if grant.partner is not None else None,
            progress=asked.progress,
            amount={} if asked.work is None else {f"{asked.work.unit}s": asked.work.amount},
        )

    def unseen_rows(self) -> list[JobColumns]:
        """Return the rows of the table `jobs` for submitted jobs that no decision pass covers
        yet.
        """
        return [first_row(e) for e in self._pending if e.kind is Kind.SUBMITTED]

    def stops(self) -> list[Record]:
        """Return the records of jobs whose end was asked for and that still hold GPUs."""
        return [r for r in self.ledger.holding.values() if r.cancel_asked]


def _node_set(state: State, core: Listener, event: Event) -> None:
    core.nodes.set_open(event.body["node"], event.body["open"])


def _gpus_closed(state: State, core: Listener, event: Event) -> None:
    core.nodes.close_alone(event.body["node"], sum(1 << int(gpu) for gpu in event.body["closed"]))


def _node_added(state: State, core: Listener, event: Event) -> None:
    _fit_types(state, core, event)
    core.nodes.add(state.ledger.nodes.next, node_of(event.body))


def _node_changed(state: State, core: Listener, event: Event) -> None:
    _fit_types(state, core, event)
    core.nodes.change(event.body["node"], node_of(event.body))


def _node_removed(state: State, core: Listener, event: Event) -> None:
    core.nodes.change(event.body["node"], None)


def _fit_types(state: State, core: Listener, event: Event) -> None:
    """Give the core a newly built policy where a change of nodes brings types of GPU that the
    present policy was not built for.
    """
    cluster = state.ledger.nodes.spec(node_of(event.body))
    if not state.core.policy.fits(cluster):
        core.use_policy(state.present.policy_for(cluster), state.now)


def _settings_set(state: State, core: Listener, event: Event) -> None:
    state.present.take(event)
    core.use_policy(state.present.policy_for(state.ledger.nodes.spec()), state.now)


def _bundle(state: State, core: Listener, event: Event) -> None:
    core.use(state.bundles(event.body))
    state.bundle = event.body["digest"]


def _priority_set(state: State, core: Listener, event: Event) -> None:
    core.waiting.set_priority(event.job_id, event.body["priority"])


def _held(state: State, core: Listener, event: Event) -> None:
    operator = event.body["operator"]
    reason = Reason.HELD_BY_OPERATOR if operator else Reason.HELD_BY_OWNER
    core.waiting.hold(event.job_id, state.now, reason)


def _released(state: State, core: Listener, event: Event) -> None:
    core.waiting.release(event.job_id, state.now)


def _changed(state: State, core: Listener, event: Event) -> None:
    asked = state.ledger.records[event.job_id].submission.changed(event.body)
    core.waiting.change(asked.job(), state.now)


def _cancel_asked(state: State, core: Listener, event: Event) -> None:
    if state.ledger.records[event.job_id].phase.waits:
        core.withdrawn(event.job_id, state.now)


def _observed(state: State, core: Listener, event: Event) -> None:
    profile = profile_of(event.body)
    if profile is not None:
        core.observed(event.job_id, profile, state.now)


def _pair_observed(state: State, core: Listener, event: Event) -> None:
    grant = state.ledger.records[event.job_id].grant
    if grant is not None and grant.partner is not None:  # else that one has just ended
        core.pair_speed_observed(event.job_id, event.body["speed"], state.now)


def _progressed(state: State, core: Listener, event: Event) -> None:
    core.progressed(event.job_id, Progress(**event.body["progress"]), state.now)


def _profiled(state: State, core: Listener, event: Event) -> None:
    if state.ledger.records[event.job_id].cancel_asked:
        core.withdrawn(event.job_id, state.now)
    else:
        core.profile_ended(event.job_id, profile_of(event.body), state.now)


def _ended(state: State, core: Listener, event: Event) -> None:
    ran_s = event.body.get("ran_s")
    if ran_s is None:
        core.withdrawn(event.job_id, state.now, Reason.CANCELLED)
    else:
        core.ended(event.job_id, EndState(event.body["state"]), ran_s, state.now)


def _lost(state: State, core: Listener, event: Event) -> None:
    core.withdrawn(event.job_id, state.now, Reason.LOST)


def _not_started(state: State, core: Listener, event: Event) -> None:
    core.withdrawn(event.job_id, state.now, Reason.NOT_STARTED)


# What an event does to the decision core, or to who follows in its stead, before the ledger.
HANDLERS: dict[Kind, Callable[[State, Listener, Event], None]] = {
    Kind.NODE_SET: _node_set,
    Kind.GPUS_CLOSED: _gpus_closed,
    Kind.NODE_ADDED: _node_added,
    Kind.NODE_CHANGED: _node_changed,
    Kind.NODE_REMOVED: _node_removed,
    Kind.SETTINGS_SET: _settings_set,
    Kind.BUNDLE: _bundle,
    Kind.PRIORITY_SET: _priority_set,
    Kind.HELD: _held,
    Kind.RELEASED: _released,
    Kind.CHANGED: _changed,
    Kind.CANCEL_ASKED: _cancel_asked,
    Kind.OBSERVED: _observed,
    Kind.PAIR_OBSERVED: _pair_observed,
    Kind.PROGRESS: _progressed,
    Kind.PROFILED: _profiled,
    Kind.ENDED: _ended,
    Kind.LOST: _lost,
    Kind.NOT_STARTED: _not_started,
}


def grants(decisions: Sequence[Decision]) -> list[str]:
    """Return the ids of the jobs to which the decisions of a decision pass gave GPUs."""
    return [d.job_id for d in decisions if d.action in GIVES_GPUS]
