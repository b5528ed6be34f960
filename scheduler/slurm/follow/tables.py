"""Writes a follower's results into the tables of its service, and reads them back when a follower
starts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, true, update

from features.states import State
from scheduler.backends.events import Kind
from scheduler.backends.submission import Submission
from scheduler.service.log.forecasts import RECALLED
from scheduler.service.log.nodes import NodeRecord
from scheduler.service.log.record import Phase
from scheduler.service.log.store import chain
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts
from scheduler.service.log.store.tables import jobs as job_rows
from scheduler.service.log.store.tables import nodes as node_rows
from scheduler.slurm.follow.histories import LEARNED, Ended
from scheduler.slurm.follow.promises import BEGIN, Promises
from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.job_states import STATES
from scheduler.slurm.read.parse import Node as SlurmNode
from scheduler.slurm.read.past import past
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.snapshot import job_of

CHUNK = 500  # jobs named in one statement
ACCOUNTED_DAYS = 7  # as many as `Memory` keeps


def write_jobs(
    connection: Connection,
    changed: Sequence[Mapping[str, Any]],
    gone: Sequence[str],
    seq: int,
    now: float,
) -> None:
    """Replace the rows of changed jobs. Jobs in `gone`, which Slurm does not show any more, are
    marked as ended in an unknown way."""
    ids = [row["job_id"] for row in changed]
    for i in range(0, len(ids), CHUNK):
        connection.execute(delete(job_rows).where(job_rows.c.job_id.in_(ids[i : i + CHUNK])))
    if changed:
        plain = {"attempt": 0, "cancel_asked": False, "updated_seq": seq}
        connection.execute(insert(job_rows), [{**plain, **row} for row in changed])
        for i in range(0, len(ids), CHUNK):
            chain.cover_those(connection, job_rows, job_rows.c.job_id.in_(ids[i : i + CHUNK]))
    if gone:
        statement = update(job_rows).where(job_rows.c.job_id == bindparam("left"))
        over = statement.values(phase=Phase.ENDED.value, ended_at=now, updated_seq=seq)
        connection.execute(over, [{"left": job_id} for job_id in gone])
        for i in range(0, len(gone), CHUNK):
            chain.cover_those(connection, job_rows, job_rows.c.job_id.in_(gone[i : i + CHUNK]))


def write_nodes(connection: Connection, shape: Shape, seen: Sequence[SlurmNode]) -> None:
    """Replace the rows of nodes by Slurm's present nodes."""
    by_name = {node.name: node for node in seen}
    rows = []
    for number, (name, has) in enumerate(zip(shape.names, shape.spec.nodes(), strict=True)):
        node = by_name[name]
        why = "" if node.open else " ".join(filter(None, (node.state, node.reason)))
        rows.append(NodeRecord(number, name, has, open=node.open, reason=why).row())
    chain.take_out(connection, node_rows, true())
    chain.write(connection, node_rows, rows)


def ended_jobs(connection: Connection, now: float) -> list[Ended]:
    """Return the `RECALLED` jobs submitted last of those that are known to have run and ended by
    `now`, the latest first."""
    row = job_rows.c
    query = (
        select(row.spec, row.estimate_s, row.started_at, row.ended_at, row.state)
        .where(
            row.state.in_([state.value for state in LEARNED]),
            row.started_at >= row.submitted_at,
            row.ended_at > row.started_at,
            row.ended_at <= now,
        )
        .order_by(row.submitted_seq.desc())
        .limit(RECALLED)
    )
    return [
        Ended(
            job=Submission.from_body(json.loads(found.spec)).job(),
            predicted_s=found.estimate_s,
            started_at=found.started_at,
            ended_at=found.ended_at,
            state=State(found.state),
        )
        for found in connection.execute(query)
    ]


def accounted(slurm: Slurm, vc_of: Callable[[str], str]) -> list[Ended]:
    """Return the jobs of followed partitions that ran and ended in the last `ACCOUNTED_DAYS` days,
    as `sacct` shows them: the `RECALLED` submitted last, in order of submission. Raise SlurmDown or
    SlurmError where it does not answer or fails.

    Args:
        vc_of: function that returns the virtual cluster of partitions; "" where none is followed.
    """
    found = (
        (one, vc, STATES[one.state])
        for one in past(slurm, "", ACCOUNTED_DAYS)
        if (vc := vc_of(one.partition)) and STATES[one.state] in LEARNED
    )
    made = [
        Ended(
            job=job_of(one, vc),
            predicted_s=None,
            started_at=one.start,
            ended_at=one.end,
            state=state,
        )
        for one, vc, state in found
        if one.start is not None and one.end is not None and one.submit <= one.start < one.end
    ]
    return sorted(made, key=lambda one: one.job.submit_time)[-RECALLED:]


def promises_of(store: Store, connection: Connection) -> Promises:
    """Return the correction that an earlier follower had learned, and the starts that it promised
    to jobs whose start or end it did not see. Without an earlier follower, both are as at the
    beginning."""
    last = store.last_in(connection, Kind.ADVISED)
    if last is None:
        return Promises()
    late = (float(last.body.get(n, at)) for n, at in zip(("p50_at", "stretch"), BEGIN, strict=True))
    found = Promises((next(late), next(late)), float(last.body.get("unread_since") or last.at))
    of = forecasts.c
    live = select(of.job_id, of.start_p50, of.start_p90).where(
        of.basis == "submission", of.job_id.not_in(select(job_rows.c.job_id))
    )
    for job_id, p50, p90 in connection.execute(live):
        found.recall(job_id, p50, p90)
    return found
