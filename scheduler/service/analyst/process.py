"""The analyst's process: it reads the log, forecasts submitted jobs, and answers questions.

It decides nothing, and no core reads what it appends (FORECAST). If it is gone, forecasts are
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
from sqlalchemy.exc import DBAPIError

from scheduler.backends.events import Event, Kind, canonical
from scheduler.core.decisions import Decision, Reason
from scheduler.explain.blockers import BUDGET_S
from scheduler.explain.claims import Claim
from scheduler.explain.claims import Kind as Claimed
from scheduler.explain.whatif.forecasts import (
    Futures,
    StartForecast,
    WhyNot,
    crude,
    end_of,
)
from scheduler.explain.whatif.memory import Memory, SubmittedJob
from scheduler.explain.whatif.near import near
from scheduler.explain.whatif.waits import Waits
from scheduler.explain.words import ForecastKind
from scheduler.service.analyst.answers import Answers
from scheduler.service.analyst.threaded_store import ThreadedStore
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.fold import State
from scheduler.service.log.followed import follow, followed
from scheduler.service.log.forecasts import body_of, ended, forecast_of, never, write
from scheduler.service.log.record import Phase
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.service.log.store import claims
from scheduler.service.log.store.decided import WAITS_AGAIN, waiting_again
from scheduler.service.log.store.disk import is_full, wait_for_room
from scheduler.service.log.store.leases import Lease, LeaseLost
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts, questions

if TYPE_CHECKING:
    from scheduler.service.settings import Settings

LEASE = "analyst"
LONG = 20_000  # events, from which on a log is not looked through from its start
PAUSE_S = 0.2  # between two turns

# Forecasts
FORECAST_JOBS = 256  # waiting jobs that are forecast in one go
FORECAST_ROWS = 64  # written in one transaction: decisions and submissions wait for it
FUTURES_S = 10.0  # after so long a forecast is content with few futures
RETRY_S = 30.0  # where futures take too long, they are not tried again before
RENEW_SOONER = 1 / 3  # of the usual time until the next refresh, once a job has another reason
RENEW_AFTER = 0.1  # of the soonest start, passed: runs that go on are expected to go on longer
CPU_SHARE, SHORT_S = 0.3, 0.1  # of a core that forecasts may take, once they take longer
# the job that was forecast starts no more, or was held, or is another
BREAKS_OFF = (
    Kind.ENDED, Kind.LOST, Kind.NOT_STARTED, Kind.CANCEL_ASKED, Kind.HELD, Kind.CHANGED
)  # fmt: skip

# Questions
QUESTIONS = 16  # answered before the log is read again
QUESTIONS_BETWEEN = 2  # between two futures: a forecast that is never complete is none
QUESTIONS_READ = 1000  # among which the next is chosen
QUESTION_S = 30.0  # whoever asked longer ago has left
FORGOTTEN_S = 60.0  # of answers, after which what somebody had of the processor counts by half
LEAST_S = 0.001  # that an answer counts
QUESTION_KEPT_S = 600.0  # answered or not
JUDGE_S = 1.0  # what was claimed is compared with what came this often
HELPS_S = 0.8  # what would help is tried for so long, however busy the machine; who waits shares


class Analyst:
    """Forecasts while it holds the lease, and stands by otherwise. Its clock is the store's.

    Args:
        store: a prepared database whose log has its HEADER.
        bundle_store: copies of the bundles of models that the log names.
        holder: name of this process in the lease.
        snapshots: where the decider keeps its state now and then; None: nowhere.
        budget_s: processor seconds for one forecast or question.
        samples: simulated futures per forecast, at most.
        refresh_s: seconds after which forecasts of waiting jobs are made again.

    Attributes:
        memory: the core's estimator, with submitted jobs remembered beside it.
        waits: corrections of forecasts, learned from how long earlier jobs waited.
        promised, latest: forecasts of waiting jobs, as shown at submission and as shown last.
        reply: answers a question.
        read_at: when the log was read last, on the service's clock.
        search_s: processor seconds for finding what keeps a job from starting.
        helps_s: processor seconds for trying which changes would help a job.
    """

    def __init__(
        self,
        store: Store,
        bundle_store: BundleStore,
        *,
        holder: str,
        lease_s: float = 10.0,
        budget_s: float = 2.0,
        samples: int = 64,
        refresh_s: float = 15.0,
        snapshots: StateCheckpoints | None = None,
    ):
        self.store = store
        self.bundle_store = bundle_store
        self.holder = holder
        self.lease_s = lease_s
        self.budget_s = budget_s
        self.samples = samples
        self.refresh_s = refresh_s
        self.snapshots = snapshots
        self.clock = store.clock
        self.log = structlog.get_logger("analyst").bind(holder=holder)
        self.lease: Lease | None = None
        self.state: State
        self.memory: Memory
        self.waits: Waits
        self._new: dict[str, int] = {}  # submitted and not forecast yet: seq of the event
        self.promised: dict[str, StartForecast] = {}
        self.latest: dict[str, StartForecast] = {}
        self._crude: dict[str, float] = {}  # crude starts as last written, by job
        self._stale = False  # something was decided since the last refresh
        self._refresh_at = 0.0
        self._old_at = inf  # monotonic: forecasts are old, though nothing was decided
        self._in_vain_until = 0.0  # monotonic: there is no time for futures before
        self._rested_at = 0.0  # monotonic: no forecast is begun before
        self._complete_at = 0.0  # monotonic: the one that is made has taken long by then
        self._alive: Callable[[], object] = lambda: None  # tells who minds this process
        self._used: dict[str, float] = {}  # by who asked: processor seconds, lately
        self._futures: tuple[int, float, Futures] | None = None
        self._answers = Answers(self)
        self.reply = self._answers.reply
        self._judge_at = 0.0  # monotonic
        self._answering = False
        self._touched: dict[str, int] = {}  # jobs forecast in vain, by the event that says so
        self.read_at = 0.0
        self.search_s = BUDGET_S
        self.helps_s = budget_s
        self._share = 1.0  # of a core, that answers had lately
        self._answered_s = 0.0  # processor seconds that answers took, in all

    # --- life -------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool], poll_s: float) -> None:
        """Forecast, or stand by, until `stopping` returns True. `stopping` is called often, which
        tells the supervisor that this process does not hang.
        """
        self._alive = stopping
        while not stopping():
            try:
                if self.lease is None and not self.take_over():
                    self.clock.sleep(min(self.lease_s / 4, 1.0))
                else:
                    self.turn()
                    # even if there is more: what came in between is one batch
                    self.clock.sleep(poll_s)
            except LeaseLost as lost:
                self.log.warning("lease_lost", why=str(lost))
                self.lease = None
            except (DBAPIError, OSError) as error:
                if not is_full(error):
                    raise
                self.log.error("disk_full", database=str(self.store.engine.url.database))
                self.lease = None
                wait_for_room(self.store, self.clock, stopping)
        self._let_go()

    def _let_go(self) -> None:
        if self.lease is not None:
            self.store.let_go(self.lease)
            self.lease = None

    def take_over(self) -> bool:
        """Take the lease and read the log. Return False where another process holds the lease."""
        lease = self.store.take(LEASE, self.holder, self.lease_s)
        if lease is None:
            return False
        self.lease = lease
        self._begin()
        self.log.info("foresees", events=self.state.seen, learned=self.waits.learned)
        return True

    def _begin(self) -> None:
        """Start to follow the log again, from its first event. For a long log, or one with
        corrected times, start from a later state (`_known_upto`).
        """
        self.waits = Waits()
        self._new.clear()
        self._crude.clear()
        self.promised.clear()
        self.latest.clear()
        self._futures, self._stale = None, True
        read_at = self.clock.now()
        with self.store.reading() as connection:
            upto = self._known_upto(connection)
            if upto:
                self.state = followed(
                    connection,
                    self.store,
                    self.bundle_store.find,
                    upto,
                    beat=lambda _: self._beat(),
                    snapshots=self.snapshots,
                )
                self._remember(ended(connection))
                self._new |= dict.fromkeys(self.state.core.jobs, 0)
            else:
                self.state = State(self.bundle_store.find)
            self._fold(connection, self.store.each_in(connection, upto))
            for (job_id,) in connection.execute(select(forecasts.c.job_id).distinct()):
                self._new.pop(job_id, None)
        if self.state.header is not None:
            self.read_at = self.state.header.clock(read_at)

    def _known_upto(self, connection: Connection) -> int:
        """Return the `seq` of the event after which the log must be read event by event, because a
        state as of that event can be loaded: the last correction of times, or the newest snapshot
        of a long log, whichever is later. Return 0 where all events must be read.
        """
        mended = self.store.last_seq_in(connection, Kind.CLOCK_MENDED)
        last = self.store.last_seq_in(connection)
        kept = None
        if self.snapshots is not None and last > LONG:
            kept = self.snapshots.newest(connection, self.store, last)
        return max(mended, 0 if kept is None else kept.seen)

    def _remember(self, gone: Iterable[SubmittedJob] = ()) -> None:
        """Wrap the core's estimator in a `Memory`. Give that the jobs in `gone` and those in the
        core, in the order of their submission.
        """
        core = self.state.core
        memory = Memory(core.estimator, asks=not core.policy.capabilities.estimates)
        past = list(gone)
        for job_id in core.jobs:
            queued, run = core.jobs[job_id], core.cluster.runs.get(job_id)
            started = run.start_time if run is not None and not run.profiling else None
            past.append(SubmittedJob(queued.job, queued.estimate_s, queued.profile, started))
        for one in sorted(past, key=lambda one: one.job.submit_time):
            memory.recall(one)
        core.estimator = self.memory = memory

    def turn(self) -> bool:
        """Read new events from the log, answer questions, check claims, and make the forecasts that
        are due. Return False if there were neither events nor questions.
        """
        self._renew()
        self._touched.clear()
        busy = self.read_on()
        busy = self.answer() or busy
        self._judge()
        if self.clock.monotonic() >= self._rested_at:
            began = time.process_time() - self._answered_s
            self._forecast_new()
            at = self.clock.monotonic()
            if (self._stale or at >= self._old_at) and at >= self._refresh_at:
                self.refresh()
            spent = time.process_time() - self._answered_s - began
            if spent > SHORT_S:  # leave the cores to those who decide and answer
                self._rested_at = self.clock.monotonic() + spent * (1 / CPU_SHARE - 1)
        return busy

    def _judge(self) -> None:
        """Check the claims (predictions shown to people) that can be checked by now, and write the
        results. Do it at most once in `JUDGE_S` seconds.
        """
        if self.clock.monotonic() < self._judge_at or self.state.header is None:
            return
        self._judge_at = self.clock.monotonic() + JUDGE_S
        with self.store.reading() as connection:
            found = claims.judged(connection, self.now())
        if found:
            self.store.append([], lambda there, _: claims.apply(there, found), lease=self.lease)

    def lately(self, kind: Claimed) -> list[bool]:
        """Return whether each of the latest claims (predictions shown to people) of a kind came
        true, the oldest first.
        """
        with self.store.reading() as connection:
            return claims.lately(connection, kind)

    def record(self, kind: Claimed) -> tuple[int, int]:
        """Return how many claims (predictions shown to people) of a kind came true, and how many
        were checked.
        """
        with self.store.reading() as connection:
            return claims.record_of(connection, kind)

    def _renew(self) -> None:
        assert self.lease is not None
        self.lease = self.store.keep(self.lease)

    def _beat(self) -> None:
        """Report that this process is alive, and renew the lease after a quarter of `lease_s`.
        Called during work that takes long."""
        self._alive()
        lease = self.lease
        if lease is not None and self.clock.monotonic() - lease.beat_at > self.lease_s / 4:
            self._renew()

    def _between_futures(self) -> bool:
        """Called between two simulated futures of a forecast. Answer questions that have arrived.
        Return whether the time for the forecast is used up, so that it must be made from the
        futures simulated so far.
        """
        self._beat()
        if not self._answering:
            self.answer(QUESTIONS_BETWEEN)
        return self.clock.monotonic() >= self._complete_at

    # --- the log ----------------------------------------------------------------------------

    def read_on(self) -> bool:
        """Read the events that were logged since the last call into the state. Return False when
        there were none.
        """
        self.read_at = self.now() if self.state.header is not None else 0.0
        events = self.store.read(self.state.seen)
        if not events:
            return False
        with self.store.reading() as connection:
            return self._fold(connection, events)

    def _fold(self, connection: Connection, events: Iterable[Event]) -> bool:
        """Apply events to the state, and note which jobs they submit, start and end. Return False
        when there were no events. After an event that corrects times, begin again (`_begin`), and
        delete the claims that are open.
        """
        any_at_all = False
        for event in events:
            self._beat()
            any_at_all = True
            if event.kind is Kind.CLOCK_MENDED:
                self._begin()
                self.store.append([], lambda there, _: claims.forget_open(there))
                return True
            decisions = follow(self.state, connection, event)
            if event.kind is Kind.HEADER:
                self._remember()
            elif event.kind is Kind.SUBMITTED:
                self._new[event.job_id] = event.seq
            elif event.kind is Kind.FORECAST:
                self.promised[event.job_id] = forecast_of(event)
            elif event.kind is Kind.STARTED and self._phase(event.job_id) is not Phase.PROFILING:
                self._started(event.job_id, event.at)
            elif event.kind is Kind.DECIDED:
                self._passed(decisions)
            elif event.kind is Kind.ENDED and self._phase(event.job_id) is Phase.PROFILING:
                grant = self.state.ledger.records[event.job_id].grant
                self._started(event.job_id, grant.at if grant else event.at)
            elif event.kind in BREAKS_OFF:
                self.waits.left(event.job_id, event.at)
                self._forget(event.job_id)
        return any_at_all

    def _forget(self, job_id: str) -> None:
        """Drop the kept forecasts of a job, and note that an event concerned the job."""
        self._touched[job_id] = self.state.seen
        self.promised.pop(job_id, None)
        self.latest.pop(job_id, None)

    def _started(self, job_id: str, at: float) -> None:
        self._forget(job_id)
        record = self.state.ledger.records.get(job_id)
        if record is not None:
            self.waits.started(job_id, at, max(0.0, at - record.submission.submitted_at))

    def _passed(self, decisions: Sequence[Decision]) -> None:
        self.waits.look(self.state.core, self.memory, self.state.now)
        self._stale = self._stale or bool(decisions)
        for d in decisions:
            if d.action not in WAITS_AGAIN or d.job_id in self._new:
                continue
            # what was forecast before is shown no more
            self._touched[d.job_id] = self.state.seen
            self.latest.pop(d.job_id, None)
            self._crude.pop(d.job_id, None)
            soon = 0.0 if d.reason is Reason.VC_TOO_SMALL else self.refresh_s * RENEW_SOONER
            self._refresh_at = min(self._refresh_at, self.clock.monotonic() + soon)

    def _phase(self, job_id: str) -> Phase | None:
        """Return the phase of a job as of the last decision pass, or None for an unknown job."""
        record = self.state.ledger.records.get(job_id)
        return None if record is None else record.phase

    # --- forecasts --------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time on the service's clock, seconds since the epoch."""
        header = self.state.header
        assert header is not None
        return max(self.state.now, header.clock(self.clock.now()))

    def futures(self) -> Futures:
        """Return a simulator of the core's possible futures, from the core's state when the log was
        last read. It is kept for a second while nothing happens.
        """
        now, kept = max(self.state.now, self.read_at), self._futures
        if kept is None or kept[0] != self.state.covered or now - kept[1] > 1.0:
            made = Futures(self.state.core, self.memory, now, seed=self.state.covered)
            kept = self._futures = self.state.covered, now, made
        return kept[2]

    def forecast(self, job_ids: Iterable[str]) -> dict[str, StartForecast]:
        """Return corrected forecasts of jobs that have not ended, by job id. Jobs that have ended
        are left out, and so are jobs to which something happened during the simulation. Of more
        than `FORECAST_JOBS` waiting jobs, those first in line are simulated, and the others are
        forecast roughly. Questions are answered meanwhile, from the log as it is then.
        """
        state, seen = self.state, self.state.seen
        core, now = state.core, self.now()
        alive = set(core.jobs)
        wanted = [job_id for job_id in job_ids if job_id in alive]
        running = [
            j for j in wanted if (run := core.cluster.runs.get(j)) is not None and not run.profiling
        ]
        waiting = [j for j in wanted if j not in set(running)]
        if len(waiting) > FORECAST_JOBS:
            waiting.sort(key=lambda j: _place(self.state, j))
        made = {job_id: end_of(core, self.memory, now, job_id) for job_id in running}
        if waiting:
            nothing = StartForecast(now, why_not=WhyNot.NO_TIME)
            found = dict.fromkeys(waiting, nothing) | self._from_futures(waiting[:FORECAST_JOBS])
            if self.state is not state:  # it was begun again meanwhile
                return {}
            now = self.now()
            made |= self.waits.corrected(core, found, crude(core, self.memory, now), now)
        return {j: one for j, one in made.items() if self._touched.get(j, -1) <= seen}

    def as_shown(self, job_id: str, made: StartForecast) -> StartForecast:
        """Return the forecast to show for a waiting job: the latest stored forecast, or else the
        new forecast `made`, corrected by how long earlier jobs waited.
        """
        if (latest := self.latest.get(job_id)) is not None:
            return latest
        core, now = self.state.core, self.futures().now
        roughly = crude(core, self.memory, now)
        return self.waits.corrected(core, {job_id: made}, roughly, now)[job_id]

    def _from_futures(self, waiting: Sequence[str]) -> dict[str, StartForecast]:
        """Return forecasts of waiting jobs from simulated futures, by job id. Return an empty
        mapping where no job is given, or for `RETRY_S` seconds after no forecast could be made
        in time."""
        if not waiting:
            return {}
        if self.clock.monotonic() < self._in_vain_until:
            return {}
        self._complete_at = self.clock.monotonic() + FUTURES_S
        found = near(self.futures(), waiting).forecast(
            waiting,
            samples=self.samples,
            budget_s=self.budget_s,
            between=self._between_futures,
        )
        if all(one.why_not is WhyNot.NO_TIME for one in found.values()):
            self._in_vain_until = self.clock.monotonic() + RETRY_S
        return found

    def _forecast_new(self) -> None:
        """Forecast submitted jobs once a decision pass has evaluated them. Write the forecasts to
        the log and the table.
        """
        wanted = [job_id for job_id, seq in self._new.items() if seq <= self.state.covered]
        for job_id in wanted:
            del self._new[job_id]
        if not wanted:
            return
        made = self.forecast(wanted)
        # of those with whom something happened meanwhile: in the next turn
        self._new |= {j: 0 for j in wanted if j not in made and j in self.state.core.jobs}
        self._write(made, first=True)

    def refresh(self) -> None:
        """Forecast all jobs that have not ended once more, and write the forecasts; a rough one
        only where it has changed.
        """
        self._stale, self._refresh_at = False, self.clock.monotonic() + self.refresh_s
        made = self.forecast(self.state.core.jobs)
        left = [(one.start_p50 or 0.0) - one.made_at for one in made.values()]
        soonest_s = min((left_s for left_s in left if left_s > 0), default=inf)
        self._old_at = self.clock.monotonic() + max(self.refresh_s, RENEW_AFTER * soonest_s)
        for job_id, one in list(made.items()):
            if one.estimate != ForecastKind.CRUDE or one.start_p50 is None:
                self._crude.pop(job_id, None)
            elif _about_the_same(self._crude.get(job_id), one.start_p50, one.made_at):
                del made[job_id]  # which is recorded already
            else:
                self._crude[job_id] = one.start_p50
        self._write(made)

    def _write(self, made: Mapping[str, StartForecast], *, first: bool = False) -> None:
        """Write forecasts to their table. `first`: these are the first forecasts of the jobs, which
        also go into the log.
        """
        bases = ("submission", "latest") if first else ("latest",)
        for job_id, one in made.items():
            if one.start_p50 is None:
                self.latest.pop(job_id, None)
            elif one.start_p50 > one.made_at:
                self.latest[job_id] = one
        every = list(made.items())
        for i in range(0, len(every), FORECAST_ROWS):
            self._renew()
            part = dict(every[i : i + FORECAST_ROWS])
            events = [
                Event(Kind.FORECAST, one.made_at, job_id, body=body_of(one))
                for job_id, one in part.items()
                if first
            ]
            put = partial(_put, part, bases, self.state.seen)
            self.store.append(events, put, lease=self.lease)

    # --- questions --------------------------------------------------------------------------

    def answer(self, at_most: int = QUESTIONS) -> bool:
        """Answer at most `at_most` open questions, each from the newest state of the log. Return
        False if there was none.
        """
        open_ = and_(
            questions.c.answered_at.is_(None), questions.c.asked_at > self.clock.now() - QUESTION_S
        )
        answered = 0
        for _ in range(at_most):
            with self.store.reading() as connection:
                asked = connection.execute(
                    select(questions)
                    .where(open_)
                    .order_by(questions.c.asked_at)
                    .limit(QUESTIONS_READ)
                ).all()
            if not asked:
                break
            # of who had least of the processor lately: who asks much waits for themselves
            row = min(asked, key=lambda row: self._used.get(row.actor, 0.0))
            answered += 1
            self._renew()
            self.read_on()
            began, at = time.process_time(), self.clock.monotonic()
            self.helps_s = min(self.budget_s, HELPS_S * self._share / len(asked))
            self._answering = True
            try:
                reply = self.reply(row.kind, json.loads(row.body))
            finally:
                self._answering = False
            claimed = self._answers.claimed, self.state.seen
            self.store.append([], partial(_answered, row.id, reply, self.clock.now(), claimed))
            spent, took = time.process_time() - began, self.clock.monotonic() - at
            self._answered_s += spent
            self._charge(row.actor, spent)
            if took > SHORT_S:
                self._share = 0.5 * (self._share + min(1.0, spent / took))
            self.log.info("answered", kind=row.kind, cpu_s=round(spent, 3))
        return bool(answered)

    def _charge(self, actor: str, spent_s: float) -> None:
        """Add the processor seconds of an answer to those that `actor` (who asked) has used.
        Earlier use fades: it counts half once `FORGOTTEN_S` more seconds were used by anybody.
        """
        fade = 0.5 ** (spent_s / FORGOTTEN_S)
        left = {who: used * fade for who, used in self._used.items() if used * fade > LEAST_S}
        left[actor] = left.get(actor, 0.0) + max(spent_s, LEAST_S)
        self._used = left


