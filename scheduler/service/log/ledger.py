"""What became of every job, read off the log alone: events, and the decisions as they were taken.

The ledger follows the log and never decides. It gives the rows of the tables `jobs` and `nodes`,
says which reports still matter, and is all that is needed to go on from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from features.job import Profile
from features.schema import State as EndState
from scheduler.backends.base import Purpose
from scheduler.backends.events import Event, Kind, canonical
from scheduler.backends.submission import Submission
from scheduler.core.decisions import Action, Decision


class Phase(StrEnum):
    """Where a job stands."""

    SUBMITTED = "submitted"  # not in a queue yet: not looked at, or waits for its profile
    PROFILING = "profiling"  # on the profiling partition
    QUEUED = "queued"
    STARTING = "starting"  # decided; not yet seen to run
    RUNNING = "running"
    ENDED = "ended"  # by itself, well or not: see its state
    CANCELLED = "cancelled"
    REFUSED = "refused"  # can never run here
    LOST = "lost"  # was begun, and nobody knows how it ended; not run again

    @property
    def waits(self) -> bool:
        """Waits for GPUs."""
        return self in (Phase.SUBMITTED, Phase.QUEUED)

    @property
    def holds_gpus(self) -> bool:
        return self in (Phase.PROFILING, Phase.STARTING, Phase.RUNNING)

    @property
    def over(self) -> bool:
        """Nothing will happen to it any more."""
        return not (self.waits or self.holds_gpus)


@dataclass(slots=True)
class Record:
    """One job. Times are seconds since the epoch on the backend's clock.

    Attributes:
        seq: of the event that submitted it.
        reason: of its latest decision.
        priority: asked for; higher goes first.
        key: the policy's order within its virtual cluster, smaller first.
        attempt: of the latest launch, from 1; 0 before.
        purpose: why it holds GPUs, while it does.
        nodes, gpus: node indices and the GPU bit mask on each, while it holds them.
        granted, granted_at: decision that gave them, and when.
        partner: who shares them.
        begun: the attempt was reported started.
        profile: of its latest profiling run or observation.
        looked_at: it has been in the profiling partition.
        updated_seq: the last event that changed its row.
    """

    submission: Submission
    seq: int
    phase: Phase = Phase.SUBMITTED
    reason: str = ""
    priority: int = 0
    key: float | None = None
    estimate_s: float | None = None
    attempt: int = 0
    purpose: Purpose | None = None
    nodes: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    partner: str | None = None
    begun: bool = False
    profile: Profile | None = None
    looked_at: bool = False
    granted: int = -1
    granted_at: float | None = None
    queued_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    state: EndState | None = None
    exit_code: int | None = None
    detail: str = ""
    cancel_asked: bool = False
    updated_seq: int = 0

    @property
    def job_id(self) -> str:
        return self.submission.job_id

    @property
    def gpu_ids(self) -> tuple[tuple[int, ...], ...]:
        """GPU indices per node of `nodes`."""
        return tuple(indices(mask) for mask in self.gpus)

    def row(self) -> dict[str, Any]:
        """As a row of the table `jobs`."""
        asked = self.submission
        return {
            "job_id": asked.job_id,
            "submitted_seq": self.seq,
            "owner": asked.owner,
            "vc": asked.vc,
            "name": asked.name,
            "gpus": asked.gpus,
            "spec": canonical(asked.body()),
            "submitted_at": asked.submitted_at,
            **self.standing(),
        }

    def standing(self) -> dict[str, Any]:
        """What of its row changes in its life."""
        return {
            "phase": self.phase.value,
            "reason": self.reason,
            "priority": self.priority,
            "key": self.key,
            "estimate_s": self.estimate_s,
            "attempt": self.attempt,
            "nodes": canonical(list(zip(self.nodes, self.gpu_ids, strict=True))),
            "partner": self.partner,
            "queued_at": self.queued_at,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "state": None if self.state is None else self.state.value,
            "exit_code": self.exit_code,
            "detail": self.detail,
            "cancel_asked": self.cancel_asked,
            "updated_seq": self.updated_seq,
        }


def first_row(submitted: Event) -> dict[str, Any]:
    """The row of `jobs` that is written with a SUBMITTED event (which has its `seq`)."""
    return _recorded(submitted).row()


def _recorded(submitted: Event) -> Record:
    submission = Submission.from_body(submitted.body)
    return Record(
        submission, submitted.seq, priority=submission.priority, updated_seq=submitted.seq
    )


def indices(mask: int) -> tuple[int, ...]:
    """The GPU indices of a bit mask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def profile_of(body: Mapping[str, Any]) -> Profile | None:
    """The profile in the body of a report's event."""
    found = body.get("profile")
    return None if found is None else Profile(**found)


