"""The output of a job, for its owner and nobody else, since it may hold what only they may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request

from scheduler.backends.local.output import MOST_BYTES, read_part
from scheduler.service.api.auth import Seen
from scheduler.service.api.problems import Problem, responses
from scheduler.service.log.record import Phase
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.settings import Settings

router = APIRouter(tags=["jobs"])


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Part of what a job has written.

    Attributes:
        attempt: number of the attempt that wrote it; 0: none was begun yet.
        text: the part, without control characters that a terminal would obey.
        start, next: offsets in bytes of this part and of the part after it.
        size: number of bytes written so far. over: whether nothing more will be written.
    """

    job_id: str
    attempt: int
    text: str
    start: int
    next: int
    size: int
    over: bool


def may_read(viewer: Viewer, job: JobRow) -> bool:
    """Return whether a viewer may read the output of a job: its owner, with a token of their own
    that is not for viewing only.
    """
    return job.owner == viewer.name and viewer.role is not Role.VIEWER and not viewer.only


def output_of(
    settings: Settings,
    job: JobRow,
    *,
    attempt: int | None = None,
    offset: int = 0,
    most: int = MOST_BYTES,
) -> JobOutput:
    """Return part of what attempt `attempt` (None: the last) of a job has written: at most `most`
    bytes from `offset` on. The text is empty where nothing was written yet, or the job never began.
    Raise Problem: 404 for an attempt that was not made, or whose output is gone, 409 where the
    backend keeps none.
    """
    if settings.backend != "local":
        where = f": `scontrol show job {job.job_id}` names its file" if settings.follows else ""
        raise Problem(409, "no-output", f"backend {settings.backend} keeps no output{where}")
    wanted, over = job.attempt if attempt is None else attempt, Phase(job.phase).over
    if wanted > job.attempt:
        raise Problem(404, "not-found", f"attempt {wanted}: there were {job.attempt}")
    over = over or wanted < job.attempt
    if wanted == 0:
        return JobOutput(job_id=job.job_id, attempt=0, text="", start=0, next=0, size=0, over=over)
    try:
        part = read_part(
            spool=settings.state_dir / "local",
            job_id=job.job_id,
            attempt=wanted,
            offset=offset,
            most=most,
            whole=over,
        )
    except FileNotFoundError:
        if not over or job.started_at is None:
            return JobOutput(
                job_id=job.job_id, attempt=wanted, text="", start=0, next=0, size=0, over=over
            )
        gone = "there is no output: the attempt never began, or it was removed to make room"
        raise Problem(404, "not-found", gone) from None
    return JobOutput(
        job_id=job.job_id,
        attempt=wanted,
        text=part.text,
        start=part.start,
        next=part.next,
        size=part.size,
        over=over,
    )


@router.get(
    "/jobs/{job_id}/output", summary="What it has written", responses=responses(403, 404, 409)
)
def output(
    job_id: str,
    request: Request,
    view: Seen,
    attempt: Annotated[
        int | None,
        Query(ge=1, le=2**31, description="Number of the attempt; by default the last one."),
    ] = None,
    offset: Annotated[
        int, Query(ge=-(2**62), le=2**62, description="Offset in bytes; below 0: before the end.")
    ] = 0,
    limit: Annotated[
        int, Query(ge=1024, le=MOST_BYTES, description="Most bytes to return.")
    ] = MOST_BYTES,
) -> JobOutput:
    """Return standard output and error, part by part: ask again with `next` as `offset`. Only the
    owner may read them, not even operators.
    """
    job = view.job(job_id)
    if not may_read(view.viewer, job):
        raise Problem(403, "forbidden", "what a job writes is shown to its owner only")
    settings: Settings = request.app.state.settings
    return output_of(settings, job, attempt=attempt, offset=offset, most=limit)
