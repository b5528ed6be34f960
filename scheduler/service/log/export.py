"""Writes the service's ended jobs as a trace, from which the next models are trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from features.files import write_table
from features.job import COUNTERS
from features.plain import first_line
from features.schema import TRACE_SCHEMA
from scheduler.backends.events import Kind
from scheduler.backends.submission import Submission
from scheduler.core.request import FIELDS
from scheduler.service.log.record import Phase
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import Columns, events, jobs

log = structlog.get_logger("export")
POLL_S = 5.0
_REQUIRED = [one.name for one in TRACE_SCHEMA if not one.nullable and one.name != "source_line"]
_ASKED = sorted(FIELDS.keys() & TRACE_SCHEMA.names)
OVER = (Phase.ENDED, Phase.CANCELLED, Phase.LOST)


def finished(store: Store) -> pa.Table:
    """Return every job that has ended and was not refused, in order of submission.

    Returns: A table in ``TRACE_SCHEMA``. `duration_s` is the time on GPUs of the attempt that
    ended; null for a job that never ran or that ran for an unknown time. Jobs with an unknown end
    state are left out (a task of an array that left Slurm's queue, say). So are rows that do not
    fit the schema; these are logged.
    """
    with store.reading() as connection:
        over = jobs.c.phase.in_([p.value for p in OVER])
        query = select(jobs).where(over, jobs.c.state.is_not(None))
        rows = connection.execute(query.order_by(jobs.c.submitted_seq)).mappings().all()
        ran, seen = _latest(connection, Kind.ENDED, "ran_s"), profiles(connection)
    lines, wrong = [], {}
    for i, row in enumerate(rows, 1):
        try:
            line = _line(i, dict(row), ran.get(row["job_id"]), seen.get(row["job_id"]) or {})
            if missing := [name for name in _REQUIRED if line[name] is None]:
                raise ValueError(f"has no {missing[0]}")
        except (ValueError, LookupError, TypeError) as error:
            wrong[str(row["job_id"])] = f"{type(error).__name__} {error}".splitlines()[0]
        else:
            lines.append(line)
    if wrong:
        log.warning("not_exported", rows=len(wrong), of=dict(islice(wrong.items(), 4)))
    return pa.Table.from_pylist(lines, schema=TRACE_SCHEMA)


def keep_exporting(
    database: str, path: Path, every: int, stopping: Callable[[float], bool]
) -> None:
    """Write the table of `finished` to `path` each time the number of ended jobs reaches a
    multiple of `every`, and where `path` is missing though jobs have ended, until stopped.

    Args:
        stopping: waits for so many seconds at most; returns True to stop.
    """
    store, last = Store(database), 0
    try:
        while not stopping(POLL_S):
            try:
                over = _count(store)
                if over // every > last // every or (over and not path.exists()):
                    write_table(path, finished(store))
                    log.info("exported", jobs=over, path=str(path))
                last = over
            except (DBAPIError, OSError, pa.ArrowException) as error:  # tried again the next time
                log.warning("export_failed", why=first_line(error))
    finally:
        store.close()


def _count(store: Store) -> int:
    with store.engine.connect() as connection:
        over = jobs.c.phase.in_([phase.value for phase in OVER])
        return connection.execute(select(func.count()).where(over)).scalar_one()


def profiles(connection: Connection, since: float = 0.0) -> Mapping[str, Any]:
    """Return the latest measured profile of each job, by job ID: that of a profiling run, or where
    there is none, the one measured while the job ran. Events before `since` (seconds since the
    epoch) are ignored.
    """
    seen = _latest(connection, Kind.OBSERVED, "profile", since)
    return seen | _latest(connection, Kind.PROFILED, "profile", since)


def _latest(connection: Connection, kind: Kind, name: str, since: float = 0.0) -> dict[str, Any]:
    """Return the field `name` of the latest event of a kind about each job, by job ID; None where
    the event lacks the field. Events before `since` (seconds since the epoch) are ignored.
    """
    query = select(events.c.seq, events.c.job_id, events.c.body)
    query = query.where(events.c.kind == kind.value, events.c.at >= since)
    rows = connection.execute(query.order_by(events.c.seq)).all()
    texts = bodies(connection, events, rows)
    return {row.job_id: json.loads(body).get(name) for row, body in zip(rows, texts, strict=True)}


def _line(
    number: int, row: Mapping[str, Any], ran_s: float | None, profile: Mapping[str, Any]
) -> Columns:
    asked = Submission.from_body(json.loads(row["spec"]))
    began = row["started_at"]
    return {
        **{name: getattr(asked, name) for name in _ASKED},
        "job_id": row["job_id"],
        "user": row["owner"],
        "name": row["name"] or None,
        "state": row["state"],
        "exit_code": row["exit_code"],
        "submit_time": _ms(row["submitted_at"]),
        "eligible_time": _ms(row["queued_at"]),
        "start_time": _ms(began),
        "end_time": _ms(row["ended_at"]) if began is not None else None,
        "duration_s": ran_s if began is not None else None,
        "gpu_util_pct": profile.get("gpu_util_pct"),
        "gpu_mem_util_pct": profile.get("gpu_mem_util_pct"),
        "gpu_mem_mib": profile.get("gpu_mem_mib"),
        "amp": profile.get("amp"),
        **{name: profile.get(name) for name in COUNTERS},
        "source_line": number,
    }


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
