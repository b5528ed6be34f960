"""Writes forecasts to the database, and reads ended jobs from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from sqlalchemy import Connection, delete, select

from features.codec import Json
from scheduler.backends.events import Event, canonical
from scheduler.backends.submission import Submission
from scheduler.explain.claims import NEVER_S, Claim
from scheduler.explain.claims import Kind as Claimed
from scheduler.explain.whatif.forecasts import FIGURES, LEAST, StartForecast
from scheduler.explain.whatif.memory import SubmittedJob
from scheduler.explain.words import ForecastKind
from scheduler.service.log.store import chain
from scheduler.service.log.store.tables import forecasts, jobs

RECALLED = 20_000  # ended jobs that are recalled from the table


def ended(connection: Connection) -> list[SubmittedJob]:
    """Return the jobs that ran and have ended: the `RECALLED` that were submitted last, the latest
    first.
    """
    query = (
        select(jobs.c.spec, jobs.c.estimate_s, jobs.c.started_at, jobs.c.ended_at)
        .where(jobs.c.started_at.is_not(None), jobs.c.ended_at.is_not(None))
        .order_by(jobs.c.submitted_seq.desc())
        .limit(RECALLED)
    )
    found = []
    for row in connection.execute(query):
        job = Submission.from_body(json.loads(row.spec)).job()
        ran_s = max(0.0, row.ended_at - row.started_at)
        found.append(
            SubmittedJob(
                job=job,
                predicted_s=row.estimate_s,
                profile=None,
                started=row.started_at,
                ran_s=ran_s,
            )
        )
    return found


def body_of(made: StartForecast) -> Json:
    """Return a forecast as plain values for the body of an event, without the fields that only
    serve the moment at which it is made.
    """
    record = asdict(made)
    for name in ("starts", "after", "aside", "receipt"):  # of the moment at which it is made
        del record[name]
    return record


def forecast_of(event: Event) -> StartForecast:
    return StartForecast(**event.body)


def never(made: Mapping[str, StartForecast]) -> list[Claim]:
    """Return a claim (a statement to users that is checked later) for each forecast that says that
    the job will not start.
    """
    return [
        Claim(Claimed.NEVER, job_id, one.made_at, due=one.made_at + NEVER_S)
        for job_id, one in made.items()
        if one.start_p50 is None
        if one.estimate == ForecastKind.IMPOSSIBLE or (not one.estimate and one.samples >= LEAST)
    ]


def write(connection: Connection, made: Mapping[str, StartForecast], bases: Iterable[str]) -> None:
    """Write forecasts to their table, in place of earlier ones. `bases`: as which forecasts:
    "submission" (the first one), "latest", or both.
    """
    for basis in bases:
        rows = [
            {
                "job_id": job_id,
                "basis": basis,
                "made_at": one.made_at,
                **{name: getattr(one, name) for name in FIGURES},
                "why_not": one.why_not,
                "estimate": one.estimate,
                "receipt": canonical(one.receipt) if one.receipt else None,
            }
            for job_id, one in made.items()
        ]
        if not rows:
            continue
        ids = list(made)
        for i in range(0, len(ids), 500):
            connection.execute(
                delete(forecasts).where(
                    forecasts.c.basis == basis, forecasts.c.job_id.in_(ids[i : i + 500])
                )
            )
        chain.write(connection, forecasts, rows)
