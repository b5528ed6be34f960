"""`pellucid ps`: lists a user's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from features.codec import Json, decode
from pipeline.errors import UserError
from pipeline.options import spread
from pipeline.printed.jobs import OVER, lines
from pipeline.remote import Service, print_json
from scheduler.service.log.store.rows import JobRow

if TYPE_CHECKING:
    from scheduler.service.client import Client

STATES = {
    "waiting": ("submitted", "queued", "held"),
    "held": ("held",),
    "running": ("profiling", "starting", "running"),
}
MOST_COUNTED = 1000
ENDED = ("completed", "failed", "timeout", "node_fail", "out_of_memory")  # states of an end
NAMED = Annotated[
    str | None,
    typer.Option(metavar="GLOB", help="Only jobs whose name matches this pattern, e.g. 'sweep-*'."),
]


@spread
def ps(
    service: Service,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also list jobs that have ended.")
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            help=(
                "Only jobs in this state: waiting, held, running, over (ended in any way), "
                "completed, failed, timeout, out_of_memory, node_fail, cancelled, refused or lost."
            )
        ),
    ] = None,
    name: NAMED = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help=(
                "Only jobs submitted since this time, ended ones included: 2026-11-20 or "
                "2026-11-20T08:00 in your time zone, or a time before now: 90m, 12h, 3d."
            ),
        ),
    ] = None,
    vc: Annotated[
        str | None, typer.Option(help="Only jobs of this virtual cluster (queue).")
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            help="Only jobs of this user. Whoever is no operator sees only their own jobs anyway."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of jobs to list.")] = 200,
) -> None:
    """List jobs that wait or run, the latest submitted first: yours; for an operator, all.

    Examples:

      pellucid ps

      pellucid ps --state waiting --name 'sweep-*' --json

      pellucid ps --state failed --since 2d
    """
    with service.client() as client:
        now = client.now()
        over = None if everything or state or since else False
        asked = {"over": over, "vc": vc, "owner": owner}
        first = None if since is None else _moment(since, now)
        found = list(islice(chosen(client, name=name, state=state, since=first, **asked), limit))
    if service.as_json:
        print_json(found)
        return
    if not found and any((name, state, since, vc, owner)):
        with service.client() as client:
            rest = sum(1 for _ in islice(client.jobs(over=False), MOST_COUNTED))
        more = " or more" if rest == MOST_COUNTED else ""
        live = f"Of all you may see, {rest}{more} wait or run: pellucid ps."
        typer.echo(f"No job is like that. {live} With those that ended: --all.", err=True)
        return
    if not found and over is False:
        typer.echo("No job is known to wait or run. Those that ended: pellucid ps --all", err=True)
        return
    for line in lines((decode(JobRow, job) for job in found), now):
        typer.echo(line)


def chosen(
    client: Client,
    *,
    name: str | None = None,
    state: str | None = None,
    since: float | None = None,
    **asked: Any,
) -> Iterator[Json]:
    """Yield the jobs that the service shows to the user, the latest first: those with this name
    (or pattern), in this state, and submitted since this time (seconds since the epoch). None:
    any. Raises UserError if there is no such state."""
    phases = STATES.get(state or "", (OVER if state == "over" else (state,)))
    if state is not None and state not in (*STATES, "over", *OVER, *ENDED):
        known = ", ".join((*STATES, "over", *ENDED, *OVER))
        raise UserError(f"--state {state}: choose among {known}")
    for job in client.jobs(**asked):
        if since is not None and job["submitted_at"] < since:
            return
        right = state is None or job["phase"] in phases or job["state"] == state
        if right and (name is None or fnmatchcase(job["name"], name)):
            yield job


def _moment(text: str, now: float) -> float:
    """Return the time that `text` names, in seconds since the epoch: a date, or a date with a
    time of day, in local time, or a span before `now` (90m, 3d). Raise UserError for anything
    else."""
    from features.clock import read_seconds

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        if text[-1:].isalpha() or "-" in text:
            return now - read_seconds(text)
    except ValueError:
        pass
    accepts = "2026-11-20, 2026-11-20T08:00, or so long ago: 90m, 12h, 3d"
    raise UserError(f"--since {text}: give {accepts}")
