"""Advise and order: Slurm schedules, and this says what it would do, why, and when a job starts.

Once per interval the queue is read and drawn into a new core, which decides; nothing of that takes
effect. *Advise* changes nothing in Slurm. *Order* gives priorities to pending jobs so that Slurm
takes them in the core's order, and writes why they wait into AdminComment; each change is an
ORDERED event before it is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from features.schema import State as EndState
from models.bundle import BundleError
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError, quoted
from scheduler.backends.slurm.order import priorities
from scheduler.backends.slurm.parse import Node, ParseError, SlurmJob
from scheduler.backends.slurm.picture import HOLDING, Asking, Picture, draw, job_of
from scheduler.backends.slurm.queue import submission
from scheduler.backends.slurm.shape import Shape
from scheduler.decisions import Action, Decision
from scheduler.estimates import LiveEstimator
from scheduler.service.analyst.forecast import Forecast, Futures
from scheduler.service.analyst.memory import Memory
from scheduler.service.analyst.records import write as write_forecasts
from scheduler.service.bundles import Library, Signature, signature
from scheduler.service.events import Event, Kind, canonical
from scheduler.service.genesis import Genesis
from scheduler.service.ledger import Phase
from scheduler.service.settings import Settings
from scheduler.service.state import body_of
from scheduler.service.store.store import Lease, LeaseLost, Store
from scheduler.service.store.tables import decisions as decision_rows
from scheduler.service.store.tables import jobs as job_rows
from scheduler.service.store.visibility import sentence

LEASE = "decider"  # place and these exclude each other
NODES_EVERY = 10  # looks at the queue per look at the nodes
FORESEEN = 64  # waiting jobs, first in line, whose start is foreseen
BUDGET_S = 2.0  # processor seconds for that
OURS = "pellucid: "  # begins an AdminComment that may be overwritten
COMMENT_S = 300.0  # between two AdminComments of one job
AGAIN_S, LONGEST_S = 60.0, 7200.0  # until what Slurm refused is tried again, doubling
MOST = 2**31 - 1  # that the column of priorities holds; Slurm's own go up to twice that
SLURM = "easy"  # this policy stands for Slurm's own: its priorities, EASY backfilling
PRIORITY, COMMENT = "priority", "AdminComment"
_ENDS = {
    "COMPLETED": EndState.COMPLETED,
    "FAILED": EndState.FAILED,
    "CANCELLED": EndState.CANCELLED,
    "TIMEOUT": EndState.TIMEOUT,
    "OUT_OF_MEMORY": EndState.OUT_OF_MEMORY,
}


@dataclass(frozen=True, slots=True)
class Order:
    """A change to a pending job (or array). `what` is the field's name in Slurm."""

    job: str
    what: str
    value: int | str
    was: int | str

    def line(self) -> str:
        """The command for `scontrol`."""
        value = quoted(self.value) if isinstance(self.value, str) else self.value
        return f"update jobid={self.job} {self.what}={value}"

    def event(self, now: float, dry: bool) -> Event:
        if self.what == PRIORITY:
            body = {"was": self.was, "priority": self.value, "dry": dry}
        else:
            body = {"comment": self.value, "dry": dry}
        return Event(Kind.ORDERED, now, self.job, body=body)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of the latest order of a kind to a job: no other before `again_at`."""

    value: int | str
    again_at: float
    refusals: int = 0  # in a row


class Follower:
    """Reads, decides in the void, writes down.

    Args:
        store: None: nothing is written anywhere.
        shape: nodes by the core's numbers.
        order: set priorities, too.
        champion: folder of the champion bundle; looked at once per interval.
    """

    def __init__(
        self,
        genesis: Genesis,
        shape: Shape,
        slurm: Slurm,
        store: Store | None,
        *,
        order: bool = False,
        champion: Any = None,
        library: Library | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.genesis, self.shape, self.slurm, self.store = genesis, shape, slurm, store
        self.order, self.wall = order, wall
        self.memory = Memory(LiveEstimator(), asks=True)
        self.log = structlog.get_logger("follower")
        self.lease: Lease | None = None
        self._champion, self._library = champion, library
        self._champion_seen: Signature | None = None
        self._nodes: list[Node] = []
        self._looks = 0
        self._known: dict[str, str] = {}  # job -> phase as remembered
        self._ended: set[str] = set()
        self._heard = 0.0  # the latest time the histories were told or asked about
        self._told: dict[str, tuple[str, str]] = {}  # job -> action and reason last written
        self._rows: dict[str, dict[str, Any]] = {}
        self._numbered = 0
        self._tried: dict[tuple[str, str], Tried] = {}  # by job and field

    def look(self) -> Picture:
        """One interval. Raises SlurmDown, SlurmError, ParseError, LeaseLost."""
        if self._looks % NODES_EVERY == 0:
            self._nodes = self.slurm.nodes()
        self._looks += 1
        jobs = self.slurm.jobs()
        now = max(self.wall(), self._heard)  # clocks are set back; histories do not go back
        self._use_champion()
        self._remember(jobs, now)
        core = self.genesis.core(Asking(self.memory))  # type: ignore[arg-type]
        if isinstance(self.memory.inner, LiveEstimator) and self.memory.inner.bundle is not None:
            core.policy.use(self.memory.inner.bundle)
        by_slurm = self.genesis.policy == SLURM
        picture = draw(core, self.shape, jobs, self._nodes, now, by_slurm=by_slurm)
        made = self._foresee(picture)
        orders = self._orders(picture) if self.order else []
        if self.store is not None:
            self._write(picture, made, orders, now)
        self._carry_out(orders, now)
        self.log.info(
            "looked",
            running=len(picture.running),
            waiting=len(picture.waiting),
            left_out=len(picture.left_out),
            would_start=sum(d.job_id in core.cluster.runs for d in picture.decisions),
            ordered=sum(order.what == PRIORITY for order in orders),
            ms=round((self.wall() - now) * 1000),
        )
        return picture

    # --- what is learned ----------------------------------------------------------------------

    def _use_champion(self) -> None:
        found = signature(self._champion) if self._champion is not None else None
        if found is None or found == self._champion_seen or self._library is None:
            return
        self._champion_seen = found
        try:
            self.memory.use(self._library.take(self._champion))
        except (BundleError, OSError) as error:
            self.log.warning("bundle_refused", why=str(error))

    def _remember(self, jobs: Sequence[SlurmJob], now: float) -> None:
        """Tell the histories what happened since the last look, in the order it did."""
        mine = {j.id: j for j in jobs if j.gpus and j.partition in self.shape.spec.vcs}
        happened: list[tuple[float, int, SlurmJob]] = []  # when, 0 submitted 1 started 2 left
        for job in mine.values():
            stood = self._known.get(job.id)
            if job.id in self._ended:
                continue
            if stood is None:
                happened.append((job.submit, 0, job))
            if stood != "runs" and job.start is not None and job.state != "PENDING":
                happened.append((max(job.start, job.submit), 1, job))
            if job.state != "PENDING" and job.state not in HOLDING:
                happened.append((max(job.end or now, job.start or 0.0, job.submit), 2, job))
        for at, what, job in sorted(happened, key=lambda one: (one[0], one[1], one[2].id)):
            # what is only seen now is told now: a history never goes back
            self._heard = max(self._heard, min(at, now))
            self._tell(what, job, self._heard)
        for job_id in [j for j in self._known if j not in mine]:
            del self._known[job_id]
            self.memory.withdrawn(job_id, now)
        self._heard = now  # whoever came while `squeue` ran is told of as of now, next time
        self._ended = {j for j in self._ended if j in mine}

    def _tell(self, what: int, job: SlurmJob, at: float) -> None:
        if what == 0:
            self._known[job.id] = "waits"
            self.memory.submitted(replace(job_of(job), submit_time=at), at)
        elif what == 1:
            self._known[job.id] = "runs"
            self.memory.started(job.id, at)
        else:
            self._ended.add(job.id)
            ran_s = (job.end or at) - (job.start or at)
            if self._known.pop(job.id) == "runs" and job.state in _ENDS and ran_s > 0:
                self.memory.ended(job.id, _ENDS[job.state], ran_s, at)
            else:
                self.memory.withdrawn(job.id, at)

    def _foresee(self, picture: Picture) -> dict[str, Forecast]:
        futures = Futures(picture.core, self.memory, picture.now, seed=self._looks)
        first = picture.order[:FORESEEN]
        made = futures.forecast(first, budget_s=BUDGET_S) if first else {}
        return made | {job_id: futures.end_of(job_id) for job_id in picture.running}

    # --- what is ordered ----------------------------------------------------------------------

    def _orders(self, picture: Picture) -> list[Order]:
        """What is to be changed now: not what was refused or said a short while ago."""
        there = {name for job in picture.waiting for name in (job, _array(job))}
        self._tried = {key: tried for key, tried in self._tried.items() if key[0] in there}
        wanted = [*self._priorities(picture), *self._comments(picture)]
        return [order for order in wanted if self._is_due(order, picture.now)]

    def _is_due(self, order: Order, now: float) -> bool:
        tried = self._tried.get((order.job, order.what))
        if tried is None:
            return True
        shown = self.slurm.dry and tried.value == order.value
        return now >= tried.again_at and not shown

    def _priorities(self, picture: Picture) -> Iterator[Order]:
        for vc in self.shape.spec.vcs:
            now: dict[str, int] = {}
            for job_id in picture.order:
                job = picture.waiting[job_id]
                if job.partition == vc:  # tasks that wait in an array have one priority
                    now.setdefault(_array(job_id), job.priority)
            for job_id, priority in priorities(list(now.items())).items():
                yield Order(job_id, PRIORITY, priority, now[job_id])

    def _comments(self, picture: Picture) -> Iterator[Order]:
        """Why they wait, for those first in line and those told before.

        What the site wrote there stays. A task is not changed by itself: that would take it out of
        its array. Everybody may read it, so no other job is named.
        """
        said = {d.job_id: d for d in picture.decisions if d.action is Action.WAIT}
        for place, job_id in enumerate(picture.order):
            decision, there = said.get(job_id), picture.waiting[job_id].admin_comment
            ours = there.startswith(OURS) or (not there and place < FORESEEN)
            if decision is None or "_" in job_id or not ours:
                continue
            text = f"{OURS}{decision.reason}: {sentence(body_of(decision), ())}"
            if text != there:
                yield Order(job_id, COMMENT, text, there)

    def _carry_out(self, orders: Sequence[Order], now: float) -> None:
        """Raises SlurmDown, SlurmError."""
        if not orders:
            return
        try:
            answers = self.slurm.write([order.line() for order in orders])
        except (SlurmDown, SlurmError) as error:  # some may have been carried out
            self._note(orders, [str(error)] * len(orders), now)
            raise
        self._note(orders, answers, now)

    def _note(self, orders: Sequence[Order], answers: Sequence[str], now: float) -> None:
        """Remember what was answered; say what is refused for the first time."""
        first: list[tuple[Order, str]] = []
        for order, why in zip(orders, answers, strict=True):
            key = order.job, order.what
            if not why:
                pause = COMMENT_S if order.what == COMMENT else 0.0
                self._tried[key] = Tried(order.value, now + pause)
                continue
            before = self._tried[key].refusals if key in self._tried else 0
            if not before:
                first.append((order, why))
            pause = min(AGAIN_S * 2 ** min(before, 16), LONGEST_S)
            self._tried[key] = Tried(order.value, now + pause, before + 1)
        if first:
            order, why = first[0]
            self.log.warning(
                "slurm_refused",
                orders=len(first),
                command=order.line(),
                why=why,
                again_in_s=AGAIN_S,
                then=f"twice as late each time, up to {LONGEST_S:g} s, and not said again",
            )

    # --- what is written ----------------------------------------------------------------------

    def _write(
        self,
        picture: Picture,
        made: Mapping[str, Forecast],
        orders: Sequence[Order],
        now: float,
    ) -> None:
        assert self.store is not None
        fresh = [d for d in picture.decisions if self._is_new(d)]
        body = {
            "running": len(picture.running),
            "waiting": len(picture.waiting),
            "left_out": len(picture.left_out),
            "decisions": len(fresh),
        }
        events = [Event(Kind.ADVISED, now, body=body)]
        events += [order.event(now, self.slurm.dry) for order in orders]
        rows = self._all_rows(picture)
        changed = [row for job_id, row in rows.items() if self._rows.get(job_id) != row]
        gone = [job_id for job_id in self._rows if job_id not in rows]

        def tables(connection: Connection, appended: list[Event]) -> None:
            seq = appended[0].seq
            _write_decisions(connection, fresh, seq, self._numbered)
            _write_jobs(connection, changed, gone, seq, now)
            write_forecasts(connection, made, ("latest",))

        self.store.append(events, tables, lease=self.lease)
        self._numbered += len(fresh)
        self._rows = rows
        for d in fresh:
            self._told[d.job_id] = d.action.value, d.reason.value
        for job_id in gone:
            self._told.pop(job_id, None)

    def _is_new(self, d: Decision) -> bool:
        return self._told.get(d.job_id) != (d.action.value, d.reason.value)

    def _all_rows(self, picture: Picture) -> dict[str, dict[str, Any]]:
        reasons = {d.job_id: d.reason.value for d in picture.decisions}
        ranks = _ranks(picture.waiting) if self.genesis.policy == SLURM else {}
        found = {}
        for job_id, job in {**picture.running, **picture.waiting}.items():
            queued = picture.core.known(job_id)
            runs = job_id in picture.running
            run = picture.core.cluster.runs.get(job_id)
            held = zip(run.nodes, run.gpus, strict=True) if runs and run is not None else ()
            found[job_id] = _row(job) | {
                "phase": (Phase.RUNNING if runs else Phase.QUEUED).value,
                "reason": reasons.get(job_id) or self._rows.get(job_id, {}).get("reason", ""),
                "priority": ranks.get(job_id, 0),
                "key": queued.key,
                "estimate_s": queued.estimate_s,
                "nodes": canonical([[node, _indices(mask)] for node, mask in held]),
                "partner": run.partner.job.job_id if runs and run and run.partner else None,
                "detail": "" if runs else f"Slurm: {job.reason}",
            }
        for job_id, job in picture.aside.items():
            found[job_id] = _row(job) | {"detail": picture.left_out[job_id]}
        return found

    # --- life ---------------------------------------------------------------------------------

    def take_over(self, holder: str, lease_s: float) -> bool:
        """Take the lease and forget what an earlier follower wrote of live jobs. False: another
        has it."""
        assert self.store is not None
        self.lease = self.store.take(LEASE, holder, self.wall(), lease_s)
        if self.lease is None:
            return False

        def tables(connection: Connection, _: list[Event]) -> None:
            connection.execute(delete(job_rows).where(job_rows.c.ended_at.is_(None)))

        self.store.append([], tables, lease=self.lease)
        with self.store.reading() as connection:
            last = select(decision_rows.c.seq).order_by(decision_rows.c.seq.desc()).limit(1)
            found = connection.execute(last).scalar()
            self._numbered = 0 if found is None else found + 1
        return True

    def run(
        self, stopping: Callable[[], bool], holder: str, interval_s: float, lease_s: float
    ) -> None:
        """Follow until told to stop, while nobody else does."""
        due = 0.0
        while not stopping():
            try:
                if self.store is not None and self.lease is None:
                    if not self.take_over(holder, lease_s):
                        time.sleep(min(lease_s / 4, 1.0))
                    continue
                self._renew(lease_s)
                if time.monotonic() >= due:
                    due = time.monotonic() + interval_s
                    self.look()
            except LeaseLost as lost:
                self.log.warning("lease_lost", why=str(lost))
                self.lease = None
            except (SlurmDown, SlurmError, ParseError) as error:
                self.log.warning("slurm_unread", why=str(error))
            time.sleep(0.1)
        if self.lease is not None and self.store is not None:
            with suppress(LeaseLost):
                self.store.let_go(self.lease)
        self.slurm.close()

    def _renew(self, lease_s: float) -> None:
        if self.store is None or self.lease is None:
            return
        if self.lease.expires_at - self.wall() < lease_s * 2 / 3:
            self.lease = self.store.renew(self.lease, self.wall(), lease_s)


def _row(job: SlurmJob) -> dict[str, Any]:
    """The row of a job that is seen, and not decided about."""
    runs = job.state in HOLDING
    waits = not runs and job.priority != 0 and not job.dependency
    return {
        "job_id": job.id,
        "submitted_seq": int(job.submit),
        "owner": job.user[:128],
        "vc": job.partition,
        "name": job.name[:256],
        "gpus": job.gpus,
        "spec": canonical(submission(job, job.partition).body()),
        "phase": (Phase.RUNNING if runs else Phase.SUBMITTED).value,
        "reason": "",
        "priority": 0,
        "key": None,
        "estimate_s": None,
        "nodes": canonical([]),
        "partner": None,
        "submitted_at": job.submit,
        "queued_at": job.eligible if runs or waits else None,
        "started_at": job.start if runs else None,
    }


def _ranks(waiting: Mapping[str, SlurmJob]) -> dict[str, int]:
    """Slurm's priorities, all lowered by as much where one is above what the column holds.

    Slurm's have 32 bits and no sign (`priority/basic` counts down from near the top), the column
    31 and a sign: as many values, in the same order.
    """
    high = max((job.priority for job in waiting.values()), default=0)
    lower = MOST + 1 if high > MOST else 0
    return {job_id: min(job.priority - lower, MOST) for job_id, job in waiting.items()}


def _array(job_id: str) -> str:
    """The array a task is of, or the job itself."""
    return job_id.partition("_")[0]


def _indices(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def _write_decisions(
    connection: Connection, fresh: Sequence[Decision], seq: int, number: int
) -> None:
    rows = [
        {
            "seq": number + place,
            "event": seq,
            "at": d.time,
            "job_id": d.job_id,
            "vc": d.vc,
            "action": d.action.value,
            "reason": d.reason.value,
            "body": canonical({**body_of(d), "seq": number + place}),
        }
        for place, d in enumerate(fresh)
    ]
    if rows:
        connection.execute(insert(decision_rows), rows)


def _write_jobs(
    connection: Connection,
    changed: Sequence[Mapping[str, Any]],
    gone: Sequence[str],
    seq: int,
    now: float,
) -> None:
    ids = [row["job_id"] for row in changed]
    for i in range(0, len(ids), 500):
        connection.execute(delete(job_rows).where(job_rows.c.job_id.in_(ids[i : i + 500])))
    if changed:
        plain = {"attempt": 0, "cancel_asked": False, "updated_seq": seq}
        connection.execute(insert(job_rows), [{**plain, **row} for row in changed])
    if gone:
        statement = update(job_rows).where(job_rows.c.job_id == bindparam("left"))
        over = statement.values(phase=Phase.ENDED.value, ended_at=now, updated_seq=seq)
        connection.execute(over, [{"left": job_id} for job_id in gone])


def run_follower(settings: Settings, stopping: Callable[[], bool], holder: str = "") -> None:
    """The process of `advise` and `order`."""
    from scheduler.service.slurm import slurm_of

    os.nice(10)  # this and the `squeue` it runs wait for whoever else wants the processor
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    store = Store(settings.database)
    genesis = Genesis.from_body(store.read(limit=1)[0].body)
    follower = Follower(
        genesis,
        Shape(genesis.cluster, genesis.names, {}),
        slurm_of(settings),
        store,
        order=settings.slurm_mode == "order",
        champion=settings.bundle,
        library=Library(settings.state_dir / "bundles"),
    )
    follower.run(stopping, holder, settings.slurm_interval_s, settings.lease_s)
