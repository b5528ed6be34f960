"""Writes decisions as rows. A decision that gives a job a new reason to wait deletes the job's
latest forecast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, delete, select

from scheduler.core.decisions import Action, Decision
from scheduler.service.log.store import chain
from scheduler.service.log.store.tables import decisions, forecasts

# From then on a job waits, for another reason than before or for the first time.
WAITS_AGAIN = (Action.WAIT, Action.PREEMPT)


def write_decisions(
    connection: Connection, made: Sequence[Decision], texts: Sequence[str], event: int
) -> None:
    """Write decisions as rows, and delete the latest forecasts of jobs that have a new reason to
    wait. `texts`: the canonical JSON of each decision; `event`: `seq` of the event of their
    decision pass.
    """
    rows = [
        {
            "seq": d.seq,
            "event": event,
            "at": d.time,
            "job_id": d.job_id,
            "vc": d.vc,
            "action": d.action.value,
            "reason": d.reason.value,
            "body": text,
        }
        for d, text in zip(made, texts, strict=True)
    ]
    chain.write(connection, decisions, rows)
    if outdated := [{"job": d.job_id} for d in made if d.action in WAITS_AGAIN]:
        of = forecasts.c
        connection.execute(
            delete(forecasts).where(of.job_id == bindparam("job"), of.basis == "latest"), outdated
        )
        chain.gone(connection, forecasts, [f"{one['job']}/latest" for one in outdated])


def waiting_again(connection: Connection, job_ids: Collection[str], since: int) -> set[str]:
    """Return which of the jobs `job_ids` were given a new reason to wait after the event
    `since`.
    """
    of = decisions.c
    again: ColumnElement[bool] = of.action.in_([action.value for action in WAITS_AGAIN])
    query = select(of.job_id).where(of.job_id.in_(job_ids), of.event > since, again)
    return set(connection.scalars(query))
