"""The modes advise and order: Slurm schedules, and Pellucid shows what it would do, why, and when
jobs start.

Once in each interval, the queue is read and built into a new core, which decides without any
effect. *Advise* changes nothing in Slurm. *Order* gives pending jobs priorities, so that Slurm
takes them in the core's order, and writes into AdminComment why they wait. Each change is logged as
an ORDERED event before it is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from features.aside import Aside
from features.clock import Clock
from features.codec import Json
from features.garbage import Seldom, collected, uncollected
from features.plain import first_line
from profiler.progress import table
from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.rules import PolicyViolation
from scheduler.explain.claims import Kind as Claimed
from scheduler.explain.claims import start_kind
from scheduler.explain.effect import Sooner
from scheduler.explain.whatif.forecasts import (
    StartForecast,
    end_of,
    roughly,
    still_waiting,
    too_late,
    unfinished,
)
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.words import clock_time
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.fold import encoded
from scheduler.service.log.forecasts import never
from scheduler.service.log.forecasts import write as write_forecasts
from scheduler.service.log.header import LogHeader, followed_header
from scheduler.service.log.questions import ETA, LEASE, LOOK, NODES, SHARES, TRIED
from scheduler.service.log.store import chain
from scheduler.service.log.store.claims import record_of, refute
from scheduler.service.log.store.decided import write_decisions
from scheduler.service.log.store.leases import Lease, LeaseLost
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions as decision_rows
from scheduler.service.log.store.tables import jobs as job_rows
from scheduler.service.settings import Settings
from scheduler.slurm.follow.again import Again
from scheduler.slurm.follow.answers import AT_ONCE, answer_questions
from scheduler.slurm.follow.audit import Audit, Held
from scheduler.slurm.follow.checks import against_slurm
from scheduler.slurm.follow.claims import Claims
from scheduler.slurm.follow.cores import Assembled
from scheduler.slurm.follow.database import Database
from scheduler.slurm.follow.histories import Ended, Histories, Over
from scheduler.slurm.follow.models import Models
from scheduler.slurm.follow.orders import PRIORITY, Order, Orders, say_left, take_back
from scheduler.slurm.follow.outputs import Outputs
from scheduler.slurm.follow.planner import Planner, nearby
from scheduler.slurm.follow.promises import Promises
from scheduler.slurm.follow.rows import JobRows
from scheduler.slurm.follow.shortages import Accounts
from scheduler.slurm.follow.tables import (
    accounted,
    ended_jobs,
    promises_of,
    write_jobs,
    write_nodes,
)
from scheduler.slurm.follow.trials import Means, Refused, Trials
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.parse import Node, ParseError, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import read_site
from scheduler.slurm.read.snapshot import ClusterSnapshot, without_start
from scheduler.slurm.read.table import Table
from scheduler.slurm.reason import SlurmReason
from scheduler.slurm.shares import of_site
from scheduler.slurm.twin.passes import JobFault
from scheduler.slurm.twin.twin import twin_in
from scheduler.slurm.twin.unmodelled import unmodelled, unmodelled_words

LOOKS_S = 30.0  # from look to look
NODES_EVERY = 10  # polls of the queue per poll of the nodes
COLLECTED_EVERY = 10  # polls of the queue per collection of all garbage: a third of a second
FORECAST_JOBS = 64  # waiting jobs, first in line, whose start is forecast
SAMPLES = 24  # futures
BUDGET_S = 6.0  # processor seconds for them: fewer are too few for a line of some sixty jobs
# processor seconds of one offer, and after which no other is tried
LESS = {TRIED: {"budget_s": 0.3, "question_s": 1.0}}
REST = 99.0  # seconds of rest per processor second that futures took: a hundredth of a core
NICE = 19
PING_S = 8.0  # between looks, from question to question whether Slurm is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Which Slurm is followed, and how.

    Attributes:
        order: whether priorities are set, too (mode `order`).
        partitions: partitions to follow; all when empty.
        table: whether the queue is read with `squeue -O`. Not for `order`, which needs
            AdminComment.
        outputs: whether the progress of running jobs is read from their output files.
    """

    order: bool = False
    partitions: Sequence[str] = ()
    table: Table | None = None
    outputs: Outputs | None = None


