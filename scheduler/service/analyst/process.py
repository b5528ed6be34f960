"""The process that foresees: folds the log, forecasts what was submitted, answers questions.

It decides nothing. What it appends (FORECAST) no core reads; if it is gone, forecasts are
"unavailable" and everything else goes on.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import Connection, and_, delete, select, update

from scheduler.backends.events import Event, Kind, canonical
from scheduler.explain.whatif.changes import Change, NotPossible
from scheduler.explain.whatif.counterfactuals import WhatIf, told
from scheduler.explain.whatif.forecasts import NO_TIME, Forecast, Futures, end_of
from scheduler.explain.whatif.memory import Memory, Past
from scheduler.service.analyst import why as reasons
from scheduler.service.analyst.calibration import Correction
from scheduler.service.analyst.records import body_of, ended, forecast_of, write
from scheduler.service.analyst.threaded_store import Prompt
from scheduler.service.log.bundles import Library
from scheduler.service.log.epochs import followed
from scheduler.service.log.fold import State
from scheduler.service.log.ledger import Phase
from scheduler.service.log.store.store import Lease, LeaseLost, Store
from scheduler.service.log.store.tables import forecasts, questions

if TYPE_CHECKING:
    from scheduler.service.settings import Settings

LEASE = "analyst"
MOST = 256  # waiting jobs that are forecast in one go
ROWS = 64  # forecasts written in one transaction: decisions and submissions wait for it
TOO_MANY = f"more than {MOST} jobs wait; those first in line are foreseen"
UNSTARTED = (Phase.SUBMITTED, Phase.QUEUED, Phase.PROFILING)
IN_VAIN_S = 30.0  # where futures take too long, they are not tried again before
PAUSE_S = 0.2  # between two turns
DUTY, SHORT_S = 0.3, 0.1  # share of a core that forecasts may take when they take long
FORGET_S = 600.0  # questions are kept so long, answered or not
PATIENCE_S = 30.0  # whoever asked longer ago has left
AT_ONCE = 16  # questions answered before the log is looked at again


class Analyst:
    """Foresees while it holds the lease; stands by otherwise.

    Args:
        store: a prepared database whose log has its GENESIS.
        library: bundles the log names.
        holder: names this process in the lease.
        budget_s: processor seconds for one forecast or question.
        samples: futures per forecast at most.
        refresh_s: forecasts of waiting jobs are made anew this often, seconds.
        wall: time of day, seconds since the epoch.

    Attributes:
        memory: what is remembered beside the core.
        correction: learned from how forecasts turned out.
    """

    def __init__(
        self,
        store: Store,
        library: Library,
        *,
        holder: str,
        lease_s: float = 10.0,
        budget_s: float = 2.0,
        samples: int = 64,
        refresh_s: float = 15.0,
        wall: Callable[[], float] = time.time,
    ):
        self.store = store
        self.library = library
        self.holder = holder
        self.lease_s = lease_s
        self.budget_s = budget_s
        self.samples = samples
        self.refresh_s = refresh_s
        self.wall = wall
        self.log = structlog.get_logger("analyst").bind(holder=holder)
        self.lease: Lease | None = None
        self.state: State
        self.memory: Memory
        self.correction: Correction
        self._new: dict[str, int] = {}  # submitted and not foreseen yet: seq of the event
        self._unforeseen: set[str] = set()  # whose latest forecast says `TOO_MANY`
        self._stale = False  # something was decided since the last refresh
        self._refresh_at = 0.0
        self._in_vain_until = 0.0  # monotonic: there is no time for futures before
        self._rested_at = 0.0  # monotonic: no forecast is begun before
        self._futures: tuple[int, float, Futures] | None = None

    # --- life -------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool], poll_s: float) -> None:
        """Foresee, or stand by, until told to stop."""
        while not stopping():
            try:
                if self.lease is None and not self.take_over():
                    time.sleep(min(self.lease_s / 4, 1.0))
                else:
                    self.turn()
                    time.sleep(poll_s)  # even if there is more: what came in between is one batch
            except LeaseLost as lost:
                self.log.warning("lease_lost", why=str(lost))
                self.lease = None
        if self.lease is not None:
            self.store.let_go(self.lease)
            self.lease = None

    def take_over(self) -> bool:
        """Take the lease and fold the log. False: another holds it."""
        lease = self.store.take(LEASE, self.holder, self.wall(), self.lease_s)
        if lease is None:
            return False
        self.lease = lease
        self._begin()
        self.log.info("foresees", events=self.state.seen, learned=self.correction.learned)
        return True

    def _begin(self) -> None:
        """Fold the log from its start, or from where it was rebased."""
        self.correction = Correction()
        self._new.clear()
        self._unforeseen.clear()
        self._futures = None
        with self.store.reading() as connection:
            rebased = self.store.last_seq_in(connection, Kind.REBASED)
            if rebased:
                self.state = followed(connection, self.store, self.library.find, rebased)
                self._remember(ended(connection))
                self._new |= dict.fromkeys(self.state.core.jobs(), 0)
            else:
                self.state = State(self.library.find)
            self._fold(self.store.each_in(connection, rebased))
            for (job_id,) in connection.execute(select(forecasts.c.job_id).distinct()):
                self._new.pop(job_id, None)

    def _remember(self, gone: Iterable[Past] = ()) -> None:
        """Listen to what the core is told, and recall what is known already."""
        core = self.state.core
        memory = Memory(core.estimator, asks=not core.policy.estimates)
        past = list(gone)
        for job_id in core.jobs():
            queued, run = core.known(job_id), core.cluster.runs.get(job_id)
            started = run.start_time if run is not None and not run.profiling else None
            past.append(Past(queued.job, queued.estimate_s, queued.profile, started))
        for one in sorted(past, key=lambda one: one.job.submit_time):
            memory.recall(one)
        core.estimator = self.memory = memory

    def turn(self) -> bool:
        """Read the log, foresee what is new, answer. False when there was nothing to do."""
        self._renew()
        busy = self._fold(self.store.read(self.state.seen))
        busy = self.answer() or busy
        if time.monotonic() >= self._rested_at:
            began = time.process_time()
            self._foresee_new()
            if self._stale and self.wall() >= self._refresh_at:
                self.refresh()
            spent = time.process_time() - began
            if spent > SHORT_S:  # leave the cores to those who decide and answer
                self._rested_at = time.monotonic() + spent * (1 / DUTY - 1)
        return busy

    def _renew(self) -> None:
        assert self.lease is not None
        if self.lease.expires_at - self.wall() < self.lease_s * 2 / 3:
            self.lease = self.store.renew(self.lease, self.wall(), self.lease_s)

    # --- the log ----------------------------------------------------------------------------

    def _fold(self, events: Iterable[Event]) -> bool:
        """Fold events; remember who was submitted. False when there were none."""
        any_at_all = False
        for event in events:
            any_at_all = True
            if event.kind is Kind.REBASED:
                self._begin()
                return True
            decisions = self.state.apply(event)
            if event.kind is Kind.GENESIS:
                self._remember()
            elif event.kind is Kind.SUBMITTED:
                self._new[event.job_id] = event.seq
            elif event.kind is Kind.FORECAST and self._phase(event.job_id) in UNSTARTED:
                owner = self.state.ledger.records[event.job_id].submission.owner
                self.correction.promised(event.job_id, forecast_of(event), owner)
            elif event.kind is Kind.STARTED and self._phase(event.job_id) is not Phase.PROFILING:
                self.correction.started(event.job_id, event.at)
            elif event.kind is Kind.DECIDED:
                self.correction.passed(self.state.now)
                self._stale = self._stale or bool(decisions)
            elif event.kind is Kind.ENDED and self._phase(event.job_id) is Phase.PROFILING:
                granted = self.state.ledger.records[event.job_id].granted_at
                self.correction.started(event.job_id, granted or event.at)
            elif event.kind in (Kind.ENDED, Kind.LOST, Kind.NOT_STARTED, Kind.CANCEL_ASKED):
                self.correction.forget(event.job_id)
        return any_at_all

    def _phase(self, job_id: str) -> Phase | None:
        """Where a job stands as of the last pass."""
        record = self.state.ledger.records.get(job_id)
        return None if record is None else record.phase

    # --- forecasts --------------------------------------------------------------------------

    def now(self) -> float:
        """The time on the service's clock."""
        genesis = self.state.genesis
        assert genesis is not None
        return max(self.state.now, genesis.clock(self.wall()))

    def futures(self) -> Futures:
        """The futures of the core as it stands; kept while nothing happens, for a second."""
        now, kept = self.now(), self._futures
        if kept is None or kept[0] != self.state.covered or now - kept[1] > 1.0:
            made = Futures(self.state.core, self.memory, now, seed=self.state.covered)
            kept = self._futures = self.state.covered, now, made
        return kept[2]

    def foresee(self, job_ids: Iterable[str]) -> dict[str, Forecast]:
        """Forecasts of jobs that have not ended, corrected; the others are left out."""
        core, now = self.state.core, self.now()
        alive = set(core.jobs())
        wanted = [job_id for job_id in job_ids if job_id in alive]
        running = [
            j for j in wanted if (run := core.cluster.runs.get(j)) is not None and not run.profiling
        ]
        waiting = [j for j in wanted if j not in set(running)]
        if len(waiting) > MOST:
            waiting.sort(key=lambda j: _place(self.state, j))
        made = {job_id: Forecast(now, why_not=TOO_MANY) for job_id in waiting[MOST:]}
        made |= {job_id: end_of(core, self.memory, now, job_id) for job_id in running}
        return made | self._foreseen(waiting[:MOST])

    def _foreseen(self, waiting: Sequence[str]) -> dict[str, Forecast]:
        """Forecasts of waiting jobs from futures; not tried again soon where there was no time."""
        if not waiting:
            return {}
        if time.monotonic() < self._in_vain_until:
            return {job_id: Forecast(self.now(), why_not=NO_TIME) for job_id in waiting}
        found = self.futures().forecast(waiting, samples=self.samples, budget_s=self.budget_s)
        if all(one.why_not == NO_TIME for one in found.values()):
            self._in_vain_until = time.monotonic() + IN_VAIN_S
        return {job_id: self.correction.corrected(one) for job_id, one in found.items()}

    def _foresee_new(self) -> None:
        """Forecast jobs that a pass has looked at, for the log and the table."""
        wanted = [job_id for job_id, seq in self._new.items() if seq <= self.state.covered]
        for job_id in wanted:
            del self._new[job_id]
        if not wanted:
            return
        self._write(self.foresee(wanted), first=True)

    def refresh(self) -> None:
        """Make the forecasts of all jobs that have not ended anew."""
        made = self.foresee(self.state.core.jobs())
        again = {j: one for j, one in made.items() if one.why_not == TOO_MANY}
        for job_id in again.keys() & self._unforeseen:
            del made[job_id]  # which is said already
        self._write(made)
        self._unforeseen = set(again)
        self._stale, self._refresh_at = False, self.wall() + self.refresh_s

    def _write(self, made: Mapping[str, Forecast], *, first: bool = False) -> None:
        """Put forecasts into their table, and the first of each job into the log."""
        bases = ("submission", "latest") if first else ("latest",)
        every = list(made.items())
        for i in range(0, len(every), ROWS):
            self._renew()
            part = dict(every[i : i + ROWS])
            events = [
                Event(Kind.FORECAST, one.made_at, job_id, body=body_of(one))
                for job_id, one in part.items()
                if first
            ]
            self.store.append(events, partial(_put, part, bases), lease=self.lease)

    # --- questions --------------------------------------------------------------------------

    def answer(self) -> bool:
        """Answer what was asked. False when nothing was."""
        open_ = and_(
            questions.c.answered_at.is_(None), questions.c.asked_at > self.wall() - PATIENCE_S
        )
        with self.store.reading() as connection:
            asked = connection.execute(
                select(questions).where(open_).order_by(questions.c.asked_at).limit(AT_ONCE)
            ).all()
        for row in asked:
            self._renew()
            began = time.process_time()
            reply = self.reply(row.kind, json.loads(row.body))
            self.store.append([], partial(_answered, row.id, reply, self.wall()))
            spent = round(time.process_time() - began, 3)
            self.log.info("answered", kind=row.kind, cpu_s=spent)
        return bool(asked)

    def reply(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question; `{"unavailable": why}` when there is none.

        Args:
            kind: `whatif` (job_id, changes, others), `suggest` (job_id, vcs), `why` (job_id),
                `forecast` (job_id); `names` in each: name the jobs of others too.
        """
        job_id = str(body.get("job_id", ""))
        record = self.state.ledger.records.get(job_id)
        if record is None or job_id not in set(self.state.core.jobs()):
            return {"unavailable": "the job is over, or not known yet"}
        owner, names = record.submission.owner, bool(body.get("names"))
        try:
            if kind == "forecast":
                return body_of(self.foresee([job_id])[job_id])
            if kind == "why":
                futures = self.futures()
                found = reasons.why(futures, job_id)
                answer = reasons.told(found, owner, futures, names=names)
                return answer | {"words": reasons.words(found)}
            asking = WhatIf(
                self.futures(),
                lambda job: self.memory.predicted(job, self.now()),
                samples=self.samples,
                budget_s=self.budget_s,
            )
            if kind == "whatif":
                change = Change.from_body(body.get("changes") or {})
                others = change.first or change.priority is not None or bool(body.get("others"))
                return told(asking.ask(job_id, change, others=others), owner, names=names)
            if kind == "suggest":
                vcs = [str(vc) for vc in body.get("vcs") or ()]
                found_all = asking.suggestions(job_id, vcs)
                return {"suggestions": [told(one, owner, names=names) for one in found_all]}
        except (NotPossible, LookupError) as error:
            return {"unavailable": str(error).strip("'\"")}
        return {"unavailable": f"no such question: {kind}"}


def _put(
    made: Mapping[str, Forecast], bases: Iterable[str], connection: Connection, _: list[Event]
) -> None:
    write(connection, made, bases)


def _answered(
    question: str, reply: Mapping[str, Any], now: float, connection: Connection, _: list[Event]
) -> None:
    said = {"answer": canonical(reply), "answered_at": now}
    connection.execute(update(questions).where(questions.c.id == question).values(said))
    connection.execute(delete(questions).where(questions.c.asked_at < now - FORGET_S))


def _place(state: State, job_id: str) -> tuple[int, float]:
    record = state.ledger.records.get(job_id)
    if record is None or record.key is None:
        return 0, inf
    return -record.priority, record.key


def run_analyst(settings: Settings, stopping: Callable[[], bool]) -> None:
    """The process of the service that foresees, or stands by."""
    store = Prompt(settings.database)
    # a forecast may wait for the processor, a decision may not: this thread takes little where all
    # want it, and does not interrupt who is at work when it wakes
    os.nice(10)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    analyst = Analyst(
        store,
        Library(settings.state_dir / "bundles"),
        holder=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        lease_s=settings.lease_s,
    )
    analyst.run(stopping, max(settings.poll_s, PAUSE_S))
