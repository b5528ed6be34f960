"""The service's state: a fold over the log (docs/service.md).

Events are held back until the decision pass that covers them, so what arrived while a pass was
being taken is in the next one, on replay as it was live. A pass is a function of the events it
covers and of its time; whoever folds the same log decides the same.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from features.job import Job, Profile
from features.schema import State as EndState
from models.bundle import Bundle
from scheduler.backends.base import Launch, Purpose
from scheduler.backends.events import INPUTS, Event, Kind, canonical
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason, Score
from scheduler.service.log.header import Genesis
from scheduler.service.log.ledger import Ledger, Phase, Record, first_row, profile_of

__all__ = ["Ledger", "Phase", "Record", "State", "first_row"]  # and what stands below

Bundles = Callable[[Mapping[str, Any]], Bundle]  # the bundle that a BUNDLE event's body names


class Listener(Protocol):
    """What the log is told to: the decision core, or whoever follows in its stead."""

    def knows(self, job_id: str) -> bool: ...
    def submitted(self, job: Job, now: float, *, priority: int = 0) -> None: ...
    def profile_ended(self, job_id: str, profile: Profile | None, now: float) -> None: ...
    def observed(self, job_id: str, profile: Profile, now: float) -> None: ...
    def ended(self, job_id: str, state: EndState, duration_s: float, now: float) -> None: ...
    def withdrawn(self, job_id: str, now: float, reason: Reason = ...) -> None: ...
    def set_priority(self, job_id: str, priority: int) -> None: ...
    def set_node(self, node: int, is_open: bool) -> None: ...
    def use(self, bundle: Bundle) -> None: ...


_ASKED = (Kind.CANCEL_ASKED, Kind.PRIORITY_SET)
_WITHDRAWN = {
    Kind.ENDED: Reason.CANCELLED,
    Kind.LOST: Reason.LOST,
    Kind.NOT_STARTED: Reason.NOT_STARTED,
}


class Diverged(Exception):
    """A pass, taken anew, is not the one in the log.

    Attributes:
        event: the DECIDED event.
        decisions: what is decided now.
    """

    def __init__(self, event: Event, decisions: Sequence[Decision]):
        super().__init__(f"the pass of event {event.seq} is decided differently now")
        self.event = event
        self.decisions = list(decisions)


def body_of(decision: Decision) -> dict[str, Any]:
    """A decision as plain values; fields that say nothing are left out."""
    found = {name: getattr(decision, name) for name in Decision.__slots__}
    if decision.score is not None:
        # not `asdict`, which copies every value and is most of the cost of a pass's record
        found["score"] = {name: getattr(decision.score, name) for name in Score.__slots__}
    return {name: value for name, value in found.items() if value is not None and value != ()}


def decision_of(body: Mapping[str, Any]) -> Decision:
    """The inverse of `body_of`."""
    found: dict[str, Any] = {
        name: _frozen(value) if isinstance(value, list) else value for name, value in body.items()
    }
    found["action"], found["reason"] = Action(body["action"]), Reason(body["reason"])
    if "score" in body:
        found["score"] = Score(**{name: _frozen(value) for name, value in body["score"].items()})
    return Decision(**found)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def encoded(decisions: Iterable[Decision]) -> list[str]:
    """Decisions as canonical JSON, one by one: what is kept of them, and digested."""
    return [canonical(body_of(d)) for d in decisions]


def digest_of(texts: Sequence[str]) -> str:
    """SHA-256 (hex) of decisions, as `encoded` gives them: of their list as canonical JSON."""
    return hashlib.sha256(f"[{','.join(texts)}]".encode()).hexdigest()


class State:
    """The decision core, driven by the log, and the ledger beside it.

    Args:
        bundles: finds the bundle of a BUNDLE event.
        keep: remember jobs that are over.

    Attributes:
        genesis: what the core is built from; None before the first event.
        now: time of the last pass, seconds since the epoch.
        seen: `seq` of the last event folded, whether covered by a pass yet or not.
        covered: `seq` up to which passes have been taken.
        wake_at: when the core asked to be woken.
        keys: [job, key] of waiting jobs that the last pass moved without a decision about them.
        last: decisions of the last pass.
        version, bundle: code and bundle digest that decide now.
    """

    def __init__(self, bundles: Bundles, *, keep: bool = False):
        self.ledger = Ledger(keep=keep)
        self.genesis: Genesis | None = None
        self.now = 0.0
        self.seen = 0
        self.covered = 0
        self.wake_at: float | None = None
        self.keys: list[list[Any]] = []
        self.last: list[Decision] = []
        self.version = ""
        self.bundle = ""
        self.core: Core
        self.bundles = bundles
        self._pending: deque[Event] = deque()

    # --- fold -------------------------------------------------------------------------------

    def apply(self, event: Event) -> list[Decision]:
        """Fold one event; the decisions, when it is a pass. Diverged when they are others now."""
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

    def passed(self, texts: Sequence[str]) -> dict[str, Any]:
        """The body of the DECIDED event of the pass just taken; `texts` are its decisions."""
        body = {
            "upto": self.covered,
            "now": self.now,
            "count": len(texts),
            "digest": digest_of(texts),
        }
        return {**body, "keys": self.keys} if self.keys else body

    def note(self, event: Event) -> None:
        """Hold an event back until a pass covers it."""
        self.seen = event.seq
        if event.kind is Kind.GENESIS:
            self.genesis = Genesis.from_body(event.body)
            self.core = self.genesis.core()
            self.now, self.version = self.genesis.start, self.genesis.version
        elif event.kind is Kind.REBASED:
            raise ValueError(f"event {event.seq} begins a new core: see `service.rebase`")
        elif event.kind is Kind.LEASE:
            self.version = event.body.get("version", self.version)
        elif event.kind in INPUTS:
            self._pending.append(event)

    @property
    def pending(self) -> bool:
        """Whether something happened that no pass covers yet."""
        return bool(self._pending)

    def due(self, now: float) -> bool:
        """Whether a pass is to be taken at `now`."""
        return self.pending or (self.wake_at is not None and now >= self.wake_at)

    def take(self, upto: int, now: float) -> list[Decision]:
        """A decision pass at `now` over all events up to `upto`."""
        core = self.core
        self.now = max(now, self.now)
        self._advance(core, upto)
        if self.wake_at is not None and self.now >= self.wake_at:
            core.wake(self.now)
        decisions = core.decide(self.now)
        self.last = decisions
        self.ledger.decided(decisions)
        records = self.ledger.records
        self.keys = [
            [q.job.job_id, q.key] for q in core.rekeyed() if records[q.job.job_id].key != q.key
        ]
        self.ledger.rekeyed(self.keys)
        self.wake_at = core.next_wake(self.now)
        return decisions

    # --- events into the core ---------------------------------------------------------------

    def _advance(self, core: Listener, upto: int) -> None:
        """Give the events up to `upto` to the core, as of this pass, and to the ledger."""
        while self._pending and self._pending[0].seq <= upto:
            event = self._pending.popleft()
            unknown = event.kind in _ASKED and not core.knows(event.job_id)  # just refused
            if self.ledger.matters(event) and not unknown:
                self._cover(core, event)
        self.covered = upto

    def _cover(self, core: Listener, event: Event) -> None:
        now, kind, job_id, body = self.now, event.kind, event.job_id, event.body
        record = self.ledger.records.get(job_id)
        if kind is Kind.NODE_SET:
            core.set_node(body["node"], body["open"])
        elif kind is Kind.BUNDLE:
            core.use(self.bundles(body))
            self.bundle = body["digest"]
        elif kind is Kind.PRIORITY_SET:
            core.set_priority(job_id, body["priority"])
        elif kind is Kind.CANCEL_ASKED:
            assert record is not None
            if record.phase.waits:
                core.withdrawn(job_id, now)
        elif kind is Kind.OBSERVED:
            profile = profile_of(body)
            if profile is not None:
                core.observed(job_id, profile, now)
        elif kind is Kind.PROFILED:
            assert record is not None
            if record.cancel_asked:
                core.withdrawn(job_id, now)
            else:
                core.profile_ended(job_id, profile_of(body), now)
        elif kind is Kind.ENDED and body.get("ran_s") is not None:
            core.ended(job_id, EndState(body["state"]), body["ran_s"], now)
        elif kind in _WITHDRAWN:
            core.withdrawn(job_id, now, _WITHDRAWN[kind])
        self.ledger.take(event)
        if kind is Kind.SUBMITTED:
            taken = self.ledger.records[job_id]
            core.submitted(taken.submission.job(), now, priority=taken.priority)

    # --- what is to be done -----------------------------------------------------------------

    def launches(self) -> list[Record]:
        """Records whose attempt was decided and not yet reported begun, in order of decision."""
        waiting = [r for r in self.ledger.records.values() if r.phase.holds_gpus and not r.begun]
        return sorted(waiting, key=lambda r: r.granted)

    def launch(self, record: Record) -> Launch:
        """What the backend is told of an attempt; the same however often it is told."""
        assert record.purpose is not None
        asked, stage = record.submission, self.core.profiling
        look_s = stage.limit_s if stage is not None else None
        profiling = record.purpose is Purpose.PROFILE
        watched = self.core.policy.watches_runs and record.profile is None
        return Launch(
            job_id=record.job_id,
            attempt=record.attempt,
            purpose=record.purpose,
            command=asked.command,
            nodes=record.nodes,
            gpus=record.gpu_ids,
            environment=asked.environment,
            workdir=asked.workdir,
            user=asked.user,
            memory_mib=asked.memory_mib,
            time_limit_s=asked.time_limit_s,
            limit_s=look_s if profiling else None,
            watch_s=look_s if watched and not profiling else None,
            partner=record.partner,
        )

    def unseen_rows(self) -> list[dict[str, Any]]:
        """The rows of `jobs` that were submitted and no pass has covered yet."""
        return [first_row(e) for e in self._pending if e.kind is Kind.SUBMITTED]

    def stops(self) -> list[Record]:
        """Records whose job is to be stopped, and was not yet reported over."""
        return [r for r in self.ledger.cancelling.values() if r.phase.holds_gpus]


def grants(decisions: Sequence[Decision]) -> list[str]:
    """Jobs that a pass gave GPUs to."""
    kinds = (Action.START, Action.PACK, Action.PROFILE)
    return [d.job_id for d in decisions if d.action in kinds]
