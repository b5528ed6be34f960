"""`pellucid cancel`: stop jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.remote import JSON, SERVER, TOKEN, connect, print_json


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")],
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Cancel jobs: those that wait leave the queue, those that run are stopped.

    A job that is over stays as it is.

    Example:

      pellucid cancel 7njjr7qk87fm
    """
    with user_errors(), connect(server, token) as client:
        asked = [client.cancel(job) for job in jobs]
    if as_json:
        print_json(asked)
        return
    for job in asked:
        over = job["ended_at"] is not None
        typer.echo(f"{job['job_id']} {'was over: ' + job['phase'] if over else 'is cancelled'}")
