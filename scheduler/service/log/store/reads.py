"""Queries over the tables, with results limited to what the viewer may see.

Every page and every route reads through `VisibleQueries`; there is no other way to the rows, so
none can forget who is asking. Lists are paged by key: a cursor names the last row seen, and the
next page starts after that row, whatever was added or removed meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Engine,
    Float,
    FromClause,
    RowMapping,
    Select,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
)

from features.codec import Json, decode
from features.states import State
from scheduler.backends.events import Kind
from scheduler.core.capacity import NodeNow
from scheduler.core.cluster import suits
from scheduler.core.decisions import ANOTHER, DEPENDS, STARTS, Action, Reason
from scheduler.core.plural import count
from scheduler.core.receipts import Receipt
from scheduler.explain.bound import MOST, Ahead, Bound, bound
from scheduler.explain.bound import Held as Holder
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.explain.life import Held
from scheduler.explain.words import WAITS_FOR_ENDS, overtaking
from scheduler.job_rows import job_row
from scheduler.service.log.nodes import change_words, closed_gpus_of
from scheduler.service.log.record import Phase
from scheduler.service.log.store.leases import lease_of
from scheduler.service.log.store.meanwhile import held_meanwhile
from scheduler.service.log.store.paging import BadCursor, cursor, opened
from scheduler.service.log.store.payloads import command_of
from scheduler.service.log.store.rows import (
    Calibration,
    Day,
    Gpu,
    JobRow,
    Line,
    Models,
    Node,
    Page,
    QueueEntry,
    Refusal,
    Share,
    VcLoad,
)
from scheduler.service.log.store.short import ShortRows
from scheduler.service.log.store.tables import (
    decisions,
    events,
    forecasts,
    jobs,
    live,
    nodes,
    on_gpus,
    waited,
)
from scheduler.service.log.store.visibility import (
    Viewer,
    shown_actor,
    shown_event,
)
from scheduler.service.log.store.visible_rows import MAX_PAGE

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")  # 12+1: of a heterogeneous job
ARRAY = re.compile(r"([0-9a-z]{1,20})(?:_\[[^/]*\])?")  # as submit, sbatch or squeue names it
QUEUED = Phase.QUEUED.value


class UnknownJob(LookupError):
    """Raised if a job does not exist or the viewer may not see it. The two cases look the same."""


class Chosen(NamedTuple):
    """Which jobs are wanted, by phase, virtual cluster, owner and array; None means any. With
    `over` False, jobs that have ended are left out.
    """

    phase: str | None = None
    over: bool = True
    vc: str | None = None
    owner: str | None = None
    array: str | None = None


ALL = Chosen()


def _tasks(array_id: str) -> ColumnElement[bool]:
    return jobs.c.job_id.startswith(f"{array_id}_", autoescape=True)


class Reads:
    """The queries of one database. `bundles`: folder with copies of all bundles of models that were
    in use; None: unknown.
    """

    def __init__(self, engine: Engine, bundles: Path | None = None):
        self.engine, self.bundles = engine, bundles

    def seen_by(self, viewer: Viewer) -> VisibleQueries:
        """Return the queries with which `viewer` reads the database."""
        return VisibleQueries(self.engine, viewer, self.bundles)

    def exists(self, job_id: str) -> bool:
        """Return whether there is a job with this id, whoever may see it. Only for the log of
        refused requests; no user learns the answer.
        """
        if not JOB_ID.fullmatch(job_id):
            return False
        query = select(func.count()).where(jobs.c.job_id == job_id)
        with self.engine.connect() as connection:
            return bool(connection.execute(query).scalar_one())


class VisibleQueries(ShortRows):
    """The queries of one viewer. Their results hold only what this viewer may see."""

    # --- jobs -------------------------------------------------------------------------------

    def job(self, job_id: str) -> JobRow:
        """Return the job with this id. Raise UnknownJob where the viewer may not see it, or there
        is none.
        """
        if not JOB_ID.fullmatch(job_id):
            raise UnknownJob(job_id)
        found = self._all(select(jobs).where(jobs.c.job_id == job_id, self._mine()))
        if not found:
            raise UnknownJob(job_id)
        job = self._job_rows(found)[0]
        with self._engine.connect() as connection:
            command = command_of(connection, job_id)
        return job if command is None else replace(job, command=command)

    def keeps_decider(self) -> str:
        """Return as text what the decider process prepares, or what has kept it busy for long.
        Return "" if nothing of note.
        """
        with self._engine.connect() as connection:
            lease = lease_of(connection, "decider")
        return lease.doing if lease is not None else ""

    def task_of(self, job_id: str) -> str:
        """Return the job id that an id stands for. An array stands for the first of its waiting
        tasks, else of those on GPUs, else the last of those that ended; tasks that the viewer may
        not see do not count. A heterogeneous job stands for its first component. Any other id is
        returned unchanged.
        """
        named = ARRAY.fullmatch(job_id)
        found = jobs.c.job_id, jobs.c.phase
        if named is None or self._all(select(*found).where(jobs.c.job_id == job_id)):
            return job_id

        def rank(row: RowMapping) -> tuple[bool, bool, int]:
            phase, number = Phase(row["phase"]), int(row["job_id"].split("_")[1])
            return phase.over, not phase.waits, -number if phase.over else number

        tasks = self._all(select(*found).where(_tasks(named[1]), self._mine()))
        if not tasks and named[1] == job_id:
            part = select(*found).where(jobs.c.job_id == f"{job_id}+0", self._mine())
            return f"{job_id}+0" if self._all(part) else job_id
        return str(min(tasks, key=rank)["job_id"]) if tasks else job_id

    def those(self, ids: Iterable[str]) -> list[JobRow]:
        """Return the jobs with these ids that the viewer may see, in no particular order."""
        wanted = [job_id for job_id in ids if JOB_ID.fullmatch(job_id)]
        return self._job_rows(
            self._all(select(jobs).where(jobs.c.job_id.in_(wanted), self._mine()))
        )

    def tasks(self, array_id: str) -> list[JobRow]:
        """Return the tasks of an array of jobs that the viewer may see; [] when the id is not an
        array's.
        """
        if ARRAY.fullmatch(array_id) is None:
            return []
        return self._job_rows(self._all(select(jobs).where(_tasks(array_id), self._mine())))

    def fresh(self, row: Mapping[str, Any]) -> JobRow:
        """Return a job that the viewer has just submitted. `row`: its row of the table `jobs`,
        which need not be stored yet.
        """
        return job_row(row, ())

    def jobs(
        self, chosen: Chosen = ALL, *, limit: int = 50, after: str | None = None
    ) -> Page[JobRow]:
        """Return a page of the jobs that the viewer may see, those submitted last first. `after`:
        cursor of the page before; None: the first page.
        """
        query = select(jobs).where(self._mine()).order_by(jobs.c.submitted_seq.desc())
        for name in ("phase", "vc", "owner"):
            if (wanted := getattr(chosen, name)) is not None:
                query = query.where(jobs.c[name] == wanted)
        if chosen.array is not None:
            query = query.where(_tasks(chosen.array))
        if not chosen.over:
            query = query.where(live)
        if after is not None:
            (last,) = opened(after, int)
            query = query.where(jobs.c.submitted_seq < last)
        rows, more = self._some(query, limit)
        return Page(self._job_rows(rows), cursor(rows[-1]["submitted_seq"]) if more else None)

    def standing(self, job_id: str, priority: int | None = None) -> Standing | None:
        """Return the position of a waiting job in its queue, or the position it would have with
        another priority. Return None if it is in no queue. Raise UnknownJob if the viewer may not
        see it.
        """
        self.job(job_id)
        row = self._one(select(jobs).where(jobs.c.job_id == job_id))
        if row["phase"] != QUEUED:
            return None
        waiting = and_(jobs.c.phase == QUEUED, jobs.c.vc == row["vc"])
        place = _place(row, priority)
        parts = select(func.count()).where(waiting), *_counts_before(waiting, place)
        query = select(*(part.scalar_subquery().label(f"n{i}") for i, part in enumerate(parts)))
        counted: Any = self._one(query).values()
        total, *ahead = counted
        itself = _place(row) < place  # where it now is
        return Standing(sum(ahead) - itself + 1, total)

    def queue(self, vc: str, *, limit: int = 50, after: str | None = None) -> Page[QueueEntry]:
        """Return a page of the queue of a virtual cluster in the policy's order. Of jobs that the
        viewer may not see only the places are shown. `after`: cursor of the page before; None: the
        first page.
        """
        query = select(jobs).where(jobs.c.phase == QUEUED, jobs.c.vc == vc).order_by(*_ORDER)
        passed = 0
        if after is not None:
            passed, seq = opened(after, int, int)
            query = query.where(_after(self._place_of(vc, seq)))
        rows, more = self._some(query, limit)
        shown = iter(self._job_rows([row for row in rows if self._sees(row)]))
        entries = []
        for position, row in enumerate(rows, passed + 1):
            if self._sees(row):
                job = next(shown)
                entries.append(QueueEntry(vc, position, job.name or job.job_id, job))
            else:
                entries.append(QueueEntry(vc, position, ANOTHER))
        if not more:
            return Page(entries)
        # not its priority and key: the last row may be another's, and a cursor can be read
        return Page(entries, cursor(position, row["submitted_seq"]))

    def _place_of(self, vc: str, seq: int) -> Place:
        """Return the place in line of the job that event `seq` submitted to a virtual cluster.
        Raise BadCursor where it submitted none."""
        named = jobs.join(events, events.c.job_id == jobs.c.job_id)
        query = select(jobs).select_from(named).where(events.c.seq == seq)
        rows = self._all(query.where(jobs.c.submitted_seq == seq, jobs.c.vc == vc))
        if not rows:
            raise BadCursor("cursor: not one that a page gave out")
        return _place(rows[0])

    # --- the cluster ------------------------------------------------------------------------

    def cluster(self) -> list[Node]:
        """Return every node with its GPUs and the jobs on each GPU. A job that the viewer may not
        see is "another job".
        """
        on: dict[tuple[int, int], list[str]] = {}
        placed = select(jobs.c.job_id, jobs.c.owner, jobs.c.nodes).where(on_gpus)
        for row in self._all(placed.order_by(jobs.c.started_at, jobs.c.submitted_seq)):
            label = row["job_id"] if self._sees(row) else ANOTHER
            for node, gpus in json.loads(row["nodes"]):
                for gpu in gpus:
                    on.setdefault((node, gpu), []).append(label)
        return [
            Node(
                node=row["node"],
                name=row["name"],
                vc=row["vc"],
                gpu_type=row["gpu_type"],
                open=row["open"],
                gpus=_gpus(row, on),
                gpu_memory_mib=row["gpu_memory_mib"],
                profiling=row["profiling"],
                change=change_words(row["change"]),
                reason=row["reason"],
                actor=shown_actor(self.viewer, row["actor"]) if row["actor"] else "",
                since=row["since"],
            )
            for row in self._all(select(nodes).order_by(nodes.c.node))
        ]

    def load(self) -> list[VcLoad]:
        """Return the number of nodes, GPUs and jobs of each virtual cluster."""
        counts: dict[tuple[str, str], int] = {}
        counted = select(jobs.c.vc, jobs.c.phase, func.count().label("n")).where(live)
        for row in self._all(counted.group_by(jobs.c.phase, jobs.c.vc)):
            counts[row["vc"], row["phase"]] = row["n"]
        lent, by_vc = self.lent(), dict[str, list[Node]]()
        for node in self.cluster():
            by_vc.setdefault(node.vc, []).append(node)
        loads = []
        for vc, members in by_vc.items():
            own = [node for node in members if node.node not in lent]
            gpus = sum(len(node.gpus) for node in own)
            free = sum(len(node.free) for node in own)
            loads.append(
                VcLoad(
                    vc=vc,
                    nodes=len(own),
                    gpus=gpus,
                    free=free,
                    waiting=counts.get((vc, QUEUED), 0),
                    running=counts.get((vc, Phase.RUNNING.value), 0),
                    profiling=sum(len(node.gpus) for node in members) - gpus,
                    closed=sum(not gpu.jobs for node in own for gpu in node.gpus) - free,
                )
            )
        return loads

    def nodes_now(self) -> list[NodeNow]:
        """Return every node with the number of jobs on each of its GPUs."""
        lent = self.lent()
        return [
            NodeNow(
                number=node.node,
                vc=node.vc,
                gpu_type=node.gpu_type,
                open=node.open,
                lent=node.node in lent,
                jobs=tuple(len(gpu.jobs) for gpu in node.gpus),
                closed=sum(1 << gpu.index for gpu in node.silent),
            )
            for node in self.cluster()
        ]

    def vcs(self) -> list[str]:
        """Return the names of the virtual clusters, in the order of their first nodes."""
        first = func.min(nodes.c.node)
        return [r["vc"] for r in self._all(select(nodes.c.vc).group_by(nodes.c.vc).order_by(first))]

    # --- why --------------------------------------------------------------------------------

    def decisions(self, job_id: str) -> list[Line]:
        """Return the latest `MAX_PAGE` decisions about a job, the oldest first. Raise UnknownJob
        where the viewer may not see the job.
        """
        self.job(job_id)
        query = select(decisions).where(decisions.c.job_id == job_id)
        rows = self._all(query.order_by(decisions.c.seq.desc()).limit(MAX_PAGE))
        return self._decision_lines(rows[::-1])

    def story(self, job_id: str) -> list[Line]:
        """Return events and decisions of a job in the order they took effect, the latest `MAX_PAGE`
        of each. Raise UnknownJob where the viewer may not see the job.
        """
        lines = [(line.body["event"], 1, line.seq, line) for line in self.decisions(job_id)]
        query = select(events).where(events.c.job_id == job_id).order_by(events.c.seq.desc())
        rows, mends = self._all(query.limit(MAX_PAGE)), self._mends()
        for row, text in zip(rows, self._bodies(events, rows), strict=True):
            body = shown_event(self.viewer, row["kind"], json.loads(text))
            if body is not None:
                actor = shown_actor(self.viewer, row["actor"])
                at = row["at"] - mends.late_s(row["seq"])
                line = Line(at, row["seq"], row["kind"], "", actor=actor, body=body)
                lines.append((row["seq"], 0, row["seq"], line))
        return [line for *_, line in sorted(lines, key=lambda entry: entry[:3])]

    def overtaken(self, job_id: str) -> dict[str, int]:
        """Return how many other jobs overtook a job, by reason. Such jobs were submitted later to
        its virtual cluster, but got GPUs while it waited. One that started twice meanwhile, in the
        same way, counts once. A profiling run counts if the other job ended in it.

        Decisions made after the decision to start this job do not count, even if it began a little
        later. Raise UnknownJob where the viewer may not see this job.
        """
        job = self._one(select(jobs).where(jobs.c.job_id == self.job(job_id).job_id))
        until = job["started_at"] or job["ended_at"]
        fewer = (jobs.c.gpus < job["gpus"]).label("fewer")
        alike = jobs.c.priority == job["priority"]
        before = or_(jobs.c.priority > job["priority"], and_(alike, jobs.c.key < self._key(job)))
        ahead = func.coalesce(before, false()).label("ahead")
        how = decisions.c.action, decisions.c.reason, ahead, fewer

        def starts(of: FromClause) -> ColumnElement[bool]:
            return of.c.action.in_([move.value for move in STARTS])

        other = decisions.alias()
        whole = and_(
            decisions.c.action == Action.PROFILE.value,
            jobs.c.ended_at.is_not(None),
            ~exists().where(other.c.job_id == jobs.c.job_id, starts(other)),
        )
        query = (
            select(*how, func.count(decisions.c.job_id.distinct()).label("n"))
            .select_from(decisions.join(jobs, jobs.c.job_id == decisions.c.job_id))
            .where(jobs.c.vc == job["vc"], jobs.c.submitted_seq > job["submitted_seq"])
            .where(or_(starts(decisions), whole))
            .where(decisions.c.at >= job["submitted_at"])
            # by an index: most decisions are of those who wait
            .where(decisions.c.action.in_([Action.PROFILE.value, *(one.value for one in STARTS)]))
            .where(decisions.c.event > job["submitted_seq"])
        )
        given = or_(starts(decisions), decisions.c.action == Action.PROFILE.value)
        mine = select(func.max(decisions.c.seq).label("seq")).where(given)
        own = self._one(mine.where(decisions.c.job_id == job["job_id"]))["seq"]
        if job["started_at"] is not None and own is not None:
            query = query.where(decisions.c.seq < own)
        elif until is not None:
            query = query.where(decisions.c.at < until)
        by: dict[str, int] = {}
        for row in self._all(query.group_by(*how)):
            how_far = {name: bool(row[name]) for name in ("ahead", "fewer")}
            why = overtaking(Action(row["action"]), Reason(row["reason"]), **how_far)
            by[why] = by.get(why, 0) + row["n"]
        return by

    def _key(self, job: RowMapping) -> ColumnElement[float]:
        """Return an SQL expression for the key (order within the queue) that a waiting job had at
        the time of a decision. The key changes with each new prediction.
        """
        bodies = [line.body for line in self.decisions(job["job_id"])]
        known = [(body["event"], body.get("priority")) for body in bodies]
        keys = [(event, key) for event, key in known if key is not None] or [(0, job["key"])]
        last = keys[-1][1]
        changes = [
            (decisions.c.event < event, literal(key, Float))
            for (_, key), (event, other) in pairwise(keys)
            if key != other
        ]
        return case(*changes, else_=literal(last, Float)) if changes else literal(last, Float)

    def held(self, job: JobRow, spells: Sequence[tuple[float, float]], now: float) -> list[Held]:
        """Return the jobs that had GPUs of a job's virtual cluster while that job waited, those of
        most GPU-time first. Jobs that the viewer may not see are called "another job". `spells`:
        the waits as (from, to), seconds since the epoch.
        """
        with self._engine.connect() as connection:
            return held_meanwhile(
                connection=connection, job=job, spells=spells, now=now, sees=self._sees
            )

    def joined_by(self, job_id: str) -> Line | None:
        """Return the decision that put another job on the GPUs of this job. Return None where this
        job shares with none now, or was itself put beside the other.

        That decision is about the other job. If the viewer may not see the other job, only the
        predicted speeds remain of it.
        """
        self.job(job_id)
        other = select(jobs.c.partner).where(jobs.c.job_id == job_id).scalar_subquery()
        query = select(decisions).where(decisions.c.job_id == other, decisions.c.action == "pack")
        rows = self._all(query.order_by(decisions.c.seq.desc()).limit(1))
        if not rows or json.loads(self._bodies(decisions, rows)[0]).get("partner") != job_id:
            return None
        line = self._decision_lines(rows)[0]
        if self._visible([rows[0]["job_id"]]):
            return line
        shown = ("action", "reason", "time", "speeds")
        kept = {name: value for name, value in line.body.items() if name in shown}
        return Line(line.at, line.seq, line.kind, "", body=kept)

    def forecast(self, job_id: str, basis: str = "latest") -> StartForecastRow | None:
        """Return a forecast of a job, or None where there is none. Raise UnknownJob where the
        viewer may not see the job. `basis`: "submission" for its first forecast, "latest" for its
        last.
        """
        self.job(job_id)
        rows = self._all(
            select(forecasts).where(forecasts.c.job_id == job_id, forecasts.c.basis == basis)
        )
        return decode(StartForecastRow, rows[0]) if rows else None

    def receipt(self, job_id: str) -> Receipt | None:
        """Return the figures from which the end of a running job was forecast (its receipt), or
        None where they are not kept.
        """
        self.job(job_id)
        of = forecasts.c
        rows = self._all(select(of.receipt).where(of.job_id == job_id, of.basis == "latest"))
        return Receipt.read(json.loads(rows[0]["receipt"] or "[]")) if rows else None

    def bound(self, job_id: str, now: float, standing: Standing | None = None) -> Bound:
        """Return the latest time at which a waiting job starts; where it is not known, `missing`
        says why. Raise UnknownJob where the viewer may not see the job. `standing`: its place in
        its queue, where it is known.

        There are two such times: one if running jobs run to their time limits, and one if they end
        when their own progress says. Jobs before this one in the queue run to their limits in both.
        If it is in no queue yet, all waiting jobs count as before it.
        """
        self.job(job_id)
        if standing is not None and standing.position - 1 > MOST:
            return _too_many(standing.position - 1)
        row = self._one(select(jobs).where(jobs.c.job_id == job_id))
        if row["reason"] in DEPENDS:
            return Bound(missing=WAITS_FOR_ENDS)
        ahead = jobs.c.submitted_seq != row["submitted_seq"]
        if row["phase"] == QUEUED:
            ahead = and_(ahead, _before(_place(row)))
        wanted = json.loads(row["spec"]).get("gpu_type")
        return self.bound_of(row["vc"], row["gpus"], wanted, now=now, ahead=ahead)

    def bound_of(
        self,
        vc: str,
        gpus: int,
        gpu_type: str | None,
        now: float,
        ahead: ColumnElement[bool] | None = None,
    ) -> Bound:
        """Return the latest time at which a job that asks for so many GPUs starts; where it is not
        known, `missing` says why.

        Args:
            gpu_type: the type of GPU that it asks for; None: any.
            ahead: condition for the waiting jobs of its virtual cluster that are before it; None:
                all are.
        """
        waits = and_(jobs.c.phase == QUEUED, jobs.c.vc == vc)
        lent = self.lent()
        of_vc = select(nodes.c.node, nodes.c.gpus, nodes.c.gpu_type, nodes.c.closed_gpus)
        has = {
            r["node"]: r["gpus"] - len(closed_gpus_of(r["closed_gpus"]))
            for r in self._all(of_vc.where(nodes.c.vc == vc, nodes.c.open))
            if r["node"] not in lent and suits(r["gpu_type"], gpu_type)
        }
        seen, before = (jobs.c.gpus, jobs.c.spec), waits if ahead is None else and_(waits, ahead)
        there = self._count(select(func.count()).where(before))
        if there > MOST:
            return _too_many(there)
        query = select(*seen).where(before).order_by(*_ORDER)
        runs, stated = [], self._stated_ends(now)
        for run in self._all(
            select(*seen, jobs.c.job_id, jobs.c.nodes, jobs.c.started_at).where(on_gpus)
        ):
            held = {node: numbers for node, numbers in json.loads(run["nodes"]) if node in has}
            limit_s = json.loads(run["spec"]).get("time_limit_s")
            if held:
                since = now if run["started_at"] is None else run["started_at"]
                until = None if limit_s is None else since + limit_s
                runs.append(Holder(held, until, stated.get(run["job_id"])))
        waiting = [
            Ahead(r["gpus"], json.loads(r["spec"]).get("time_limit_s")) for r in self._all(query)
        ]
        return bound(nodes=has, runs=runs, ahead=waiting, gpus=gpus, now=now)

    # --- figures ----------------------------------------------------------------------------

    def fairness(self, since: float = 0.0) -> list[Share]:
        """Return GPU-time and waits of started jobs that ended at or after `since`, for each
        virtual cluster as a whole (user "") and for the users the viewer may see.
        """
        figures = (
            func.count().label("jobs"),
            func.sum(jobs.c.gpus * (jobs.c.ended_at - jobs.c.started_at)).label("gpu_time_s"),
            func.avg(waited).label("mean_wait_s"),
            func.max(waited).label("max_wait_s"),
        )
        ended = and_(jobs.c.ended_at >= since, jobs.c.started_at.is_not(None))
        whole = select(jobs.c.vc, *figures).where(ended).group_by(jobs.c.vc)
        users = (
            select(jobs.c.vc, jobs.c.owner.label("user"), *figures)
            .where(ended, self._mine())
            .group_by(jobs.c.vc, jobs.c.owner)
        )
        shares = [Share(**{"user": "", **row}) for row in (*self._all(whole), *self._all(users))]
        return sorted(shares, key=lambda share: (share.vc, share.user))

    def history(self, since: float = 0.0, vc: str | None = None) -> list[Day]:
        """Return figures of started jobs that ended at or after `since`, one record for each day on
        which any ended, over all users. `vc`: virtual cluster; None: all.
        """
        day = func.floor(jobs.c.ended_at / 86_400) * 86_400
        query = select(
            day.label("day"),
            func.count().label("jobs"),
            func.count().filter(jobs.c.state == State.FAILED.value).label("failed"),
            func.sum(jobs.c.gpus * (jobs.c.ended_at - jobs.c.started_at)).label("gpu_time_s"),
            func.avg(waited).label("mean_wait_s"),
            func.avg(jobs.c.ended_at - jobs.c.submitted_at).label("mean_jct_s"),
        ).where(jobs.c.ended_at >= since, jobs.c.started_at.is_not(None))
        if vc is not None:
            query = query.where(jobs.c.vc == vc)
        return [Day(**row) for row in self._all(query.group_by("day").order_by("day"))]

    def calibration(self, since: float = 0.0) -> Calibration:
        """Return how the forecasts made at submission turned out, over all jobs that started at
        or after `since`."""
        made = forecasts.c
        known = and_(made.start_p50.is_not(None), made.start_p90.is_not(None))
        left_open = and_(known, made.start_p50 < made.start_p90)
        ended = and_(known, jobs.c.state == State.COMPLETED.value, made.end_p50.is_not(None))
        query = (
            select(
                func.count().filter(known).label("jobs"),
                _share(jobs.c.started_at <= made.start_p50, known).label("start_p50"),
                _share(jobs.c.started_at <= made.start_p90, known).label("start_p90"),
                func.count().filter(left_open).label("open_jobs"),
                _share(jobs.c.started_at <= made.start_p50, left_open).label("open_start_p50"),
                _share(jobs.c.started_at <= made.start_p90, left_open).label("open_start_p90"),
                func.count().filter(ended).label("end_jobs"),
                _share(jobs.c.ended_at <= made.end_p50, ended).label("end_p50"),
                _share(jobs.c.ended_at <= made.end_p90, ended).label("end_p90"),
                func.count().filter(~known).label("unavailable"),
            )
            .select_from(forecasts.join(jobs, jobs.c.job_id == made.job_id))
            .where(made.basis == "submission", jobs.c.started_at >= since)
        )
        return Calibration(**self._one(query))

    def models(self) -> Models:
        """Return the policy that decides now, and the bundle of models that makes its scores."""
        header, bundle = self._last(Kind.HEADER), self._last(Kind.BUNDLE)
        path = bundle["path"] if bundle and self.viewer.sees_all else ""
        return Models(header["policy"] if header else "", bundle["digest"] if bundle else "", path)

    def bundle(self) -> Json:
        """Return path and digest of the bundle of models in use, or {} when there is none. Not to
        be shown to users.
        """
        body = self._last(Kind.BUNDLE) or {}
        if body and self._bundles is not None:  # where it came from another may lie by now, or none
            body = {**body, "path": str(self._bundles / body["digest"])}
        return body

    def refusals(self, *, limit: int = 50, after: str | None = None) -> Page[Refusal]:
        """Return a page of refused requests, latest first. It is empty for all but operators."""
        if not self.viewer.sees_all:
            return Page([])
        query = select(events).where(events.c.kind == Kind.REFUSED).order_by(events.c.seq.desc())
        if after is not None:
            (last,) = opened(after, int)
            query = query.where(events.c.seq < last)
        rows, more = self._some(query, limit)
        found = [Refusal(r["seq"], r["at"], r["actor"], json.loads(r["body"])) for r in rows]
        return Page(found, cursor(found[-1].seq) if more else None)

    def last_seq(self) -> int:
        """Return the `seq` of the last event, or 0 when there is none. It changes whenever anything
        in the service does.
        """
        return self._count(select(func.coalesce(func.max(events.c.seq), 0)))


# The order of a queue (`scheduler.core.queue.QueuedJob`): priority, then the policy's key, then
# arrival. A job without a key comes last.
_LAST = 1e300
_ORDER = (
    -jobs.c.priority,
    func.coalesce(jobs.c.key, literal_column("1e300", Float)),
    jobs.c.submitted_seq,
)
Place = tuple[int, float, int]


def _gpus(row: RowMapping, on: Mapping[tuple[int, int], list[str]]) -> list[Gpu]:
    """Return the GPUs of a row of `nodes`, each with its jobs. A GPU that does not answer also has
    why and since when. `on`: labels of jobs by (node, GPU).
    """
    closed = {one.gpu: one for one in closed_gpus_of(row["closed_gpus"])}
    found = []
    for i in range(row["gpus"]):
        gpu = Gpu(i, on.get((row["node"], i), []))
        if (one := closed.get(i)) is not None:
            gpu = replace(gpu, closed=one.why, closed_since=one.since)
        found.append(gpu)
    return found


def _place(row: RowMapping, priority: int | None = None) -> Place:
    asked = row["priority"] if priority is None else priority
    return -asked, _LAST if row["key"] is None else row["key"], row["submitted_seq"]


def _before(place: Place) -> ColumnElement[bool]:
    return tuple_(*_ORDER) < place


def _counts_before(waiting: ColumnElement[bool], place: Place) -> Iterator[Select[Any]]:
    """Yield queries whose sum is the number of waiting jobs before a place. Each counts a range of
    the index of places, which costs a third of a comparison with each job, as `_before` makes.
    """
    same: list[ColumnElement[bool]] = []
    for term, value in zip(_ORDER, place, strict=True):
        yield select(func.count()).where(waiting, *same, term < value)
        same.append(term == value)


def _too_many(ahead: int) -> Bound:
    return Bound(missing=f"{count(ahead, 'job')} are before it")


def _after(place: Place) -> ColumnElement[bool]:
    return tuple_(*_ORDER) > place


def _share(kept: ColumnElement[bool], among: ColumnElement[bool]) -> ColumnElement[Any]:
    """Return an SQL expression for the share of the rows `among` for which `kept` is true; it
    gives NULL when there are no such rows."""
    return func.count().filter(and_(among, kept)) * 1.0 / func.nullif(func.count().filter(among), 0)