ADVISE = Following()


class Follower:
    """The process that polls Slurm, runs a core without effect, and stores the results.

    Args:
        store: the service's database; None: nothing is written anywhere.
        shape: Slurm's nodes, in the order of the core's numbers.
        asked: which Slurm is followed, and how.
        models: the models that predict durations; None: only histories do.
    """

    def __init__(
        self,
        header: LogHeader,
        shape: Shape,
        slurm: Slurm,
        store: Store | None,
        asked: Following = ADVISE,
        *,
        models: Models | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.header, self.slurm, self.store = header, slurm, store
        self._planner = Planner(Assembled(header.spec), shape, asked.partitions)
        self.order, self.clock = asked.order, clock or (Clock() if store is None else store.clock)
        self.log = structlog.get_logger("follower")
        self.lease: Lease | None = None
        self._table, self._outputs = asked.table, asked.outputs
        self._models = models or Models(store, None, None, watches=False)
        self._looks = 0
        self._not_modelled: dict[str, int] = {}
        self._failed = ""  # why the last look failed
        self.every_s = LOOKS_S
        self._seen_last: Json = {}  # what the last whole look wrote of itself
        self._orders = Orders(slurm)
        self._database = Database(slurm)
        self._again, self._seldom = Again(self.clock.monotonic), Seldom(COLLECTED_EVERY)
        self._answered_s = 0.0  # of processor, for who asked while futures were simulated
        self._begin()

    def _begin(self) -> None:
        """Drop everything that was read, planned and written before."""
        self._planner.begin()
        self._histories = Histories(self.memory, lambda names: self.shape.vc_of(names))
        self._promises = Promises()
        self._models.begin()
        self._last: tuple[ClusterSnapshot, list[str]] | None = None
        self._written: dict[str, tuple[Action, Reason]] = {}  # job -> action and reason written
        self.reasons: dict[str, SlurmReason] = {}  # why jobs wait, of the last look
        self._rows = JobRows(lambda names: self.shape.vc_of(names))
        self._nodes_written: list[Node] = []
        self._numbered = 0
        self._foresee_at = 0.0  # monotonic: no futures before
        self._forecasts: dict[str, StartForecast] = {}  # of jobs that wait
        self._claims = Claims()
        self._withheld: dict[str, str] = {}  # of which of them none is shown, and why
        self._audit = Audit()
        self._against: dict[str, str] = {}  # of which Slurm contradicts what is forecast, and why
        self._held = Held(self.store)

    @property
    def memory(self) -> Memory:
        return self._planner.memory

    @property
    def shape(self) -> Shape:
        return self._planner.shape

    def look(self) -> ClusterSnapshot:
        """Poll Slurm once, and store the result. Return the snapshot of its queue. Raise SlurmDown,
        SlurmError or ParseError where Slurm cannot be read, and LeaseLost where another process
        took over."""
        began = time.process_time()
        if self._looks % NODES_EVERY == 0:
            self._planner.nodes = self.slurm.nodes()
            if self.header.spec.kind.capabilities.twin:
                self._planner.site = read_site(self.slurm, self._planner.nodes, self._planner.site)
        self._looks += 1
        jobs = self._read()
        self._planner.reshape(jobs)
        # clocks are set back; histories do not go back
        now = max(self.clock.now(), self._histories.heard)
        if self._models.look(self.memory, self.clock.now(), self.lease):
            self._planner.asking.forget()
        self._held.forget()
        mine = [job for job in jobs if self.shape.vc_of(job.partition)]
        ended = self._histories.update(mine, now)
        self._promises.look(mine, now)
        self._hear(mine, now)
        snapshot = self._build(mine, now)
        self._count_unmodelled(mine)
        first = self._planner.first(snapshot)
        self._last = snapshot, first
        made = self._foresee(snapshot, first)
        made |= self._renewed(snapshot, first, made)
        self._audit.look(snapshot)
        made |= self._withhold(snapshot, first, made)
        self.reasons = self._audit.reasons(self._planner.reasons(snapshot, first), now, self._held)
        orders = self._orders.wanted(snapshot, set(first)) if self.order else []
        if self.store is not None:
            self._write(snapshot, made, orders, ended)
        self._orders.carry_out(orders, now)
        self.log.info(
            "looked",
            running=len(snapshot.running),
            waiting=len(snapshot.waiting),
            left_out=len(snapshot.left_out),
            would_start=_starts(snapshot),
            ordered=sum(order.what == PRIORITY for order in orders),
            ms=round((self.clock.now() - now) * 1000),
            cpu_ms=round((time.process_time() - began) * 1000),
        )
        return snapshot

    # --- what is learned ----------------------------------------------------------------------

    def _hear(self, jobs: Sequence[SlurmJob], now: float) -> None:
        """Read the progress that running jobs report, and use it for their predicted durations."""
        if self._outputs is not None:
            self._planner.progressed(self._outputs.look(jobs, now), jobs, now)
            self._rows.unread = self._outputs.unread

    # --- what is seen -------------------------------------------------------------------------

    def _read(self) -> list[SlurmJob]:
        jobs = self.slurm.jobs() if self._table is None else self._table.jobs()
        return jobs if self._outputs is None else self._outputs.with_work(jobs)

    def _build(self, jobs: Iterable[SlurmJob], now: float) -> ClusterSnapshot:
        self._planner.asking.turn()
        return self._planner.draw(jobs, now, self._before(), self._not_planned)

    def _not_planned(self, job_id: str, fault: JobFault) -> None:
        self.log.error("job_not_planned", why=str(fault), exc_info=fault)

    def _before(self) -> dict[str, Reason]:
        """Return the reasons why jobs waited at the last poll, by job id. In mode `order`, return
        {}, so that every reason is decided and written once more."""
        if self.order:
            return {}
        return {job: why for job, (what, why) in self._written.items() if what is Action.WAIT}

    def _count_unmodelled(self, jobs: Iterable[SlurmJob]) -> None:
        """Count the jobs for each setting, limit and option that the policy `slurm` does not model.
        Log a warning for each new one."""
        before = self._not_modelled.keys()
        site = self._planner.site
        self._not_modelled = unmodelled(site, jobs) if site is not None else {}
        for what in sorted(self._not_modelled.keys() - before):
            self.log.warning("not_modelled", what=what, jobs=self._not_modelled[what])

    def _foresee(self, snapshot: ClusterSnapshot, first: Sequence[str]) -> dict[str, StartForecast]:
        """Return forecasts by job id: the end of each running job, and the start of the first
        `FORECAST_JOBS` in line. Starts are left out for a while after they were simulated, the
        longer that took, and while a user waits for this read."""
        core, now = snapshot.core, snapshot.now
        made = {job_id: end_of(core, self.memory, now, job_id) for job_id in snapshot.running}
        if not first or self._again.asked or self.clock.monotonic() < self._foresee_at:
            return made
        began, self._answered_s = time.process_time(), 0.0
        futures = self._planner.futures(snapshot, first, self._before(), self._looks)
        with collected():  # each future leaves a whole core
            found = futures.forecast(
                first[:FORECAST_JOBS], samples=SAMPLES, budget_s=BUDGET_S, between=self._meanwhile
            )
        made |= {job_id: self._promises.put_off(one) for job_id, one in found.items()}
        took_s = time.process_time() - began - self._answered_s
        self._foresee_at = self.clock.monotonic() + REST * took_s
        return made

    def _renewed(
        self, snapshot: ClusterSnapshot, first: Sequence[str], made: Mapping[str, StartForecast]
    ) -> dict[str, StartForecast]:
        """Return the start forecasts to store, by job id, and remember all valid ones.

        These are the new forecasts in `made`, earlier ones that are moved on so that none lies in
        the past before the next poll, and crude ones for first jobs without any. A job for which
        there was no time keeps its last forecast.
        """
        now, late, before = snapshot.now, snapshot.now + self.every_s, self._forecasts
        known: dict[str, StartForecast] = {}
        for j in (*snapshot.waiting, *snapshot.aside):
            one, was = made.get(j), before.get(j)
            if was and (one is None or (unfinished(one) and was.start_p90 is not None)):
                one = was
            if one and (j in snapshot.aside or not unfinished(one)):
                known[j] = one
        made_now = {j: still_waiting(one, late) for j, one in known.items()}
        new = [j for j in first if j not in known]
        made_now |= roughly(snapshot.core, self.memory, now, job_ids=new, soon=late) if new else {}
        for job_id in snapshot.aside.keys() - known.keys():
            made_now[job_id] = StartForecast(now, why_not=snapshot.left_out[job_id])
        self._forecasts = known | made_now
        again = {*made, *(d.job_id for d in snapshot.decisions if self._is_new(d))}
        found = self._forecasts.items()
        return {j: one for j, one in found if j in again or one is not before.get(j)}

    def _withhold(
        self, snapshot: ClusterSnapshot, first: Sequence[str], made: Mapping[str, StartForecast]
    ) -> dict[str, StartForecast]:
        """Return forecasts that state why there is no start, for jobs that get none now: the jobs
        use something that is not modelled, may miss a deadline, or Slurm contradicts the forecast.
        For jobs to which this no longer applies, return their forecast."""
        known = {j: self._forecasts[j] for j in snapshot.waiting.keys() & self._forecasts.keys()}
        late = too_late(snapshot.core, known)
        refuted = self._audit.forecasts(snapshot, known, self._held)
        self._against = refuted | against_slurm(snapshot, first)
        barred = without_start(snapshot, first)
        before, self._withheld = self._withheld, late | self._against | barred
        again = {j: self._forecasts[j] for j in before if j in self._forecasts}
        return {j: one for j, one in again.items() if j not in self._withheld} | {
            j: StartForecast(snapshot.now, why_not=why)
            for j, why in self._withheld.items()
            if j in made or before.get(j) != why
        }

    def answer(self, kind: str, asked: Json) -> Json:
        """Answer a question of the API on a copy of the queue as last read. Return the answer as
        JSON.

        Its field `unavailable` says why where Slurm was not read or does not answer, and `refused`
        why Slurm would not take the job.
        """
        if kind == LOOK and self._again.may():
            self._watch()
        planner = self._planner
        if self._last is None or planner.site is None:
            return {"unavailable": "Slurm was not read yet, or is followed by another policy"}
        if self._failed:
            since = clock_time(self._last[0].now, self.clock.now())
            return {"unavailable": f"Slurm does not answer; it was read last at {since}"}
        snapshot, first = self._last
        if kind == LOOK:
            return {"read_at": snapshot.now}
        twin = twin_in(snapshot.core.policy)
        if kind == SHARES:
            return asdict(of_site(planner.site, str(asked["user"])))
        if kind == NODES and twin is not None:
            return asdict(Accounts(twin, snapshot.now).by_node(str(asked["job_id"])))
        means = Means(
            planner.trial,
            planner.own,
            self._renew,
            self._promises.put_off,
            against=self._against,
            asks=self.slurm.tried,
            **LESS.get(kind, {}),
        )
        jobs = nearby(snapshot, first)
        trials = Trials(
            site=planner.site,
            jobs=jobs,
            memory=self.memory,
            now=snapshot.now,
            clock=self.clock,
            means=means,
        )
        try:
            if kind == ETA:
                of = [str(word) for word in asked["options"]], str(asked["user"])
                return asdict(trials.against_slurm(trials.eta(*of), *of))
            return asdict(self._offered(trials, str(asked["job_id"])))
        except Refused as refused:
            return {"refused": str(refused)}
        except (PolicyViolation, ParseError) as error:
            self.log.error("trial_refused", why=str(error))
            return {"unavailable": "it could not be tried"}

    def _offered(self, trials: Trials, job_id: str) -> Sooner:
        """Return the changes that would let a job start sooner, each with how often suggestions of
        its kind held. Store the changes as claims, which are judged later."""
        found = trials.what_if(job_id)
        job = next((job for job in trials.jobs if job.id == job_id), None)
        if self.store is None or job is None or not trials.offered:
            return found
        self._claims.offered(job, found.as_it_is, trials.offered, self.clock.now())
        with self.store.reading() as connection:
            record = {
                once: record_of(connection, start_kind(starts_now=once)) for once in (False, True)
            }
        tried = []
        for one in found.tried:
            held, judged = record[not one.reason]
            tried.append(replace(one, held=held, judged=judged))
        return replace(found, tried=tried)

    # --- what is written ----------------------------------------------------------------------

    @uncollected()
    def _write(
        self,
        snapshot: ClusterSnapshot,
        made: Mapping[str, StartForecast],
        orders: Sequence[Order],
        ended: Sequence[Over],
    ) -> None:
        assert self.store is not None
        now = snapshot.now
        new = filter(self._is_new, snapshot.decisions)
        fresh = [replace(d, seq=seq) for seq, d in enumerate(new, self._numbered)]
        body = {
            "running": len(snapshot.running),
            "waiting": len(snapshot.waiting),
            "left_out": len(snapshot.left_out),
            "decisions": len(fresh),
            "p50_at": round(self._promises.late[0], 4),
            "stretch": round(self._promises.late[1], 4),
            "not_modelled": [unmodelled_words(*one) for one in self._not_modelled.items()],
            "unread": _unread(self._planner, self._table),
            "withdrawn": self._audit.lines(self._held),
            "database_since": self._database.since,
        }
        self._seen_last = body | {"unread_since": now}
        events = [Event(Kind.ADVISED, now, body=body)]
        events += [order.event(now, self.slurm.dry) for order in orders]
        events += self._models.scored(self.memory, now)
        rows = self._rows.of(snapshot, self.reasons, by_slurm=self._planner.by_slurm)
        over = self._rows.ended(ended, now)
        before, changed = self._rows.rows, self._rows.changed(rows)
        left = before.keys() - rows.keys()
        gone = sorted(left - {row["job_id"] for row in over})
        waiting = {job_id: one for job_id, one in made.items() if job_id in snapshot.waiting}
        promised = self._promises.first(waiting)
        self._claims.room({j: why for j, why in self.reasons.items() if j in snapshot.waiting}, now)
        otherwise = [
            was["job_id"]
            for row in changed
            if (was := before.get(row["job_id"])) is not None and was["spec"] != row["spec"]
        ]
        refuted = self._audit.refuted

        def tables(connection: Connection, appended: list[Event]) -> None:
            seq = appended[0].seq
            write_decisions(connection, fresh, encoded(fresh), seq)
            write_jobs(connection, [*changed, *over], gone, seq, now=now)
            write_forecasts(connection, made, ("latest",))
            write_forecasts(connection, promised, ("submission",))
            seen = (*snapshot.waiting.values(), *snapshot.running.values())
            self._claims.write(
                connection, seen, never=never(waiting), otherwise=otherwise, seq=seq, now=now
            )
            refute(connection, Claimed.NEVER, job_ids=refuted, now=now)
            if self._planner.nodes != self._nodes_written:
                write_nodes(connection, self.shape, self._planner.nodes)

        self.store.append(events, tables, lease=self.lease)
        self._numbered += len(fresh)
        self._rows.rows, self._nodes_written = rows, self._planner.nodes
        for d in fresh:
            self._written[d.job_id] = d.action, d.reason
        for job_id in left:
            self._written.pop(job_id, None)

    def _fail(self, why: str) -> None:
        """Record that a poll of Slurm failed. Answers then state the age of the last good poll."""
        if not self._failed:
            self._failed = why
            self._say_silent()
        self._failed = why

    def _say_silent(self) -> None:
        """Write an event that says which part of Slurm does not answer, and since when."""
        if self.store is not None and self.lease is not None:
            silent = {"failed": self._failed, "database_since": self._database.since}
            body = {"unread_since": None} | self._seen_last | silent
            self.store.append([Event(Kind.ADVISED, self.clock.now(), body=body)], lease=self.lease)

    def ask_database(self) -> None:
        """Check whether slurmdbd answers. When it answers again after a failure, have the site's
        limits and accounts read again."""
        site = self._planner.site
        if site is not None and self._database.ask(site.config, self.clock.now()):
            self.log.warning("slurmdbd", silent_since=self._database.since)
            if self._database.since is None:
                self._looks = 0
            self._say_silent()

    def _is_new(self, d: Decision) -> bool:
        return self._written.get(d.job_id) != (d.action, d.reason)

    # --- life ---------------------------------------------------------------------------------

    def take_over(self, holder: str, lease_s: float) -> bool:
        """Take the lease (the exclusive right to write), and return True; return False where
        another process has it. Delete the rows of live jobs that an earlier follower wrote, and
        learn from those of ended jobs."""
        assert self.store is not None
        self.lease = self.store.take(LEASE, holder, lease_s, ready=False)
        if self.lease is None:
            return False

        def tables(connection: Connection, _: list[Event]) -> None:
            chain.take_out(connection, job_rows, job_rows.c.ended_at.is_(None))

        self.store.append([], tables, lease=self.lease)
        self._begin()
        with self.store.reading() as connection:
            # later than the lease was renewed, which may have been on a host that is ahead
            upto = self.store.last_seq_in(connection)
            for event in self.store.each_in(connection, upto - 1):
                self.clock.not_before(event.at)
            last = select(decision_rows.c.seq).order_by(decision_rows.c.seq.desc()).limit(1)
            found = connection.execute(last).scalar()
            past = ended_jobs(connection, self.clock.now())
            self._promises = promises_of(self.store, connection)
            self._audit.recall(connection)
        self._numbered = 0 if found is None else found + 1
        known = {one.job.job_id for one in past}
        past += [one for one in self._accounted() if one.job.job_id not in known]
        self._histories.recall(past)
        self.log.info("follows", recalled=len(past))
        return True

    def _accounted(self) -> list[Ended]:
        try:
            return accounted(self.slurm, self._histories.vc_of)
        except (SlurmDown, SlurmError) as error:  # a cluster may have no accounting
            self.log.info("ended_jobs_unread", why=str(error))
            return []

    def run(
        self, stopping: Callable[[], bool], holder: str, interval_s: float, lease_s: float
    ) -> None:
        """Poll Slurm and answer questions until `stopping` returns True, while this process holds
        the lease (the exclusive right to write) of the database. Without the lease, wait for it. At
        the end, give up the lease and, in mode `order`, take back what was given to Slurm's
        jobs."""
        self.every_s = interval_s
        due, ping_at = 0.0, 0.0
        while not stopping():
            try:
                if self.store is not None and self.lease is None:
                    if not self.take_over(holder, lease_s):
                        self.clock.sleep(min(lease_s / 4, 1.0))
                    continue
                self._renew()
                if self.clock.monotonic() >= due:
                    due = self.clock.monotonic() + interval_s
                    self._watch()
                    self.ask_database()
                    ping_at = self.clock.monotonic() + PING_S
                elif self.clock.monotonic() >= ping_at:
                    ping_at = self.clock.monotonic() + PING_S
                    due = 0.0 if self._is_back() else due
                    self.ask_database()
                if self.store is not None:
                    answer_questions(self.store, self.answer)
            except LeaseLost as lost:
                self.log.warning("lease_lost", why=str(lost))
                self.lease = None
            self.clock.sleep(0.1)
        if self._outputs is not None:
            self._outputs.close()
        self._end(holder, lease_s)

    def _watch(self) -> None:
        """Poll Slurm once, and record the result. No error ends this process, except that another
        one has taken over the lease (the exclusive right to write)."""
        try:
            with self._again, self._seldom:
                self.slurm.ping()  # one that hangs would keep a look's commands waiting for longer
                self.look()
            self._is_ready()
            self._failed = ""
        except LeaseLost:
            raise
        except (SlurmDown, SlurmError, ParseError) as error:
            self.log.warning("slurm_unread", why=str(error))
            self._fail(str(error))
        except PolicyViolation as error:  # the next poll may find another cluster
            self.log.error("pass_refused", why=str(error))
            self._fail(str(error))
        except Exception as error:
            self.log.exception("look_failed")
            self._fail(f"{type(error).__name__} {error}")

    def _is_back(self) -> bool:
        """Ping Slurm, and return whether it answers again after a failed poll. Called between two
        polls. A failed ping is recorded as a failure."""
        try:
            self.slurm.ping()
        except SlurmDown as down:
            self._fail(str(down))
            return False
        return bool(self._failed)

    def _end(self, holder: str, lease_s: float) -> None:
        if self.order and self._may_take_back(holder, lease_s):
            take_back(self.slurm, self.log)
        if self.lease is not None and self.store is not None:
            with suppress(LeaseLost):
                self.store.let_go(self.lease)
        self.slurm.close()

    def _may_take_back(self, holder: str, lease_s: float) -> bool:
        """Return whether the order that was given to Slurm's jobs may be taken back; log where it
        may not. A process that was stopped before it had the lease takes it now, where nobody else
        has it: an earlier one may have left an order."""
        if self.store is None or self.lease is not None:
            return True
        try:
            self.lease = self.store.take(LEASE, holder, lease_s, ready=False)
        except SQLAlchemyError as error:
            say_left(self.log, first_line(error))
            return False
        if self.lease is None:
            self.log.info("order_left", why="another process has the lease")
        return self.lease is not None

    def _is_ready(self) -> None:
        """Record in the database's lease that this process has read Slurm once."""
        if self.store is not None and self.lease is not None and not self.lease.ready:
            self.lease = self.store.renew(replace(self.lease, ready=True))

    def _meanwhile(self) -> None:
        """Renew the lease (the exclusive right to write) and answer users' questions. Called
        between two simulated futures, since all of them together take seconds."""
        self._renew()
        if self.store is not None and self._again.due():
            began = time.process_time()
            answer_questions(self.store, self.answer, AT_ONCE)
            self._answered_s += time.process_time() - began

    def _renew(self) -> None:
        if self.store is None or self.lease is None:
            return
        self.lease = self.store.keep(self.lease)


def run_follower(
    settings: Settings, slurm: Slurm, stopping: Callable[[], bool], holder: str = ""
) -> None:
    """Run the process of the modes `advise` and `order` until `stopping` returns True. This lowers
    the priority of the calling process for good.

    Args:
        holder: name under which this process takes the lease (the exclusive right to write).
    """
    os.nice(NICE)  # this and the `squeue` it runs wait for whoever else wants the processor
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    store = Store(settings.database)
    store.go_on()
    header = followed_header(store)
    order = settings.slurm_mode == "order"
    if settings.progress_formats is not None:
        table.use(settings.progress_formats)
    follower = Follower(
        header=header,
        shape=Shape(header.spec.cluster, header.names),
        slurm=slurm,
        store=store,
        asked=Following(
            order=order,
            partitions=[name for name in settings.slurm_partitions.split(",") if name],
            table=None if order else Table(slurm, warn=structlog.get_logger("slurm").warning),
            outputs=Outputs(slurm) if settings.slurm_read_progress else None,
        ),
        models=Models(
            store,
            settings.bundle,
            BundleStore(settings.state_dir / "bundles", Aside()),
            watches=settings.watch_models,
        ),
    )
    follower.run(stopping, holder, settings.slurm_interval_s, settings.lease_s)


def _starts(snapshot: ClusterSnapshot) -> int:
    """Return how many jobs the core started, or Slurm's next pass over its queue would start."""
    twin, runs = twin_in(snapshot.core.policy), snapshot.core.cluster.runs
    soon = len(twin.soon) if twin is not None else 0
    return soon + sum(d.job_id in runs for d in snapshot.decisions)


def _unread(planner: Planner, table: Table | None) -> list[str]:
    """Return a line for each part of Slurm's output, and each job, that could not be read or
    planned. Everything else was."""
    of_site = [f"Not read: {one}." for one in (planner.site.faults if planner.site else ())]
    rows = [f"Not read: {one}." for one in (table.unread if table else ())]
    return [*of_site, *rows, *(f"{job}: {why}." for job, (_, why) in planner.faults.items())]
