"""`pellucid cancel`: stop jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import JSON, SERVER, TOKEN, connect, print_json


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")],
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Cancel jobs: those that wait leave the queue, those that run are stopped.

    A job that is over stays as it is. Of several, those that can be are cancelled whatever
    becomes of the others, and exit status 2 says that not all were.

    Example:

      pellucid cancel 7njjr7qk87fm
    """
    from scheduler.service.client import ServiceError

    asked, failed = [], []
    with user_errors(), connect(server, token) as client:
        for job_id in jobs:
            try:
                asked.append(client.cancel(job_id))
            except ServiceError as error:
                failed.append(f"{job_id}: {error}")
    if as_json:
        print_json(asked)
    else:
        for job in asked:
            over = job["ended_at"] is not None
            typer.echo(f"{job['job_id']} {'was over: ' + job['phase'] if over else 'is cancelled'}")
    if failed:
        raise UserError(f"not cancelled: {'; '.join(failed)}")