def _put(
    made: Mapping[str, StartForecast],
    bases: Sequence[str],
    seen: int,
    connection: Connection,
    _: list[Event],
) -> None:
    """Store forecasts made from the log up to event `seen`, and the claims that jobs will not start
    which some of them make. Leave out the claim and the latest forecast of a job that has a new
    reason to wait since then. `bases`: as which forecasts: "submission", "latest" or both.
    """
    since = waiting_again(connection, made, seen)
    for basis in bases:
        some = {j: one for j, one in made.items() if basis != "latest" or j not in since}
        write(connection, some, (basis,))
    claims.keep(connection, never({j: one for j, one in made.items() if j not in since}), seen)


def _about_the_same(was: float | None, at: float, now: float) -> bool:
    """Return whether a rough forecast of a start (`at`) is so close to the stored one (`was`) that
    it need not be stored: within a tenth of the wait, or a minute. `was` is None where none is
    stored.
    """
    return was is not None and abs(at - was) <= max(60.0, 0.1 * (at - now))


def _answered(
    question: str,
    reply: Mapping[str, Any],
    now: float,
    claimed: tuple[Sequence[Claim], int],
    connection: Connection,
    _: list[Event],
) -> None:
    """Store the answer to a question, with the claims (predictions that can be checked later) that
    it makes, and delete old questions.
    """
    claims.keep(connection, *claimed)
    values = {"answer": canonical(reply), "answered_at": now}
    connection.execute(update(questions).where(questions.c.id == question).values(values))
    connection.execute(delete(questions).where(questions.c.asked_at < now - QUESTION_KEPT_S))


def _place(state: State, job_id: str) -> tuple[int, float]:
    record = state.ledger.records.get(job_id)
    if record is None or record.key is None:
        return 0, inf
    return -record.priority, record.key


def run_analyst(settings: Settings, stopping: Callable[[], bool]) -> None:
    """Run the analyst's process, which forecasts or stands by, until `stopping` returns True."""
    store = ThreadedStore(settings.database)
    store.go_on()
    # a forecast may wait for the processor, a decision may not: this thread takes less where all
    # want it, and does not interrupt who is at work when it wakes. With 10 and both of two cores
    # busy, most questions found no answer within 5 s; with 5 they have it after 3 s.
    os.nice(5)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    bundle_store = BundleStore(settings.state_dir / "bundles")
    analyst = Analyst(
        store,
        bundle_store,
        holder=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        lease_s=settings.lease_s,
        snapshots=StateCheckpoints(settings.state_dir / "snapshots", bundle_store.find),
    )
    analyst.run(stopping, max(settings.poll_s, PAUSE_S))
