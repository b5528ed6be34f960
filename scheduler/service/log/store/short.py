"""Queries that return thousands of jobs at once, without their commands, for tables and for
counts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    RowMapping,
    Select,
    case,
    func,
    literal,
    literal_column,
    select,
)

from features.codec import decode
from scheduler.explain.causes import Causes, Other, Waiting, causes_of, of_slurm
from scheduler.service.log.record import Phase
from scheduler.service.log.store import of_slurm as slurms
from scheduler.service.log.store.rows import Line
from scheduler.service.log.store.tables import (
    by_id,
    decisions,
    digits_of,
    forecasts,
    jobs,
    live,
    nodes,
    not_over,
    waiting_from,
)
from scheduler.service.log.store.visibility import shown_actor
from scheduler.service.log.store.visible_rows import VisibleRows
from scheduler.slurm.reason import SlurmReason

LIVE = [phase.value for phase in Phase if not phase.over]
OVER = [phase.value for phase in Phase if phase.over]
HOLDING = [phase.value for phase in Phase if phase.holds_gpus]
WAITING = [phase.value for phase in Phase if phase.waits]
FIGURES = 20_000  # rows that figures are computed from, latest first

_SHORT = (
    "job_id", "name", "owner", "vc", "gpus", "phase", "reason", "state", "hold", "held_by", "slurm",
    "submitted_at", "started_at", "held_at", "ended_at",
)  # fmt: skip


class Key(NamedTuple):
    """A job, and the value by which a table is sorted."""

    job_id: str
    name: str
    value: Any


class Tally(NamedTuple):
    """How many jobs are alike in what a table of jobs is filtered by. `gpus`: whether they ask for
    any.
    """

    owner: str
    account: str
    partition: str
    phase: str
    gpus: bool
    jobs: int


class Own(NamedTuple):
    """The figures of a job that are added up for its owner. `since`: when its phase last changed,
    seconds since the epoch.
    """

    gpus: int
    phase: str
    since: float | None


@dataclass(frozen=True, slots=True)
class Short:
    """The fields of a job that a list shows. Jobs that have ended appear only where they were asked
    for by their id.

    Attributes:
        account, qos: Slurm account that is charged, and QOS that limits the job; "" without a
            Slurm.
        partition: partition or virtual cluster.
        since: time of the last change of its phase: submitted, held, started or ended; seconds
            since the epoch.
        slurm: JSON of a `slurm.reason.SlurmReason`; "" without a Slurm.
    """

    job_id: str
    name: str
    owner: str
    partition: str
    account: str
    qos: str
    gpus: int
    phase: str
    reason: str
    state: str | None
    hold: str
    held_by: str
    since: float | None
    start_p50: float | None
    start_p90: float | None
    slurm: str

    def why(self) -> SlurmReason:
        """Return why the job waits according to Slurm; an empty reason where the job is not in a
        Slurm.
        """
        return decode(SlurmReason, json.loads(self.slurm)) if self.slurm else SlurmReason()


_START = forecasts.c.start_p50, forecasts.c.start_p90
_HELD_AT = case((jobs.c.hold != "", jobs.c.held_at))
# fields of `Short` as expressions, of jobs that are not over
_FIELDS: dict[str, ColumnElement[Any]] = {
    **{name: jobs.c[name] for name in ("job_id", "name", "owner", "gpus", "phase", "reason")},
    "account": slurms.account,
    "qos": slurms.qos,
    "partition": slurms.partition,
    "since": func.coalesce(_HELD_AT, jobs.c.started_at, jobs.c.submitted_at),
    "start_p50": case((jobs.c.phase.in_(WAITING), forecasts.c.start_p50)),
}


def _having(only: dict[str, str]) -> list[ColumnElement[bool]]:
    return [_FIELDS[name] == wanted for name, wanted in only.items() if wanted]


def _batches(ids: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    """Yield the ids in batches of `size`, because one SQL statement takes no more than some
    thousands of values.
    """
    return (ids[i : i + size] for i in range(0, len(ids), size))


class ShortRows(VisibleRows):
    """Queries for the jobs that the viewer may see, without their commands."""

    def short(self) -> list[Short]:
        """Return the jobs that the viewer may see and that have not ended, in the order they were
        submitted: at most the first `FIGURES`.
        """
        query = self._of_jobs(*(jobs.c[name] for name in _SHORT), *_START).where(live)
        return [self._short(row) for row in self._all(query.limit(FIGURES))]

    def named(self, ids: Sequence[str]) -> list[Short]:
        """Return the jobs of `ids` that the viewer may see, ended or not, in the order of `ids`."""
        found: dict[str, Short] = {}
        query = self._of_jobs(*(jobs.c[name] for name in _SHORT), *_START)
        for some in _batches(ids):
            rows = self._all(query.where(jobs.c.job_id.in_(some)))
            found |= {row["job_id"]: self._short(row) for row in rows}
        return [found[job_id] for job_id in ids if job_id in found]

    def keys(self, by: str, *, gpus: bool, **only: str) -> list[Key]:
        """Return id, name and sort value of each job that the viewer may see, that has not ended
        and that matches, in the order they were submitted. The number of jobs is not limited.

        Args:
            by: a field of `Short`, by which the table is sorted.
            gpus: True: only jobs that ask for GPUs; False: only jobs that ask for none.
            only: values that owner, account, partition and phase must have; "": any.
        """
        query = self._of_jobs(jobs.c.job_id, jobs.c.name, _FIELDS[by]).where(
            live, jobs.c.gpus > 0 if gpus else jobs.c.gpus == 0, *_having(only)
        )
        with self._engine.connect() as connection:
            return [Key(*row) for row in connection.execute(query).all()]

    def own(self, **only: str) -> list[Own]:
        """Return the figures of the jobs that the viewer may see and that have not ended. `only`:
        values that owner and account must have; "": any.
        """
        query = self._of_jobs(jobs.c.gpus, jobs.c.phase, _FIELDS["since"]).where(live)
        with self._engine.connect() as connection:
            return [Own(*row) for row in connection.execute(query.where(*_having(only))).all()]

    def tally(self) -> list[Tally]:
        """Return the numbers of jobs that the viewer may see and that have not ended, one record
        for each set of jobs that are alike in what a table is filtered by.
        """
        fields = [_FIELDS[name].label(name) for name in Tally._fields[:4]]
        every = select(*fields, (jobs.c.gpus > 0).label("gpus")).where(live, self._mine())
        by = every.subquery().c
        with self._engine.connect() as connection:
            rows = connection.execute(select(*by, func.count()).group_by(*by)).all()
        return [Tally._make(row) for row in rows]

    def in_order(
        self,
        limit: int,
        *,
        gpus: bool,
        back: bool = False,
        after: str = "",
        first: int = 0,
        **only: str,
    ) -> list[str]:
        """Return the ids of at most `limit` jobs that the viewer may see and that have not ended,
        in the order of a table of jobs (`tables.by_id`). An index has that order, so that jobs
        beyond `limit` cost nothing.

        Args:
            gpus: True: only jobs that ask for GPUs; False: only jobs that ask for none.
            back: the last ones first.
            after: the id of a job, whether it exists or not; only those after it. "": from the
                first one.
            first: how many are left out.
            only: values that owner, account, partition and phase must have; "": any.
        """
        which = [not_over, jobs.c.gpus > 0 if gpus else jobs.c.gpus == 0]
        if only.get("phase") == Phase.QUEUED:  # most are: an index of phases would sort them all
            which.append(jobs.c.phase.concat(literal_column("''")) == only.pop("phase"))
        which += _having(only)
        if only.get("owner") or not self.viewer.sees_all:
            which += live, self._mine()  # of an owner's jobs there is another index
        digits, name = by_id
        query = select(jobs.c.job_id).where(*which)
        rest = query.order_by(*(one.desc() if back else one for one in by_id))
        parts = [rest]
        if after:
            size = literal(digits_of(after))
            alike = query.where(digits == size, name < after if back else name > after)
            parts = [
                alike.order_by(name.desc() if back else name),
                rest.where(digits < size if back else digits > size),
            ]
        found = list[str]()
        with self._engine.connect() as connection:
            for part in parts:
                if (left := limit - len(found)) > 0:
                    found += connection.execute(part.offset(first).limit(left)).scalars()
        return found

    def _of_jobs(self, *columns: ColumnElement[Any]) -> Select[Any]:
        latest = (forecasts.c.job_id == jobs.c.job_id) & (forecasts.c.basis == "latest")
        foreseen = any(
            column is one for column in columns for one in (*_START, _FIELDS["start_p50"])
        )
        source = jobs.outerjoin(forecasts, latest) if foreseen else jobs
        query = select(*columns).select_from(source).where(self._mine())
        return query.order_by(jobs.c.submitted_seq)

    def _short(self, row: RowMapping) -> Short:
        asked = json.loads(row["slurm"]) if row["slurm"] else {}
        over, waits = row["phase"] in OVER, row["phase"] in WAITING
        moments = (row["ended_at"] if over else None, row["held_at"] if row["hold"] else None,
                   row["started_at"], row["submitted_at"])  # fmt: skip
        return Short(
            job_id=row["job_id"],
            name=row["name"],
            owner=row["owner"],
            partition=asked.get("partition") or row["vc"],
            account=asked.get("account") or "",
            qos=asked.get("qos") or "",
            gpus=row["gpus"],
            phase=row["phase"],
            reason=row["reason"],
            state=row["state"],
            hold=row["hold"],
            held_by=shown_actor(self.viewer, row["held_by"]),
            since=next((at for at in moments if at is not None), None),
            start_p50=row["start_p50"] if waits else None,
            start_p90=row["start_p90"] if waits else None,
            slurm=row["slurm"] or "",
        )

    def latest_decisions(self, ids: Collection[str]) -> dict[str, Line]:
        """Return the latest decision about each of the jobs `ids` that the viewer may see, by job
        ID.
        """
        if not ids:
            return {}
        mine = self._visible(ids)
        last = select(func.max(decisions.c.seq)).where(decisions.c.job_id.in_(mine))
        rows = self._all(
            select(decisions).where(decisions.c.seq.in_(last.group_by(decisions.c.job_id)))
        )
        return {
            row["job_id"]: line for row, line in zip(rows, self._decision_lines(rows), strict=True)
        }

    def lent(self) -> frozenset[int]:
        """Return the numbers of the nodes that belong to the profiling partition for good."""
        query = select(nodes.c.node).where(nodes.c.profiling)
        return frozenset(row["node"] for row in self._all(query))

    def causes(self, now: float) -> Causes:
        """Count by cause the waiting jobs that the viewer may see. Return the counts, and those
        visible jobs for which they wait.

        The database counts: it returns one row for each cause and each set of jobs waited for.
        Where a job's latest decision is in the archive, it returns one row for that job.
        """
        waits = self._waiting()
        named = self._named()
        ids = sorted({one for wait in (*waits, *named) for one in wait.waits_for})
        others = dict[str, Other]()
        for some in _batches(ids):
            query = select(jobs.c.job_id, jobs.c.owner, jobs.c.phase)
            rows = self._all(query.where(live, jobs.c.job_id.in_(some), self._mine()))
            others |= {row["job_id"]: Other(**row) for row in rows}
        return causes_of(waits, others, now, named)

    def _waiting(self) -> list[Waiting]:
        """Return the waiting jobs that the viewer may see, one record for all jobs with the same
        cause.
        """
        held = jobs.c.hold != ""
        since = func.coalesce(_HELD_AT, waiting_from, jobs.c.submitted_at)
        of = [case((held, ""), else_=column).label(name) for name, column in slurms.CAUSE.items()]
        reason = case((held, "held"), else_=jobs.c.reason).label("reason")
        by = (reason, jobs.c.slurm.is_not(None) & ~held, *of)
        order = (since.is_(None), since, jobs.c.submitted_seq)
        ranked = (
            select(
                jobs.c.job_id,
                reason,
                *of,
                since.label("since"),
                by[1].label("in_slurm"),
                func.sum(jobs.c.gpus).over(partition_by=by).label("gpus"),
                func.count().over(partition_by=by).label("jobs"),
                func.row_number().over(partition_by=by, order_by=order).label("place"),
            )
            .where(live, jobs.c.phase.in_(WAITING), self._mine())
            .subquery()
        )
        return [_together(row) for row in self._all(select(ranked).where(ranked.c.place == 1))]

    def _named(self) -> list[Waiting]:
        """Return for which other jobs the waiting jobs that the viewer may see wait, by the latest
        decision about each. Jobs that wait for the same ones are counted in one record; each job
        whose decision is in the archive has a record of its own. Records have no job id. Held jobs
        are left out.
        """
        every = decisions.alias()
        latest = select(func.max(every.c.seq)).where(every.c.job_id == jobs.c.job_id)
        blocker, held_by = (
            slurms.field_of(decisions.c.body, name).label(name) for name in ("blocker", "held_by")
        )
        other = case((blocker != jobs.c.job_id, blocker), else_="").label("blocker")
        source = jobs.join(decisions, decisions.c.seq == latest.scalar_subquery())
        waits = live, jobs.c.phase.in_(WAITING), jobs.c.hold == "", self._mine()
        query = (
            select(other, held_by, func.count().label("jobs"), func.sum(jobs.c.gpus).label("gpus"))
            .select_from(source)
            .where(*waits, decisions.c.body != "")
            .group_by(other, held_by)
        )
        found = [
            ({row["blocker"], *json.loads(row["held_by"] or "[]")}, row["jobs"], row["gpus"])
            for row in self._all(query)
        ]
        columns = decisions.c.seq, decisions.c.body, jobs.c.job_id, jobs.c.gpus
        moved = select(*columns).select_from(source).where(*waits, decisions.c.body == "")
        rows = self._all(moved.order_by(decisions.c.seq))
        for row, text in zip(rows, self._bodies(decisions, rows), strict=True):
            body = json.loads(text)
            named = {body.get("blocker") or "", *(body.get("held_by") or ())} - {row["job_id"]}
            found.append((named, 1, row["gpus"]))
        return [
            Waiting(job_id="", gpus=gpus, code="", waits_for=frozenset(named - {""}), jobs=count)
            for named, count, gpus in found
            if named - {""}
        ]


def _together(row: RowMapping) -> Waiting:
    """Return one record for all waiting jobs with the same cause, from the row of the job that
    waits longest.
    """
    if not row["in_slurm"]:
        found = Waiting(
            job_id=row["job_id"], gpus=row["gpus"], code=row["reason"], since=row["since"]
        )
    else:
        known = {name: row[name] for name in ("code", "meaning", "dependency")}
        limit = {"limit": json.loads(row["limit"])} if row["limit"] else {}
        reason = decode(SlurmReason, {**known, **limit})
        found = of_slurm(row["job_id"], row["gpus"], row["since"], reason)
    return replace(found, jobs=row["jobs"])
