"""The decider: the process that reads the log, asks the backend for reports, decides, and carries
out.

Nothing takes effect before it is in the log: decisions are committed first, and jobs are launched
and stopped after. Both are idempotent by `(job_id, attempt)`. So a decider that takes over a log
repeats whatever its predecessor may not have done.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Connection, Select, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from features import pulse
from features.codec import Json
from models.bundle import BundleError
from scheduler.backends.base import Backend, Happened, Outside, Report
from scheduler.backends.busy import BackendBusy
from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Decision
from scheduler.service.log.bundles import BundleStore, Signature
from scheduler.service.log.fold import State, encoded, grants
from scheduler.service.log.followed import followed
from scheduler.service.log.record import Record, first_row
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store.decided import write_decisions
from scheduler.service.log.store.disk import is_full, wait_for_room
from scheduler.service.log.store.leases import Lease, LeaseLost
from scheduler.service.log.store.payloads import drop, payload_of
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, nodes, settings
from scheduler.service.log.watch_models import not_left

LEASE = "decider"
NEVER = 2**31 - 1
SET_BACK_S = 1.0  # of the time of day: smaller steps are corrections
SET_FORWARD_S = 3600.0  # likewise; a machine that slept is as far behind
# What came is decided in passes over no more events than these, whatever waited meanwhile: each
# pass ends, and is written, before others could have the lease or this process be killed.
SLICE = 1_000
LONG_S = 3.0  # a fold or a pass that takes so long is logged, and again after as long


class Decider:
    """Decides while it holds the lease, and stands by otherwise. Its clock is the store's.

    Args:
        store: a prepared database whose log has its HEADER.
        backend: opens the backend that carries out decisions; called before the lease is taken.
        bundle_store: copies of the bundles of models that were in use.
        holder: name of this process in the lease.
        champion: folder of the champion bundle (the models to use); a changed bundle is taken up.
        lease_s, bundle_poll_s: seconds; see `Settings`.
        snapshots: where the state is kept now and then; None: nowhere.
    """

    def __init__(
        self,
        store: Store,
        backend: Callable[[], Backend],
        bundle_store: BundleStore,
        *,
        holder: str,
        champion: Path | None = None,
        lease_s: float = 10.0,
        bundle_poll_s: float = 5.0,
        snapshots: StateCheckpoints | None = None,
    ):
        self.store = store
        self._open_backend = backend
        self.bundle_store = bundle_store
        self.holder = holder
        self.champion = champion
        self.watches = True  # a champion that was worse, and so left, is not taken again
        self.lease_s = lease_s
        self.bundle_poll_s = bundle_poll_s
        self.snapshots = snapshots
        self.clock = store.clock
        self.log = structlog.get_logger("decider").bind(holder=holder)
        self.lease: Lease | None = None
        self.backend: Backend
        self.state: State
        self._champion_seen: Signature | None = None
        self._champion_due = 0.0
        self._champion_refused: Json = {}
        self._last_pass: Event | None = None  # in the log, of this process
        self._kept_at = 0  # seq the state was kept at last
        self._tidied_at = -1  # the same when the collector was let in last
        self.full_since: Any = RawValue("d")  # when the disk was found full; 0: it is not
        self._set_back = False  # the time of day, and the log has it
        self._clock_seen = self.clock.now(), self.clock.monotonic()
        self._busy = ""  # why the backend could not be opened, as logged last
        self._alive: Callable[[], object] = lambda: None  # tells who minds this process
        self._took_over = self._began = 0.0  # monotonic: the lease; and what is done now
        self._logged = 0.0  # likewise: when that it takes long was logged last

    # --- life -------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool], poll_s: float) -> None:
        """Decide, or stand by, until `stopping` returns True. The jobs run on after that.

        `stopping` is called often, which tells the supervisor that this process does not hang.
        """
        gc.set_threshold(*gc.get_threshold()[:2], NEVER)  # see `_tidy`
        self._alive = stopping
        while not stopping():
            try:
                if self.lease is None and not self._takes_over():
                    self.clock.sleep(min(self.lease_s / 4, 1.0))
                else:
                    self.turn(poll_s)
                    self._tidy()
            except LeaseLost as lost:
                self.log.warning("lease_lost", why=str(lost))
                self._close()
            except (DBAPIError, OSError) as error:
                if not is_full(error):
                    raise
                self._rest_while_full(stopping)
        self.let_go()

    def _rest_while_full(self, stopping: Callable[[], object]) -> None:
        """Close everything, wait until the disk has room, and start again from the log. What was
        not written never happened.
        """
        self.full_since.value = self.clock.now()
        self.log.error("disk_full", database=str(self.store.engine.url.database))
        with suppress(OSError):
            self._close()
        self.lease = None
        wait_for_room(self.store, self.clock, stopping)
        self.full_since.value = 0.0
        self.log.info("disk_has_room")

    def _tidy(self) -> None:
        """Collect garbage once after each time that the state was read or written to a snapshot.
        With 10,000 jobs that takes a tenth of a second, too long in the middle of a decision pass.
        """
        if self._tidied_at != self._kept_at:
            self._tidied_at = self._kept_at
            gc.collect()
            gc.freeze()

    def _close(self) -> None:
        if self.lease is not None:
            self.backend.close()
            self.lease = None

    def _takes_over(self) -> bool:
        try:
            return self.take_over()
        except BackendBusy as busy:  # of one that hangs, until it is killed: another look will tell
            if str(busy) != self._busy:
                self.log.warning("backend_busy", why=str(busy))
            self._busy = str(busy)
            return False

    def take_over(self) -> bool:
        """Take the lease, read the log and finish what the last holder may have left undone. Return
        False where another process holds the lease. Raise BackendBusy, and whatever an unusable
        backend raises.
        """
        if not self.store.may_take(LEASE, self.holder):
            return False
        try:
            # before the lease: who cannot carry out what is decided must not keep others from it
            backend = self._open_backend()
        except BackendBusy:
            raise
        except Exception as error:
            self.log.error("backend_not_opened", why=f"{type(error).__name__}: {error}")
            raise
        try:
            lease = self.store.take(LEASE, self.holder, self.lease_s, ready=False)
        except Exception:  # a full disk, say: this process goes on, and is to open it again
            backend.close()
            raise
        if lease is None:
            backend.close()
            return False
        self.lease, self.backend = lease, backend
        body = {"holder": self.holder, "term": lease.term}
        self.store.append([Event(Kind.LEASE, self.clock.now(), body=body)], lease=lease)
        self._took_over = self.clock.monotonic()
        self.state = self._fold()
        self._mend_tables()
        self.recover()
        return True

    def _mend_tables(self) -> None:
        """Rewrite the tables of nodes and settings from the state, where an older version wrote
        them incompletely.
        """
        records = self.state.ledger.nodes.records
        kept = {
            nodes: [record.row() for _, record in sorted(records.items())],
            settings: [change.row() for change in self.state.present.changes],
        }

        def tables(connection: Connection, _: list[Event]) -> None:
            for table, rows in kept.items():
                connection.execute(delete(table))
                if rows:
                    connection.execute(insert(table), rows)

        with self.store.reading() as connection:
            there = {table: connection.execute(_all_of(table)).mappings().all() for table in kept}
        if any([dict(row) for row in there[table]] != rows for table, rows in kept.items()):
            self.store.append([], tables, lease=self.lease)

    def _fold(self) -> State:
        """Return the state that follows from the log, with the decisions that the log holds."""
        with self.store.reading() as connection:
            return self._folded(connection)

    def _folded(self, connection: Connection) -> State:
        upto = self.store.last_seq_in(connection)
        self._last_pass, self._kept_at = None, upto
        reached = [0]

        def goes_on() -> None:
            self._goes_on(lambda: f"reads the log: {reached[0]:,} of {upto:,} events")

        def beat(seq: int) -> None:
            reached[0] = seq
            goes_on()

        self._begins()
        with pulse.heard_by(goes_on):
            return followed(
                connection,
                self.store,
                self.bundle_store.find,
                upto,
                beat=beat,
                snapshots=self.snapshots,
            )

    def _begins(self) -> None:
        """Note that work begins now that may take long."""
        self._began = self._logged = self.clock.monotonic()

    def _goes_on(self, doing: Callable[[], str]) -> None:
        """Report that long work goes on: renew the lease, and now and then write a description of
        the work (`doing`) into the service's log lines and the lease.
        """
        assert self.lease is not None
        now = self.clock.monotonic()
        if now - self._logged >= LONG_S:
            self._logged, self.lease = now, replace(self.lease, doing=doing())
            seconds = round(now - self._began, 1)
            self.log.info("goes_on", doing=self.lease.doing, seconds=seconds)
        self._renew()

    def _is_ready(self) -> None:
        """Mark the lease as ready: the log has been read to its end, and the first decision pass
        taken if it was due. Write a log line the first time.
        """
        assert self.lease is not None
        waiting = self.state.waiting
        doing = f"takes what came, {SLICE:,} events at a time: {waiting:,} wait" if waiting else ""
        ready, self.lease = self.lease.ready, replace(self.lease, ready=True, doing=doing)
        if not ready:
            self.lease = self.store.renew(self.lease)
            self.log.info(
                "decides",
                term=self.lease.term,
                events=self.state.seen,
                jobs=len(self.state.ledger.records),
                seconds=round(self.clock.monotonic() - self._took_over, 3),
            )

    def recover(self) -> None:
        """Repeat decisions that may not have been carried out, and report attempts that no longer
        exist as lost.

        Everything in the log counts, whether a decision pass covers it or not. After a power cut
        the backend may have forgotten starts and ends that it reported before.
        """
        begun, reported = self.backend.begun(), self.state.reported()
        gone = []
        for r in self.state.ledger.holding.values():
            key = r.job_id, r.attempt
            there = key in begun or (r.waits_to_begin and key not in reported)
            if not there and reported.get(key) not in OVER:
                detail = "not to be found"
                gone.append(Report(*key, Happened.LOST, self.backend.now(), detail=detail))
        self._append([_event_of(report) for report in gone])
        for record in self.state.launches():
            self._launch(record)
        for record in self.state.stops():
            self.backend.stop(record.job_id, record.attempt)

    def let_go(self) -> None:
        """Write the state to a snapshot and give the lease up, so that a stand-by process can take
        over at once.
        """
        if self.lease is not None:
            lease = self.lease
            with suppress(LeaseLost):
                self._keep()
            self._close()
            self.store.let_go(lease)
            self.log.info("lets_go")

    # --- one turn ---------------------------------------------------------------------------

    def turn(self, timeout_s: float) -> list[Decision]:
        """Wait for reports for at most `timeout_s` seconds. If anything happened, decide and carry
        the decisions out. Return the decisions.
        """
        self._renew()
        self._watch_clock()
        self._listen(0.0 if self.state.waiting else timeout_s)
        self._hear()
        self._watch_champion()
        for event in self.store.each(self.state.seen):
            if event.kind is Kind.DECIDED:
                raise LeaseLost("somebody else decides")
            self.state.note(event)
            if event.seq % SLICE == 0:
                self._renew()  # tens of thousands may have come
        now = self.backend.now()
        decisions = self._decide(now) if self.state.due(now) else []
        self._is_ready()
        return decisions

    def _renew(self) -> None:
        assert self.lease is not None
        self._alive()
        self.lease = self.store.keep(self.lease)

    def _watch_clock(self) -> None:
        """Log once that the time of day was set back, and each time that it was set far
        forward."""
        (was, then), seen = self._clock_seen, (self.clock.now(), self.clock.monotonic())
        self._clock_seen, leapt_s = seen, seen[0] - was - (seen[1] - then)
        if leapt_s > SET_FORWARD_S:
            self.log.warning("clock_went_forward", by_s=round(leapt_s, 3))
        ahead_s = self.clock.ahead_s()
        if self._set_back or ahead_s < SET_BACK_S:
            self._set_back = self._set_back and ahead_s >= SET_BACK_S / 2
            return
        self._set_back, body = True, {"by_s": round(ahead_s, 3)}
        self._append([Event(Kind.CLOCK_WENT_BACK, self.backend.now(), body=body)])
        self.log.warning(Kind.CLOCK_WENT_BACK.value, **body)

    def _listen(self, timeout_s: float) -> None:
        """Append what the backend reports about attempts to the log, then acknowledge the reports.
        Wait for reports for at most `timeout_s` seconds.
        """
        reports = self.backend.reports(timeout_s)
        if not reports:
            return
        # who died before it could tell the backend left them in the log, covered by no pass
        over = {key for key, kind in self.state.reported().items() if kind in OVER}
        events = [_event_of(r) for r in reports if (r.job_id, r.attempt) not in over]
        news = [event for event in events if self.state.ledger.matters(event)]
        # even of no news the backend hears only under the lease: whoever lost it may know less
        for event in self.store.append(news, lease=self.lease):
            self.log.info(str(event.kind), job=event.job_id, seq=event.seq, **_shown(event))
        self.backend.acknowledge(reports)

    def _hear(self) -> None:
        """Append changes that come from outside the service, such as GPUs that stopped answering,
        to the log. Then acknowledge them to the backend.
        """
        if not isinstance(self.backend, Outside):
            return
        news = self.backend.news()
        if not news:
            return
        came = [event.job_id for event in news if event.kind is Kind.SUBMITTED]
        with self.store.reading() as connection:
            known = set(
                connection.execute(select(jobs.c.job_id).where(jobs.c.job_id.in_(came))).scalars()
            )
            closed = self.store.last_in(connection, Kind.GPUS_CLOSED)
        pending = closed is not None and closed.seq > self.state.covered
        fresh = [event for event in news if self._is_new(event, known, pending)]

        def tables(connection: Connection, appended: list[Event]) -> None:
            rows = [first_row(event) for event in appended if event.kind is Kind.SUBMITTED]
            if rows:
                connection.execute(insert(jobs), rows)

        if fresh:
            for event in self.store.append(fresh, tables, lease=self.lease):
                self.log.info(
                    str(event.kind),
                    job=event.job_id,
                    seq=event.seq,
                    actor=event.actor,
                    **_shown(event),
                )
        self.backend.heard(news)

    def _is_new(self, event: Event, known: Collection[str], pending: bool) -> bool:
        """Return whether an event from the backend says anything that the log does not have yet.
        `known`: ids of known jobs; `pending`: whether the log has an event of closed GPUs that no
        decision pass covers yet.
        """
        if event.kind is Kind.SUBMITTED:
            return event.job_id not in known
        if event.kind is Kind.NODE_SET:
            node = self.state.ledger.nodes.records.get(event.body["node"])
            if node is None or node.open is bool(event.body["open"]):
                return False
            # what ends with one reason does not open a node that is drained for another
            return bool(event.body.get("ends", node.reason) == node.reason)
        if event.kind is Kind.GPUS_CLOSED:
            node = self.state.ledger.nodes.records.get(event.body["node"])
            if node is None:
                return False
            closed = {str(one.gpu): one.why for one in node.closed_gpus}
            return pending or closed != event.body["closed"]
        return self.state.ledger.matters(event)

    def _append(self, events: Sequence[Event]) -> None:
        if events:
            assert self.lease is not None
            self.store.append(events, lease=self.lease)

    def _decide(self, now: float) -> list[Decision]:
        state = self.state
        stopped = {record.job_id for record in state.stops()}
        began, used = time.perf_counter(), time.thread_time()
        self._begins()
        with pulse.heard_by(lambda: self._goes_on(self._passing)):
            decisions = state.take(state.upto(SLICE), now)
            texts = encoded(decisions)
        passed = Event(Kind.DECIDED, state.now, cause=state.covered, body=state.passed(texts))

        def tables(connection: Connection, appended: list[Event]) -> None:
            write_pass(connection, state, decisions, texts, seq=appended[0].seq)

        with pulse.heard_by(self._alive):  # the transaction keeps others off the lease
            [event] = self.store.append([passed], tables, lease=self.lease)
        # what others appended since the log was read comes before this pass, and is in the next
        for between in self.store.read(state.seen):
            if between.seq < event.seq:
                state.note(between)
        state.seen = event.seq
        if isinstance(self.backend, Outside):
            self.backend.decided(decisions)
        for job_id in grants(decisions):
            self._launch(state.ledger.records[job_id])
        for record in state.stops():
            if record.job_id not in stopped:
                self.backend.stop(record.job_id, record.attempt)
        self.log.debug(
            "decided",
            seq=event.seq,
            cause=state.covered,
            decisions=len(decisions),
            ms=round((time.perf_counter() - began) * 1000, 1),
            cpu_ms=round((time.thread_time() - used) * 1000, 1),
        )
        self._last_pass = event
        if self.snapshots and event.seq - self._kept_at >= self.snapshots.every:
            self._keep()
        return decisions

    def _passing(self) -> str:
        """Return in words how many jobs and events the running decision pass is about."""
        queued, events = sum(map(len, self.state.core.queues.values())), self.state.waiting
        return f"decides: {queued:,} jobs in queues, {events:,} events to be taken"

    def _keep(self) -> None:
        """Write the state to a snapshot file, if a decision pass was taken since the last one. A
        failure is only logged.
        """
        passed = self._last_pass
        if self.snapshots is None or passed is None or passed.seq <= self._kept_at:
            return
        began, self._kept_at = time.perf_counter(), passed.seq
        self._begins()
        try:
            with pulse.heard_by(lambda: self._goes_on(lambda: "keeps its state in a file")):
                path = self.snapshots.save(self.state, passed)
        except (
            OSError,
            ValueError,
        ) as error:  # a full disk: a start folds more, that is all
            self.log.warning("snapshot_failed", why=str(error))
            return
        ms = round((time.perf_counter() - began) * 1000, 1)
        self.log.info("snapshot", seq=passed.seq, path=str(path), ms=ms)

    def _launch(self, record: Record) -> None:
        launch = self.state.launch(record)
        if record.submission.sealed:
            with self.store.reading() as connection:
                payload = payload_of(connection, record.job_id)
            launch = replace(launch, command=payload.command, environment=payload.environment)
        self.log.info(
            "launch",
            job=record.job_id,
            attempt=record.attempt,
            purpose=str(launch.purpose),
            nodes=launch.nodes,
            cause=record.updated_seq,
        )
        self.backend.launch(launch)

    # --- models -----------------------------------------------------------------------------

    def _watch_champion(self) -> None:
        """If the folder of the champion (the models to use) has changed, log that its bundle comes
        into use, or that it was refused, and why.
        """
        now = self.clock.monotonic()
        if self.champion is None or now < self._champion_due:
            return
        self._champion_due = now + self.bundle_poll_s
        found = None
        try:
            found = self.bundle_store.signature(self.champion)
            if found is None or found == self._champion_seen:
                return
            bundle = self.bundle_store.take(self.champion)
            if self.watches:
                not_left(self.store, bundle.digest)
        except (BundleError, OSError) as error:
            body = {"path": str(self.champion), "why": str(error)}
            if body != self._champion_refused:  # one that grows would fill the log
                self._append([Event(Kind.BUNDLE_REFUSED, self.backend.now(), body=body)])
                self.log.warning("bundle_refused", **body)
            self._champion_refused = body
            if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
                found = None  # it was not read: that may pass without its folder changing
        else:
            if bundle.digest != self.state.bundle:
                body = self.bundle_store.body(self.champion, bundle.digest)
                self._append([Event(Kind.BUNDLE, self.backend.now(), body=body)])
                self.log.info("bundle", **body)
            self._champion_refused = {}
        self._champion_seen = found


def write_pass(
    connection: Connection,
    state: State,
    decisions: Sequence[Decision],
    texts: Sequence[str],
    seq: int,
) -> None:
    """Write the decisions of a decision pass, and every row that the pass changed. Delete the
    payloads (commands and environments) of jobs that are over. `texts`: the decisions as `encoded`
    returns them; `seq`: number of the pass's DECIDED event.
    """
    write_decisions(connection, decisions, texts, seq)
    records, changed_nodes = state.ledger.changes(seq)
    drop(connection, (r.job_id for r in records if r.phase.over and r.submission.sealed))
    if records:
        this = update(jobs).where(jobs.c.job_id == bindparam("changed"))
        connection.execute(this, [{"changed": r.job_id, **r.standing()} for r in records])
        if asked := [{"changed": r.job_id, **r.row()} for r in records if r.changed]:
            connection.execute(this, asked)  # what was asked for is another, too
    for node, node_record in changed_nodes:
        connection.execute(delete(nodes).where(nodes.c.node == node))
        if node_record is not None:
            connection.execute(insert(nodes).values(node_record.row()))
    last = select(func.max(settings.c.seq))
    written = (connection.execute(last).scalar() or 0) if state.present.changes else 0
    for change in state.present.changes:
        if change.seq > written:
            connection.execute(insert(settings).values(change.row()))


def _all_of(table: Table) -> Select[Any]:
    return select(table).order_by(*table.primary_key)


_KINDS = {
    Happened.STARTED: Kind.STARTED,
    Happened.OBSERVED: Kind.OBSERVED,
    Happened.PAIR_OBSERVED: Kind.PAIR_OBSERVED,
    Happened.PROGRESS: Kind.PROGRESS,
    Happened.UNREAD: Kind.UNREAD,
    Happened.PROFILED: Kind.PROFILED,
    Happened.ENDED: Kind.ENDED,
    Happened.LOST: Kind.LOST,
    Happened.NOT_STARTED: Kind.NOT_STARTED,
}
OVER = frozenset(kind for what, kind in _KINDS.items() if what.final)


def _shown(event: Event) -> Json:
    """Return the fields of an event that are shown in its log line. For the end of a job, its last
    output is left out.
    """
    names = ["attempt", "state", "exit_code", "node", "open", "reason", "closed"]
    if event.kind is not Kind.ENDED:
        names.append("detail")
    return {name: event.body[name] for name in names if name in event.body}


def _event_of(report: Report) -> Event:
    """Return a backend's report as an event for the log. Fields that are None or "" are left
    out.
    """
    body = {k: v for k, v in asdict(report).items() if v not in (None, "")}
    for name in ("job_id", "what", "at"):
        del body[name]
    return Event(_KINDS[report.what], report.at, report.job_id, body=body)
