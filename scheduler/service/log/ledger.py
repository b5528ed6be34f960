"""The ledger: a record of every job and node, made from the log's events and recorded decisions.

The ledger never decides. It gives the rows of the tables `jobs` and `nodes`, says which events
still change something, and is all that a restart needs of the past. A job changes its phase only as
the table `TRANSITIONS` allows; any other change is a defect, and raises an error with the job's
story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from features.progress import Progress
from features.states import State as EndState
from scheduler.backends.base import Purpose
from scheduler.backends.events import ABOUT_NODES, Event, Kind
from scheduler.core.decisions import DEPENDS, GIVES_GPUS, Action, Decision, Reason
from scheduler.core.transitions import IllegalTransition, Step
from scheduler.explain.life import Phase as Does
from scheduler.explain.life import opened_by
from scheduler.explain.reasons import sentence
from scheduler.service.log.nodes import NodeRecord, NodeTable
from scheduler.service.log.record import (
    ELIGIBLE,
    HOLDS,
    OVER,
    WAITS,
    Depends,
    End,
    Grant,
    Hold,
    HoldBy,
    Phase,
    Record,
    profile_of,
)

ABOUT_NO_JOB = (Kind.BUNDLE, Kind.SETTINGS_SET)
REPORTS = (
    Kind.STARTED,
    Kind.OBSERVED,
    Kind.PAIR_OBSERVED,
    Kind.PROGRESS,
    Kind.UNREAD,
    Kind.PROFILED,
    Kind.ENDED,
    Kind.LOST,
    Kind.NOT_STARTED,
)


class Ledger:
    """A record of each job by job id, and the nodes, as events and decisions made them.

    Args:
        keep: remember jobs that are over; otherwise `changes` drops them.

    Attributes:
        nodes: the nodes by number.
        holding: records of the jobs that hold GPUs, by job id.
    """

    def __init__(self, *, keep: bool = False):
        self.keep = keep
        self.records: dict[str, Record] = {}
        self.nodes = NodeTable()
        self.holding: dict[str, Record] = {}
        self._changed: dict[str, None] = {}

    # --- the log ----------------------------------------------------------------------------

    def matters(self, event: Event) -> bool:
        """Return whether an event changes jobs, nodes or settings. Return False for an event that
        comes too late or twice.
        """
        if event.kind in ABOUT_NODES:
            return self.nodes.matters(event)
        if event.kind in ABOUT_NO_JOB:
            return True
        record = self.records.get(event.job_id)
        if event.kind is Kind.SUBMITTED:
            return record is None
        if record is None or (record.phase, event.kind) not in TRANSITIONS:
            return False
        if event.kind is Kind.HELD:
            by = record.hold.by if record.hold is not None else None
            return by is None or (bool(event.body["operator"]) and by is HoldBy.OWNER)
        if event.kind is Kind.RELEASED:
            by = record.hold.by if record.hold is not None else None
            return by is HoldBy.OWNER or (bool(event.body["operator"]) and by is not None)
        if event.kind not in REPORTS:
            return True
        return event.body["attempt"] == record.attempt and (
            event.kind is not Kind.STARTED or record.waits_to_begin
        )

    def take(self, event: Event) -> None:
        """Apply an event for which `matters` is True. Raise IllegalTransition where the job's phase
        does not allow it.
        """
        if event.kind in ABOUT_NODES:
            self.nodes.take(event)
            if event.kind is Kind.GPUS_CLOSED:
                _tell_runs(self, event.body["node"])
        elif event.kind is Kind.SUBMITTED:  # its row is there already
            self.records[event.job_id] = Record.submitted(event)
        elif event.kind not in ABOUT_NO_JOB:
            record = self.records[event.job_id]
            move = TRANSITIONS.get((record.phase, event.kind))
            if move is None:
                raise IllegalTransition(event.kind, record.phase, record.story())
            move(self, record, event)
            record.steps.append(Step(event.at, event.kind, record.phase, event.seq))
            self._changed[event.job_id] = None

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Apply the decisions of a decision pass, in order. Raise IllegalTransition where a job's
        phase does not allow a decision.
        """
        for d in decisions:
            if d.action is Action.CHANGE_NODE:
                self.nodes.settled(d.nodes[0])
            record = self.records.get(d.job_id)
            if record is None or d.action in OF_NODES:
                continue  # about a node, be it for a job
            self._changed[d.job_id] = None
            record.reason = d.reason.value
            if d.priority is not None:
                record.key = d.priority
            if d.estimate_s is not None:
                record.estimate_s = d.estimate_s
            if d.reason in DEPENDS:
                failed = d.blocker if d.reason is Reason.DEPENDENCY_NEVER_MET else None
                since = record.depends.since if record.depends else d.time
                record.depends = Depends(since, failed or "")
            if (does := opened_by(d)) is not None:
                record.count_wait(d.time, waits=does is Does.WAITING)
            if d.action in STAYS:
                continue
            _depends_no_more(record, d.time)
            move = DECIDED.get((record.phase, d.action))
            if move is None:
                raise IllegalTransition(d.action, record.phase, record.story())
            move(self, record, d)
            record.steps.append(Step(d.time, d.action, record.phase, d.seq))

    def story(self, job_id: str) -> str:
        """Return everything that happened to a job, a line each."""
        record = self.records.get(job_id)
        return f"job {job_id} is not remembered" if record is None else record.story()

    def validate(self) -> None:
        """Check what must hold between decision passes, such as that a job has a grant just while
        it holds GPUs. Raise AssertionError where it does not.
        """
        for record in self.records.values():
            assert (record.grant is not None) == record.phase.holds_gpus, record.story()
            assert (record.end is not None) == record.phase.over, record.story()
            held = record.hold is not None and record.phase is not Phase.PROFILING
            assert held == (record.phase is Phase.HELD), record.story()
            assert (record.job_id in self.holding) == record.phase.holds_gpus, record.story()
            partner = self.holding.get((record.grant and record.grant.partner) or "")
            if partner is not None:
                assert partner.grant is not None, partner.story()
                assert partner.grant.partner == record.job_id, partner.story()

    # --- what events do ---------------------------------------------------------------------

    def _cancelled(self, record: Record, event: Event) -> None:
        record.cancel_asked = True
        self._over(record, Phase.CANCELLED, End(event.at, EndState.CANCELLED))

    def _cancel_asked(self, record: Record, event: Event) -> None:
        """Note that a user asked to cancel a job that holds GPUs. The job is over when its end is
        reported.
        """
        record.cancel_asked = True

    def _prioritised(self, record: Record, event: Event) -> None:
        record.priority = event.body["priority"]

    def _held(self, record: Record, event: Event) -> None:
        by = HoldBy.OPERATOR if event.body["operator"] else HoldBy.OWNER
        _depends_no_more(record, event.at)
        since = event.at if record.hold is None else record.hold.since
        record.hold = Hold(by, event.actor, since)
        if record.phase is not Phase.PROFILING:
            record.phase = Phase.HELD

    def _released(self, record: Record, event: Event) -> None:
        assert record.hold is not None
        if record.phase is Phase.HELD:
            record.held_s += max(0.0, event.at - record.hold.since)
            record.phase = Phase.SUBMITTED  # until the pass puts it in its queue
        record.hold = None

    def _asked_otherwise(self, record: Record, event: Event) -> None:
        was, record.changed = record.submission, True
        record.submission = was.changed(event.body)
        if record.submission.gpus != was.gpus:  # what was seen is not of so many GPUs
            record.profile, record.profiled = None, False
        if record.phase is not Phase.HELD:
            record.phase = Phase.SUBMITTED  # until the pass puts it in its queue

    def _begun(self, record: Record, event: Event) -> None:
        assert record.grant is not None
        record.grant.begun = True

    def _running(self, record: Record, event: Event) -> None:
        self._begun(record, event)
        record.phase, record.started_at = Phase.RUNNING, event.at

    def _observed(self, record: Record, event: Event) -> None:
        record.profile = profile_of(event.body)

    def _pair_observed(self, record: Record, event: Event) -> None:
        """Change nothing: a measured pair speed concerns the policy, not the ledger."""

    def _profiled(self, record: Record, event: Event) -> None:
        record.profile, record.profiled = profile_of(event.body), True
        if record.cancel_asked:
            self._over(record, Phase.CANCELLED, End(event.at, EndState.CANCELLED))
        else:
            self._give_up_gpus(record)
            record.phase = Phase.SUBMITTED  # until the pass puts it in its queue
            if record.hold is not None:
                record.phase, record.hold = Phase.HELD, replace(record.hold, since=event.at)

    def _ended(self, record: Record, event: Event) -> None:
        state, ran_s = EndState(event.body["state"]), event.body.get("ran_s")
        if record.started_at is None and ran_s is not None:
            record.started_at = event.at - ran_s  # it ended while being profiled
        phase = Phase.CANCELLED if state is EndState.CANCELLED else Phase.ENDED
        end = _end(event, state)
        if state is EndState.FAILED:
            end = replace(end, detail="; ".join(filter(None, (record.silent, end.detail))))
        self._over(record, phase, end)

    def _lost(self, record: Record, event: Event) -> None:
        self._over(record, Phase.LOST, _end(event, EndState.NODE_FAIL))

    def _not_started(self, record: Record, event: Event) -> None:
        if record.cancel_asked:
            self._over(record, Phase.CANCELLED, _end(event, EndState.CANCELLED))
        else:
            self._over(record, Phase.ENDED, _end(event, EndState.FAILED))

    # --- what decisions do ------------------------------------------------------------------

    def _queued(self, record: Record, d: Decision) -> None:
        record.phase = Phase.QUEUED
        if record.queued_at is None:
            record.queued_at = d.time

    def _queued_and_held(self, record: Record, d: Decision) -> None:
        """Record the time at which a held job first joined its queue, if that was not recorded
        yet.
        """
        if record.queued_at is None:
            record.queued_at = d.time

    def _refused(self, record: Record, d: Decision) -> None:
        self._over(record, Phase.REFUSED, End(d.time, detail=sentence(d)))

    def _granted(self, record: Record, d: Decision) -> None:
        profiling = d.action is Action.PROFILE
        purpose = Purpose.PROFILE if profiling else Purpose.RUN
        record.phase = Phase.PROFILING if profiling else Phase.STARTING
        record.attempt += 1
        record.unread = ""
        record.silent = ""
        record.granted = d.seq
        record.grant = Grant(
            purpose=purpose, nodes=d.nodes, gpus=d.gpus, at=d.time, partner=d.partner
        )
        self.holding[record.job_id] = record
        self._pair(d.partner, record.job_id)

    def _left(self, record: Record, d: Decision) -> None:
        """Do nothing: the job's end was recorded when its event was read."""

    # --- what both do -----------------------------------------------------------------------

    def _over(self, record: Record, phase: Phase, end: End) -> None:
        self._give_up_gpus(record)
        record.count_wait(end.at, waits=False)
        record.phase, record.end, record.hold = phase, end, None

    def _give_up_gpus(self, record: Record) -> None:
        if record.grant is not None:
            self._pair(record.grant.partner, None)
            record.grant = None
            del self.holding[record.job_id]

    def _pair(self, job_id: str | None, partner: str | None) -> None:
        """Set the partner of a job that holds GPUs; None: the job shares its GPUs no longer. Do
        nothing for a job without GPUs.
        """
        other = self.holding.get(job_id or "")
        if other is not None and other.grant is not None:
            other.grant.partner = partner
            self._changed[other.job_id] = None

    # --- tables -----------------------------------------------------------------------------

    def rekeyed(self, keys: Iterable[Sequence[Any]]) -> None:
        """Set the keys (order in the queue) of waiting jobs that a policy moved without a decision
        about them. `keys`: (job ID, key) of each.
        """
        for job_id, key in keys:
            self.records[job_id].key = key
            self._changed[job_id] = None

    def changes(self, seq: int) -> tuple[list[Record], list[tuple[int, NodeRecord | None]]]:
        """Return the records of jobs that have changed since the last call, and mark them as
        changed by event `seq`. Return also the nodes that have changed, as (number, record); None
        for one that was removed. Forget the jobs that are over, unless `keep` is set.
        """
        records = [self.records[job_id] for job_id in self._changed]
        for record in records:
            record.updated_seq = seq
        self._changed = {}
        if not self.keep:
            for record in records:
                if record.phase.over:
                    del self.records[record.job_id]
        return records, self.nodes.changes()


