"""`pellucid hold` and `pellucid release`: keep waiting jobs from starting, for a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import JSON, SERVER, TOKEN, connect, effect_lines, print_json

if TYPE_CHECKING:
    from scheduler.service.client import Client

JOBS = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.")]
PREVIEW = Annotated[
    bool, typer.Option("--preview", help="Change nothing; say what would come of it.")
]


def hold(
    jobs: JOBS,
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Hold waiting jobs: they do not start until they are released, and nobody waits behind them.

    The time a job is held counts as no waiting, for its place and for the bound on waiting. What an
    operator holds of others' jobs only an operator can release.

    Example:

      pellucid hold 7njjr7qk87fm
    """
    done = "is held until it is released"
    act(jobs, lambda c, job: c.hold(job, preview=preview), done, server, token, as_json=as_json)


def release(
    jobs: JOBS,
    preview: PREVIEW = False,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Release held jobs: they wait on, from what they had waited before they were held.

    Example:

      pellucid release 7njjr7qk87fm --preview
    """
    done = "is released"
    act(jobs, lambda c, job: c.release(job, preview=preview), done, server, token, as_json=as_json)


def act(
    jobs: list[str],
    ask: Callable[[Client, str], dict[str, Any]],
    done: str,
    server: str | None,
    token: Path | None,
    *,
    as_json: bool,
) -> None:
    """Ask for each of some jobs, whatever becomes of the others, and say what came of it.

    Raises UserError (exit status 2) when not all could be done.
    """
    from scheduler.service.client import ServiceError

    answers, failed = [], []
    with user_errors(), connect(server, token) as client:
        now = client.cluster()["now"]
        for job in jobs:
            try:
                answers.append(ask(client, job))
            except ServiceError as error:
                failed.append(f"{job}: {error}")
    if as_json:
        print_json(answers)
    for answer in () if as_json else answers:
        for line in _told(answer, done, now):
            typer.echo(line)
    if failed:
        raise UserError("; ".join(failed))


def _told(answer: dict[str, Any], done: str, now: float) -> list[str]:
    job = answer["job_id"]
    if not answer["needed"]:
        return [f"{job} is so already"]
    if answer["applied"]:
        return [f"{job} {done}"]
    if answer["effect"] is None:
        return [f"{job} would be so; no estimate: it is being profiled"]
    return [
        f"{job}, if it were so:",
        *(f"  {line}" for line in effect_lines(answer["effect"], now)),
    ]
