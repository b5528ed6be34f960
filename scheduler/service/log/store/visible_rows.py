"""Rows of the tables that one viewer may see. The queries by subject, in `reads`, are built on
these.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Engine, RowMapping, Select, Table, and_, select, true

from features.codec import Json
from scheduler.backends.events import Kind
from scheduler.core.decisions import Decision, Reason
from scheduler.explain.belief import ALIKE
from scheduler.explain.claims import Record
from scheduler.explain.reasons import next_step, sentence
from scheduler.job_rows import job_row
from scheduler.service.log.record import Phase
from scheduler.service.log.store import archive
from scheduler.service.log.store.claims import records
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.rows import (
    JobRow,
    Line,
)
from scheduler.service.log.store.stated import stated_ends
from scheduler.service.log.store.tables import decisions, events, forecasts, jobs
from scheduler.service.log.store.visibility import (
    Viewer,
    redacted_decision,
    shown_actor,
)

MAX_PAGE = 500
MOST_NEAR = 1000  # of the latest jobs, among whose ids a similar one is looked for


class VisibleRows:
    """The rows that one viewer may see, with only the columns that may be shown."""

    def __init__(self, engine: Engine, viewer: Viewer, bundles: Path | None = None):
        self._engine, self._bundles = engine, bundles
        self.viewer = viewer

    def _mine(self) -> ColumnElement[bool]:
        """Return an SQL condition that holds for the jobs that the viewer may see."""
        if self.viewer.sees_all:
            return true()
        if self.viewer.only:
            return and_(jobs.c.owner == self.viewer.name, jobs.c.job_id == self.viewer.only)
        return jobs.c.owner == self.viewer.name

    def not_there(self, job_id: str, *, of_slurm: bool = False) -> str:
        """Return that the viewer may see no such job, as text, with what may have been meant: a
        similar id among the latest jobs that they may see. No job that the viewer may not see is
        hinted at.

        Args:
            of_slurm: whether the jobs are those of a Slurm, whose ids are numbers.
        """
        shown, latest = job_id[:64], self._latest_ids()
        text = f"there is no such job{'' if self.viewer.sees_all else ' of yours'}: {shown}"
        array, _, number = shown.rpartition("_")
        numbered = number.isascii() and number.isdecimal()
        if (
            not self.viewer.only
            and array
            and numbered
            and any(one.rpartition("_")[0] == array for one in latest)
        ):
            return f"{text}; array {array} has no task {number}"
        near = get_close_matches(shown, latest, n=1, cutoff=0.8)
        if near:
            return f"{text}; did you mean {near[0]}?"
        if shown.isdecimal() and not of_slurm:
            such = f": ids here look like {latest[0]}" if latest else ""
            return f"{text}; no Slurm is behind this service{such}"
        return text

    def _latest_ids(self) -> list[str]:
        query = select(jobs.c.job_id).where(self._mine()).order_by(jobs.c.submitted_seq.desc())
        return [row["job_id"] for row in self._all(query.limit(MOST_NEAR))]

    def _sees(self, row: RowMapping) -> bool:
        """Return whether the viewer may see the job of a row (`owner`, `job_id`)."""
        return self.viewer.sees(row["owner"], row["job_id"])

    def _visible(self, ids: Collection[str | None]) -> set[str]:
        """Return which of `ids` are jobs that the viewer may see. None and "" are left out."""
        wanted = [job_id for job_id in set(ids) if job_id]
        if not wanted:
            return set()
        query = select(jobs.c.job_id).where(jobs.c.job_id.in_(wanted), self._mine())
        return {row["job_id"] for row in self._all(query)}

    def alike(self, job: JobRow) -> list[float]:
        """Return how many seconds the latest ended jobs of the same owner and name ran, the
        last to end first; at most `ALIKE`, among the `MAX_PAGE` that the owner submitted last.
        The job itself is left out. A job without a name has no such jobs."""
        if not job.name:
            return []
        own = jobs.c.owner == job.owner, self._mine()
        latest = select(jobs.c.job_id).where(*own).order_by(jobs.c.submitted_seq.desc())
        query = (
            select(jobs.c.ended_at - jobs.c.started_at)
            .where(jobs.c.job_id.in_(latest.limit(MAX_PAGE)), jobs.c.name == job.name)
            .where(jobs.c.job_id != job.job_id, jobs.c.ended_at > jobs.c.started_at)
            .order_by(jobs.c.ended_at.desc())
        )
        with self._engine.connect() as connection:
            return list(connection.execute(query.limit(ALIKE)).scalars())

    def claims(self, now: float) -> list[Record]:
        """Return how often claims (predictions shown to people) came true, by kind, over the jobs
        of all users.
        """
        with self._engine.connect() as connection:
            return records(connection, now)

    def _stated_ends(self, now: float) -> dict[str, float]:
        """Return by when each running job of any user that reports progress has ended with a
        probability of nine in ten, in seconds since the epoch, by job ID.
        """
        with self._engine.connect() as connection:
            return stated_ends(connection, now)

    def _job_rows(self, rows: Sequence[RowMapping]) -> list[JobRow]:
        visible = self._visible([row["partner"] for row in rows])
        starts = self._starts([row["job_id"] for row in rows if Phase(row["phase"]).waits])
        found = []
        for row in rows:
            by = shown_actor(self.viewer, row["held_by"])
            seen = {"held_by": by, **starts.get(row["job_id"], {})}
            found.append(replace(job_row(row, visible), **seen))
        return found

    def _starts(self, ids: list[str]) -> dict[str, RowMapping]:
        """Return the latest forecast of the start of each of these waiting jobs, by job ID."""
        query = select(forecasts.c.job_id, *(forecasts.c[name] for name in _FORECAST)).where(
            forecasts.c.basis == "latest", forecasts.c.job_id.in_(ids)
        )
        rows = self._all(query) if ids else []
        return {row["job_id"]: row for row in rows}

    def _decision_lines(self, rows: Sequence[RowMapping]) -> list[Line]:
        bodies = [json.loads(text) for text in self._bodies(decisions, rows)]
        others = [body.get(who) for body in bodies for who in ("blocker", "partner")]
        others += [job for body in bodies for job in body.get("held_by", ())]
        visible, mends = self._visible(others), self._mends()
        return [
            Line(
                at=row["at"] - mends.late_s(row["event"]),
                seq=row["seq"],
                kind="decision",
                text=sentence(Decision.from_body(body), visible),
                next_step=next_step(Reason(body["reason"])),
                body={**redacted_decision(body, visible), "event": row["event"]},
            )
            for row, body in zip(rows, bodies, strict=True)
        ]

    def _bodies(self, table: Table, rows: Sequence[RowMapping]) -> list[str]:
        """Return the bodies of rows of `events` or `decisions`, in the order of `rows`. Bodies that
        were moved are read from the archive.
        """
        with self._engine.connect() as connection:
            return archive.bodies(connection, table, rows)

    def _mends(self) -> Mends:
        with self._engine.connect() as connection:
            return Mends.of(connection)

    def _all(self, query: Select[Any]) -> Sequence[RowMapping]:
        with self._engine.connect() as connection:
            return connection.execute(query).mappings().all()

    def _one(self, query: Select[Any]) -> RowMapping:
        return self._all(query)[0]

    def _count(self, query: Select[Any]) -> int:
        with self._engine.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def _some(self, query: Select[Any], limit: int) -> tuple[Sequence[RowMapping], bool]:
        """Return the first `limit` rows of a query, and whether there are more. A `limit` outside 1
        to `MAX_PAGE` is brought into that range.
        """
        limit = max(1, min(limit, MAX_PAGE))
        rows = self._all(query.limit(limit + 1))
        return rows[:limit], len(rows) > limit

    def _last(self, kind: Kind) -> Json | None:
        """Return the body of the last event of a kind, or None where there is none."""
        query = select(events.c.body).where(events.c.kind == kind.value)
        rows = self._all(query.order_by(events.c.seq.desc()).limit(1))
        return json.loads(rows[0]["body"]) if rows else None


_FORECAST = ("start_p10", "start_p50", "start_p90", "why_not", "estimate")