class Ledger:
    """Records by job id, and which nodes are open.

    Args:
        keep: remember jobs that are over; otherwise `forget` drops them.
    """

    def __init__(self, *, keep: bool = False):
        self.keep = keep
        self.records: dict[str, Record] = {}
        self.closed: set[int] = set()  # drained nodes
        self.cancelling: dict[str, Record] = {}  # asked to be cancelled, and not over
        self._changed: dict[str, None] = {}
        self._turned: set[int] = set()  # nodes drained or opened since the last `changes`

    # --- the log ----------------------------------------------------------------------------

    def matters(self, event: Event) -> bool:
        """False for an event that comes too late, or again: nothing is to be done about it."""
        if event.kind in (Kind.NODE_SET, Kind.BUNDLE):
            return True
        record = self.records.get(event.job_id)
        if event.kind is Kind.SUBMITTED:
            return record is None
        if record is None or record.phase.over:
            return False
        if event.kind in (Kind.CANCEL_ASKED, Kind.PRIORITY_SET):
            return True
        if not record.phase.holds_gpus or event.body["attempt"] != record.attempt:
            return False
        if event.kind is Kind.STARTED:
            return not record.begun
        if event.kind is Kind.PROFILED:
            return record.purpose is Purpose.PROFILE
        return event.kind is not Kind.OBSERVED or record.purpose is Purpose.RUN

    def take(self, event: Event) -> None:
        """An event that matters."""
        body = event.body
        if event.kind is Kind.NODE_SET:
            (self.closed.discard if body["open"] else self.closed.add)(body["node"])
            self._turned.add(body["node"])
            return
        if event.kind is Kind.BUNDLE:
            return
        if event.kind is Kind.SUBMITTED:
            self.records[event.job_id] = _recorded(event)
            return  # its row is there already
        record = self.records[event.job_id]
        self._changed[event.job_id] = None
        if event.kind is Kind.CANCEL_ASKED:
            record.cancel_asked = True
            self.cancelling[event.job_id] = record
            if record.phase.waits:
                self._over(record, Phase.CANCELLED, event.at, EndState.CANCELLED)
        elif event.kind is Kind.PRIORITY_SET:
            record.priority = body["priority"]
        elif event.kind is Kind.STARTED:
            record.begun = True
            if record.purpose is Purpose.RUN:
                record.phase, record.started_at = Phase.RUNNING, event.at
        elif event.kind is Kind.OBSERVED:
            record.profile = profile_of(body)
        elif event.kind is Kind.PROFILED:
            self._profiled(record, event)
        else:
            self._ended(record, event)

    def _profiled(self, record: Record, event: Event) -> None:
        record.profile, record.looked_at = profile_of(event.body), True
        if record.cancel_asked:
            self._over(record, Phase.CANCELLED, event.at, EndState.CANCELLED)
            return
        self._give_up_gpus(record)
        record.phase = Phase.SUBMITTED  # until the pass puts it in its queue

    def _ended(self, record: Record, event: Event) -> None:
        body = event.body
        record.detail, record.exit_code = body.get("detail", ""), body.get("exit_code")
        if event.kind is Kind.LOST:
            self._over(record, Phase.LOST, event.at, EndState.NODE_FAIL)
        elif event.kind is Kind.NOT_STARTED:
            cancelled = record.cancel_asked
            state = EndState.CANCELLED if cancelled else EndState.FAILED
            self._over(record, Phase.CANCELLED if cancelled else Phase.ENDED, event.at, state)
        else:
            state = EndState(body["state"])
            if record.started_at is None and body.get("ran_s") is not None:
                record.started_at = event.at - body["ran_s"]  # it ended while being profiled
            phase = Phase.CANCELLED if state is EndState.CANCELLED else Phase.ENDED
            self._over(record, phase, event.at, state)

    def _over(self, record: Record, phase: Phase, at: float, state: EndState) -> None:
        self._give_up_gpus(record)
        record.phase, record.ended_at, record.state = phase, at, state
        self.cancelling.pop(record.job_id, None)

    def _give_up_gpus(self, record: Record) -> None:
        partner = self.records.get(record.partner or "")
        if partner is not None:
            partner.partner = None
            self._changed[partner.job_id] = None
        record.nodes = record.gpus = ()
        record.partner = record.purpose = record.granted_at = None

    # --- decisions --------------------------------------------------------------------------

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Decisions of a pass, in order."""
        for d in decisions:
            record = self.records.get(d.job_id)
            if record is None:
                continue  # about a node
            self._changed[d.job_id] = None
            record.reason = d.reason.value
            if d.priority is not None:
                record.key = d.priority
            if d.estimate_s is not None:
                record.estimate_s = d.estimate_s
            if record.phase.over:
                continue  # it left in the same pass that it came in
            if d.action in (Action.START, Action.PACK, Action.PROFILE):
                self._granted(record, d)
            elif d.action is Action.ENQUEUE:
                record.phase = Phase.QUEUED
                if record.queued_at is None:
                    record.queued_at = d.time
            elif d.action is Action.REFUSE:
                record.detail = d.sentence()
                record.phase, record.ended_at = Phase.REFUSED, d.time

    def _granted(self, record: Record, d: Decision) -> None:
        profiling = d.action is Action.PROFILE
        record.attempt += 1
        record.begun = False
        record.purpose = Purpose.PROFILE if profiling else Purpose.RUN
        record.phase = Phase.PROFILING if profiling else Phase.STARTING
        record.nodes, record.gpus, record.partner = d.nodes, d.gpus, d.partner
        record.granted, record.granted_at = d.seq, d.time
        partner = self.records.get(d.partner or "")
        if partner is not None:
            partner.partner = record.job_id
            self._changed[partner.job_id] = None

    # --- tables -----------------------------------------------------------------------------

    def rekeyed(self, keys: Iterable[Sequence[Any]]) -> None:
        """[job, key] of waiting jobs that a policy moved without a decision about them."""
        for job_id, key in keys:
            self.records[job_id].key = key
            self._changed[job_id] = None

    def changes(self, seq: int) -> tuple[list[Record], list[tuple[int, bool]]]:
        """Records and nodes (number, open) changed since the last call, by event `seq`."""
        records = [self.records[job_id] for job_id in self._changed]
        for record in records:
            record.updated_seq = seq
        nodes = [(node, node not in self.closed) for node in sorted(self._turned)]
        self._changed, self._turned = {}, set()
        if not self.keep:
            for record in records:
                if record.phase.over:
                    del self.records[record.job_id]
        return records, nodes
