"""When running jobs should have ended, by the progress that they print."""

from __future__ import annotations

import json

from sqlalchemy import Connection, and_, func, select

from scheduler.backends.events import Kind
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.tables import events, forecasts, jobs, on_gpus


def stated_ends(connection: Connection, now: float) -> dict[str, float]:
    """Return by when each running job that reports progress has ended with a probability of nine in
    ten, in seconds since the epoch, by job ID.

    That is the later of two times: the end that the job states, and the end in its last forecast
    (p90). A job that shares its GPUs runs slower than it states, so only the forecast counts. An
    end before `now` is left out.
    """
    latest = select(func.max(events.c.seq)).where(
        events.c.kind == Kind.PROGRESS.value, events.c.job_id == jobs.c.job_id
    )
    made = and_(forecasts.c.job_id == jobs.c.job_id, forecasts.c.basis == "latest")
    of = jobs.c
    query = (
        select(
            of.job_id,
            of.attempt,
            of.started_at,
            of.partner,
            forecasts.c.end_p90,
            latest.scalar_subquery().label("seq"),
        )
        .select_from(jobs.outerjoin(forecasts, made))
        .where(on_gpus, of.started_at.is_not(None))
    )
    runs = {row.seq: row for row in connection.execute(query) if row.seq is not None}
    if not runs:
        return {}
    rows = connection.execute(select(events).where(events.c.seq.in_(runs))).all()
    found = {}
    for event, text in zip(rows, bodies(connection, events, rows), strict=True):
        run, body = runs[event.seq], json.loads(text)
        if body.get("attempt", run.attempt) != run.attempt:
            continue  # of an earlier run
        alone = None if run.partner else run.started_at + body["progress"]["high_s"]
        ends = [at for at in (run.end_p90, alone) if at is not None]
        if ends and max(ends) > now:
            found[run.job_id] = max(ends)
    return found
