"""Which jobs had GPUs of a virtual cluster while another job waited for GPUs there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, or_, select, union_all

from scheduler.core.decisions import ANOTHER, CHANGES_GPUS, Action, Reason
from scheduler.explain.life import Held, had, runs_of, seconds_before
from scheduler.service.log.record import HOLDS
from scheduler.service.log.store import archive
from scheduler.service.log.store.mends import Mends
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.tables import decisions, jobs, nodes


def held_meanwhile(
    connection: Connection,
    job: JobRow,
    spells: Sequence[tuple[float, float]],
    now: float,
    sees: Callable[[RowMapping], bool],
) -> list[Held]:
    """Return the jobs that had GPUs of a job's virtual cluster while that job waited, most GPU-time
    first. Jobs that had GPUs for less than a second are left out.

    Args:
        job: the job that waited.
        spells: the spans of its wait, as (from, to), seconds since the epoch, in order.
        now: the present time, seconds since the epoch.
        sees: returns whether the viewer may see the job of a row. Other jobs are called "another
            job".
    """
    if not spells:
        return []
    (began, _), (_, over) = spells[0], spells[-1]
    # One index for each, not all decisions ever made: that grows with the jobs that have ended.
    of = select(jobs.c.job_id)
    was_there = union_all(
        of.where(jobs.c.ended_at > began),
        of.where(jobs.c.phase.in_([phase.value for phase in HOLDS])),
        of.where(jobs.c.started_at.is_not(None), jobs.c.ended_at.is_(None)),
    )
    borrowed = decisions.c.reason == Reason.BORROWED.value
    query = (
        select(decisions, *(jobs.c[name] for name in _OF_JOB), jobs.c.vc.label("of_vc"))
        .select_from(decisions.join(jobs, jobs.c.job_id == decisions.c.job_id))
        .where(decisions.c.action.in_([move.value for move in CHANGES_GPUS]), decisions.c.at < over)
        .where(jobs.c.job_id.in_(was_there), jobs.c.job_id != job.job_id)
        .where(or_(jobs.c.vc == job.vc, borrowed))
    )
    rows = sorted(connection.execute(query).mappings(), key=lambda row: row["seq"])
    gpus, mends = _gpus_there(connection, job.vc, rows), Mends.of(connection)
    runs = runs_of(
        (row["job_id"], row["at"] - mends.late_s(row["event"]), gpus[row["seq"]]) for row in rows
    )
    waited, found = seconds_before(spells), []
    for row in {row["job_id"]: row for row in rows}.values():
        end, started = row["ended_at"], runs[row["job_id"]][-1][0]
        if part := had(waited, runs[row["job_id"]], end):
            most, seconds, gpu_s = part
            one = Held(
                job_id=ANOTHER,
                vc=row["of_vc"],
                gpus=most,
                seconds=seconds,
                gpu_s=gpu_s,
                estimate_s=None,
                ran_s=None,
                runs=end is None,
            )
            if sees(row):
                ran_s, predicted_s = (now if end is None else end) - started, row["estimate_s"]
                one = replace(one, job_id=row["job_id"], estimate_s=predicted_s, ran_s=ran_s)
            found.append(one)
    return sorted(found, key=lambda one: -one.gpu_s)


_OF_JOB = ("owner", "gpus", "ended_at", "estimate_s")


def _gpus_there(connection: Connection, vc: str, rows: Sequence[RowMapping]) -> dict[int, int]:
    """Return how many GPUs of a virtual cluster each decision left its job with, by the decision's
    `seq`. `rows`: rows of the decisions.
    """
    gives = {
        row["seq"]: 0 if row["action"] == Action.PREEMPT.value else row["gpus"] for row in rows
    }
    odd = [
        row
        for row in rows
        if row["reason"] == Reason.BORROWED.value or row["action"] == Action.RESIZE.value
    ]
    if not odd:
        return gives
    own = set(connection.execute(select(nodes.c.node).where(nodes.c.vc == vc)).scalars())
    for row, text in zip(odd, archive.bodies(connection, decisions, odd), strict=True):
        body = json.loads(text)
        given = zip(body["nodes"], body["gpus"], strict=True)
        gives[row["seq"]] = sum(mask.bit_count() for node, mask in given if node in own)
    return gives
