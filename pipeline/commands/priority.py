"""`pellucid priority`: let waiting jobs go sooner or later."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipeline.commands.hold import JOBS, PREVIEW
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import JSON, SERVER, TOKEN, connect, effect_lines, print_json


def priority(
    jobs: JOBS,
    to: Annotated[int, typer.Option("--to", help="The priority; 0 is what everybody has.")],
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Give waiting jobs a priority: higher goes first, whatever else makes their place.

    Submitters may put off their own jobs (below 0); operators do both.

    Examples:

      pellucid priority 7njjr7qk87fm --to 10 --preview

      pellucid priority 7njjr7qk87fm 4q2w9z01xkfe --to=-1
    """
    from scheduler.service.client import ServiceError

    answers, failed = [], []
    with user_errors(), connect(server, token) as client:
        now = client.cluster()["now"]
        for job in jobs:
            try:
                answers.append(client.set_priority(job, to, preview=preview))
            except ServiceError as error:
                failed.append(f"{job}: {error}")
    if as_json:
        print_json(answers)
    for answer in () if as_json else answers:
        for line in _told(answer, now):
            typer.echo(line)
    if failed:
        raise UserError("; ".join(failed))


def _told(answer: dict[str, Any], now: float) -> list[str]:
    job, to, before = answer["job_id"], answer["priority_after"], answer["before"]
    lines = [f"{job} {'has' if answer['applied'] else 'would have'} priority {to}"]
    if before and answer["after"]:
        lines.append(f"  place {before['position']} before, {answer['after']['position']} after")
    if answer["effect"]:
        lines += [f"  {line}" for line in effect_lines(answer["effect"], now)]
    return lines
