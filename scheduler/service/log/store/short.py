"""Jobs without what they run, thousands at once: for tables of them, and for counting them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import RowMapping, func, select

from features.codec import decode
from scheduler.explain.causes import Causes, Other, Waiting, causes_of, of_slurm
from scheduler.explain.slurm import SlurmReason
from scheduler.service.log.record import Phase
from scheduler.service.log.store.rows import Line
from scheduler.service.log.store.tables import decisions, forecasts, jobs, live, nodes
from scheduler.service.log.store.visibility import shown_actor
from scheduler.service.log.store.visible_rows import VisibleRows

LIVE = [phase.value for phase in Phase if not phase.over]
OVER = [phase.value for phase in Phase if phase.over]
HOLDING = [phase.value for phase in Phase if phase.holds_gpus]
WAITING = [phase.value for phase in Phase if phase.waits]
FIGURES = 20_000  # rows that figures are computed from, latest first

_SHORT = (
    "job_id", "name", "owner", "vc", "gpus", "phase", "reason", "state", "hold", "held_by", "slurm",
    "submitted_at", "started_at", "held_at", "ended_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Short:
    """A job that is not over (or one that is, asked for by its ID), without what it runs.

    Attributes:
        account, qos: that it is billed to, and counts against; "" where there is no Slurm.
        partition: or virtual cluster.
        since: when it was submitted, held, started or over, whichever it stands at.
        slurm: JSON of an `explain.slurm.SlurmReason`; "": no Slurm has it.
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
        """Why it waits by its Slurm's own word."""
        return decode(SlurmReason, json.loads(self.slurm)) if self.slurm else SlurmReason()


class ShortRows(VisibleRows):
    """The viewer's jobs without what they run."""

    def short(self, *, job_id: str = "") -> list[Short]:
        """The viewer's jobs that are not over, in the order they were submitted, at most `FIGURES`;
        or the one of an ID, over or not."""
        latest = (forecasts.c.job_id == jobs.c.job_id) & (forecasts.c.basis == "latest")
        query = (
            select(*(jobs.c[name] for name in _SHORT), forecasts.c.start_p50, forecasts.c.start_p90)
            .select_from(jobs.outerjoin(forecasts, latest))
            .where(self._mine(), jobs.c.job_id == job_id if job_id else live)
            .order_by(jobs.c.submitted_seq)
            .limit(FIGURES)
        )
        return [self._short(row) for row in self._all(query)]

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
        """The latest decision about each of some jobs of the viewer's."""
        if not ids:
            return {}
        mine = self._visible(ids)
        last = select(func.max(decisions.c.seq)).where(decisions.c.job_id.in_(mine))
        rows = self._all(select(decisions).where(
            decisions.c.seq.in_(last.group_by(decisions.c.job_id))))  # fmt: skip
        return {
            row["job_id"]: line for row, line in zip(rows, self._decision_lines(rows), strict=True)
        }

    def lent(self) -> frozenset[int]:
        """Nodes that belong to the profiling partition for good."""
        query = select(nodes.c.node).where(nodes.c.profiling)
        return frozenset(row["node"] for row in self._all(query))

    def causes(self, now: float) -> Causes:
        """Those of the viewer's jobs that wait, by cause; and who are waited for among them all."""
        every = self.short()
        waits = [job for job in every if job.phase in WAITING]
        lines = self.latest_decisions([job.job_id for job in waits])
        found = [_waiting(job, lines.get(job.job_id)) for job in waits]
        others = {job.job_id: Other(job.job_id, job.owner, job.phase) for job in every}
        return causes_of(found, others, now)


def _waiting(job: Short, line: Line | None) -> Waiting:
    """A job that waits, and for whom by the latest decision about it."""
    body = line.body if line is not None else {}
    named = {one for one in (body.get("blocker"), *body.get("held_by", ())) if one is not None}
    if job.slurm and not job.hold:
        found = of_slurm(job.job_id, job.gpus, job.since, job.why())
        return replace(found, waits_for=found.waits_for | named)
    return Waiting(
        job_id=job.job_id,
        gpus=job.gpus,
        code="held" if job.hold else job.reason,
        since=job.since,
        waits_for=frozenset() if job.hold else frozenset(named),
    )
