"""Turns jobs into a table of text."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.printed import aligned, between
from scheduler.explain.job import JobRow

OVER = ("ended", "cancelled", "refused", "lost")


def lines(jobs: Iterable[JobRow], now: float) -> list[str]:
    """Return a table of jobs as lines: a heading, and one line per job."""
    return aligned([_HEADINGS, *(_cells(job, now) for job in jobs)], right=_RIGHT)


_HEADINGS = ("JOB", "NAME", "OWNER", "VC", "GPUS", "PHASE", "WAITED", "RAN", "START", "WHY")
_RIGHT = [_HEADINGS.index(heading) for heading in ("GPUS", "WAITED", "RAN")]


def _cells(job: JobRow, now: float) -> list[str]:
    from scheduler.explain.words import clock_time, hold_words, phrase

    waited = between(0.0, job.waited(now))
    ran = between(job.started_at, job.ended_at or now)
    why = phrase((job.state if job.phase == "ended" else job.reason) or "")
    if job.hold:
        why = f"{hold_words(job.hold, job.held_by)} since {clock_time(job.held_at or now, now)}"
    words = [job.job_id, job.name, job.owner, job.vc]
    return [*words, str(job.gpus), job.phase, waited, ran, _start(job, now), why or ""]


def _start(job: JobRow, now: float) -> str:
    """Return when a waiting job should start, from the time with even odds to that with nine in
    ten: "16:40-18:10". Return "" if there is no forecast.

    "~16:40-18:10" is a rough forecast; "never" means that its virtual cluster is too small.
    """
    from scheduler.explain.words import ForecastKind, clock_time

    if job.estimate == ForecastKind.IMPOSSIBLE:
        return "never"

    if job.start_p50 is None:
        return ""
    at = "~" * (job.estimate == ForecastKind.CRUDE) + clock_time(job.start_p50, now)
    late = job.start_p90
    return at if late is None else f"{at}-{clock_time(late, now)}"
