"""`pellucid logs`: prints the output of a job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from features.codec import Json
from pipeline.commands.hold import tasks_named
from pipeline.errors import UserError
from pipeline.options import JOB, spread
from pipeline.remote import Service

if TYPE_CHECKING:
    from scheduler.service.client import Client

PAUSE_S = 1.0  # between two looks at a job that writes nothing
LINE_BYTES = 4096  # a line is believed to be no longer, where the last ones are asked for
TAIL_BYTES = 262_144


@spread
def logs(
    job: JOB,
    service: Service,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on printing new output until the job has ended."),
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            "-n",
            min=0,
            help="Print only this number of lines, the last ones (of the last 256 KiB).",
        ),
    ] = None,
    attempt: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of the attempt (one try to run the job) to print, from 1. A job that was "
            "profiled first has two. Default: the last.",
        ),
    ] = None,
) -> None:
    """Print what a job of yours has written to standard output and error.

    Give the id of an array for all of its tasks, or ARRAY_[3-5] for some: each task's id stands
    above its output. Control codes, which could change your terminal, are left out. Whenever the
    output of a job passes 64 MiB, it is deleted, and what the job writes afterwards is kept. With
    --json, each line is an object with a piece of the output and the positions, in bytes, where it
    begins and ends.

    Examples:

      pellucid logs 7njjr7qk87fm

      pellucid logs 7njjr7qk87fm -f --tail 20

      pellucid logs "9kq2m4c7h1xd_[3-5]"
    """
    with service.client() as client:
        tasks = tasks_named([job])
        if "_" not in job:
            tasks = [one["job_id"] for one in client.jobs(array=job)][::-1]
        many = tasks not in ([], [job])
        if many and follow:
            raise UserError(f"-f: follow one task of the array: pellucid logs {tasks[0]} -f")
        for one in tasks or [job]:
            if many and not service.as_json:
                typer.echo(f"==> {one} <==")
            for part in _parts(client, one, attempt, tail, follow=follow):
                if service.as_json:
                    typer.echo(json.dumps(part))
                else:
                    typer.echo(part["text"], nl=False)


def _parts(
    client: Client, job: str, attempt: int | None, tail: int | None, *, follow: bool
) -> Iterator[Json]:
    """Yield the parts of a job's output that it has written so far. With `follow`, go on until
    the job has ended, also with the output of a further attempt. Say on standard error if there
    is no output.

    Args:
        attempt: number of the attempt; None: the last one.
        tail: begin with only so many of the last lines (looked for in the last `TAIL_BYTES`);
            None: with all.
    """
    offset = 0 if tail is None else -max(1, min(TAIL_BYTES, (tail + 1) * LINE_BYTES))
    latest = 0
    while True:
        part = client.output(job, offset=offset, attempt=attempt)
        if 0 < latest < part["attempt"]:  # profiled before, it runs now: from its beginning
            part = client.output(job, attempt=attempt)
        offset, latest = part["next"], part["attempt"]
        if tail is not None:
            lines = part["text"].splitlines(keepends=True)
            part, tail = {**part, "text": "".join(lines[len(lines) - tail :])}, None
        if part["text"]:
            yield part
        if part["next"] < part["size"]:
            continue
        if not (part["size"] or part["over"] or follow):
            typer.echo(f"{job} has written nothing yet; -f waits for it", err=True)
        if part["over"] and not part["size"]:
            _never_ran(client.job(job))
        if part["over"] or not follow:
            return
        time.sleep(PAUSE_S)


def _never_ran(job: Json) -> None:
    """If a job never ran, print on standard error why, since it has no output."""
    if job["started_at"] is None:
        typer.echo(f"{job['job_id']} never ran: {job['detail'] or job['phase']}", err=True)