def _tell_runs(ledger: Ledger, node: int) -> None:
    """Note in the record of each job on a node which of the job's GPUs do not answer."""
    for record in ledger.holding.values():
        if record.grant is not None and node in record.grant.nodes:
            silent = _silent(ledger, record.grant)
            if silent != record.silent:
                record.silent = silent
                ledger._changed[record.job_id] = None


def _silent(ledger: Ledger, grant: Grant) -> str:
    """Return, as text, those GPUs of a grant that do not answer, each with its node and the
    reason. Return "" if all answer."""
    names = ledger.nodes.records
    return "; ".join(
        f"GPU {one.gpu} of node {names[node].name}, which it runs on, does not answer: {one.why}"
        for node, gpus in zip(grant.nodes, grant.gpus, strict=True)
        for one in names[node].closed_gpus
        if gpus >> one.gpu & 1
    )


def _depends_no_more(record: Record, at: float) -> None:
    if record.depends is not None:
        record.held_s += max(0.0, at - record.depends.since)
        record.depends = None


def _progressed(_: Ledger, record: Record, event: Event) -> None:
    record.progress = Progress(**event.body["progress"])
    record.estimate_s = record.progress.total_s
    record.unread = ""


def _unread(_: Ledger, record: Record, event: Event) -> None:
    record.unread = event.body.get("detail", "")


