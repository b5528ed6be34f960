"""`pellucid cancel`: cancels waiting jobs and stops running ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from features.codec import Json, decode
from pipeline.commands.hold import tasks_named
from pipeline.commands.ps import NAMED, STATES, chosen
from pipeline.errors import UserError
from pipeline.options import PREVIEW, spread
from pipeline.printed.jobs import OVER
from pipeline.remote import Service, print_json
from scheduler.service.api.shapes import CancelledMany
from scheduler.service.log.store.rows import JobRow

if TYPE_CHECKING:
    from scheduler.service.client import Client

NOBODY = CancelledMany([], [], [])
MOST_NAMED = 100  # jobs of a preview


@spread
def cancel(
    service: Service,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB...]", help="Ids of jobs or arrays; ARRAY_[0-4] for some tasks."
        ),
    ] = None,
    name: NAMED = None,
    state: Annotated[
        str | None, typer.Option(help="Only jobs in this state: waiting, held or running.")
    ] = None,
    all_mine: Annotated[bool, typer.Option("--all-mine", help="Cancel all your jobs.")] = False,
    owner: Annotated[
        str | None,
        typer.Option(help="Cancel jobs of this user, not yours (operators only)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Cancel without asking first.")] = False,
    preview: PREVIEW = False,
) -> None:
    """Cancel jobs: waiting ones leave the queue, running ones are stopped.

    Give ids, or choose jobs by --name, --state, --owner (all that are given must fit) or
    --all-mine; chosen jobs are counted first, and cancelled once you agree. A job that has
    ended stays as it is. If some of the ids cannot be cancelled, the others are, and the exit
    status is 2.

    Examples:

      pellucid cancel 7njjr7qk87fm

      pellucid cancel --name 'sweep-*' --state waiting

      pellucid cancel --all-mine --preview
    """
    picked = name is not None or state is not None or owner is not None or all_mine
    if state is not None and state not in STATES:
        raise UserError(f"--state {state}: choose among {', '.join(STATES)}")
    jobs = tasks_named(jobs or [])
    if bool(jobs) is picked:
        raise UserError("give the ids of jobs, or one of --name, --state, --owner, --all-mine")
    with service.client() as client:
        if jobs and not preview:
            _each(client, jobs, as_json=service.as_json)
            return
        if jobs:
            _together(client, jobs, preview=True, as_json=service.as_json)
            return
        me = client.whoami()
        found = list(_matching(client, name, state, owner or me["name"]))
        if not found and service.as_json:
            print_json(asdict(NOBODY))
        elif not found:
            others = owner is None and me["role"] == "operator"
            typer.echo("no such job" + (" of yours; give --owner for another's" if others else ""))
        elif preview or yes or _agreed(found):
            ids = [job.job_id for job in found]
            _together(client, ids, preview=preview, as_json=service.as_json)


def _each(client: Client, jobs: list[str], *, as_json: bool) -> None:
    from scheduler.service.client import ServiceError

    asked, failed = [], []
    for job_id in jobs:
        try:
            asked.append(client.cancel(job_id))
        except ServiceError as error:
            if tasks := _tasks(client, job_id) if error.status == 404 else []:
                asked += tasks
            else:
                failed.append(str(error) if job_id in str(error) else f"{job_id}: {error}")
    if as_json:
        print_json(asked)
    else:
        for job in decode(list[JobRow], asked):
            over = job.ended_at is not None
            typer.echo(f"{job.job_id} {'was over: ' + job.phase if over else 'is cancelled'}")
    if failed:
        raise UserError(f"not cancelled: {'; '.join(failed)}")


def _tasks(client: Client, array_id: str) -> list[Json]:
    """Cancel the tasks of an array together and return them as jobs, those that had already ended
    last. Return [] if the id is not that of an array."""
    many = decode(CancelledMany, next(client.cancel_many([array_id])))
    return [client.job(task) for task in (*many.asked, *many.over)]


def _matching(client: Client, name: str | None, state: str | None, owner: str) -> Iterator[JobRow]:
    """Yield the jobs of `owner` that have neither ended nor been cancelled. `name` is a
    pattern. A name or state of None fits every job."""
    for one in chosen(client, name=name, state=state, owner=owner):
        job = decode(JobRow, one)
        if job.phase not in OVER and not job.cancel_asked:
            yield job


def _agreed(found: list[JobRow]) -> bool:
    """Ask the user at the terminal whether to cancel these jobs, and return whether the answer is
    yes. Raises UserError if there is no terminal."""
    from scheduler.core.plural import count

    running = sum(job.phase in STATES["running"] for job in found)
    what = f"{count(len(found), 'job')}, {running:,} of them running"
    if not sys.stdin.isatty():
        raise UserError(f"that is {what}: say --yes to cancel")
    return typer.confirm(f"Cancel {what}?", err=True)


def _together(client: Client, ids: list[str], *, preview: bool, as_json: bool) -> None:
    total = NOBODY
    for part in client.cancel_many(ids, preview=preview):
        more = decode(CancelledMany, part)
        total = CancelledMany(
            total.asked + more.asked, total.over + more.over, total.unknown + more.unknown
        )
    if as_json:
        print_json(asdict(total))
    else:
        over = f"; {len(total.over):,} were over by then" if total.over else ""
        would = "would be " if preview else ""
        typer.echo(f"{len(total.asked):,} {would}cancelled{over}")
        for job_id in total.asked[:MOST_NAMED] if preview else ():
            typer.echo(f"  {job_id}")
    if preview and total.unknown:
        raise UserError(f"there is no such job of yours: {', '.join(total.unknown)}")