def _end(event: Event, state: EndState) -> End:
    return End(event.at, state, event.body.get("exit_code"), event.body.get("detail", ""))


# What may happen to a job, by where it stands. An event that is not here comes too late, or again.
TRANSITIONS: dict[tuple[Phase, Kind], Callable[[Ledger, Record, Event], None]] = {
    **{(phase, Kind.CANCEL_ASKED): Ledger._cancelled for phase in WAITS},
    **{(phase, Kind.CANCEL_ASKED): Ledger._cancel_asked for phase in HOLDS},
    **{(phase, Kind.PRIORITY_SET): Ledger._prioritised for phase in (*WAITS, *HOLDS)},
    **{(phase, Kind.HELD): Ledger._held for phase in (*WAITS, Phase.PROFILING)},
    **{(phase, Kind.RELEASED): Ledger._released for phase in (Phase.HELD, Phase.PROFILING)},
    **{(phase, Kind.CHANGED): Ledger._asked_otherwise for phase in WAITS},
    (Phase.PROFILING, Kind.STARTED): Ledger._begun,
    (Phase.STARTING, Kind.STARTED): Ledger._running,
    (Phase.STARTING, Kind.OBSERVED): Ledger._observed,
    (Phase.RUNNING, Kind.OBSERVED): Ledger._observed,
    (Phase.RUNNING, Kind.PAIR_OBSERVED): Ledger._pair_observed,
    **{(phase, Kind.PROGRESS): _progressed for phase in HOLDS},
    **{(phase, Kind.UNREAD): _unread for phase in HOLDS},
    (Phase.PROFILING, Kind.PROFILED): Ledger._profiled,
    **{(phase, Kind.ENDED): Ledger._ended for phase in HOLDS},
    **{(phase, Kind.LOST): Ledger._lost for phase in HOLDS},
    **{(phase, Kind.NOT_STARTED): Ledger._not_started for phase in HOLDS},
}

# Decisions that leave a job where it is: their reason is kept, and they are none of its story.
STAYS = (Action.WAIT, Action.RESERVE)
# About nodes, be it for the job that they name.
OF_NODES = (Action.RETURN,)

# What may be decided about a job, by where it stands when the pass has heard its events.
DECIDED: dict[tuple[Phase, Action], Callable[[Ledger, Record, Decision], None]] = {
    **{(phase, Action.ENQUEUE): Ledger._queued for phase in ELIGIBLE},
    **{(phase, Action.REFUSE): Ledger._refused for phase in ELIGIBLE},
    **{(phase, given): Ledger._granted for phase in ELIGIBLE for given in GIVES_GPUS},
    (Phase.HELD, Action.ENQUEUE): Ledger._queued_and_held,
    **{(phase, Action.ENQUEUE): Ledger._left for phase in OVER},
    **{(phase, Action.CANCEL): Ledger._left for phase in OVER},
}
