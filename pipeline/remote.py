"""Parts of the commands that talk to a service: finding it, opening a client, printing a change."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import typer

from features.given import opened
from pipeline.errors import UserError
from pipeline.options import JSON, PREVIEW_MOVES, REASON, SERVER, TOKEN

if TYPE_CHECKING:
    from features.codec import Json
    from scheduler.explain.effect import Effect
    from scheduler.service.api.shapes import RunsThere
    from scheduler.service.client import Client

MOST_BYTES = 4096  # of a token file


@dataclass(frozen=True, kw_only=True)
class Address:
    """The options that name the service to talk to, and the file with the token for it."""

    server: SERVER = None
    token: TOKEN = None

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a client of the service. Its errors are shown as one line, with exit status 2. At
        the end, warn if Slurm or its database could not be read, so that the answer is old."""
        from pipeline.console import user_errors

        with user_errors(), connect(self.server, self.token) as client:
            yield client
            if client.unread_since is not None:
                _warn_unread("Slurm", "what is shown is", client.unread_since)
            if client.database_since is not None:
                what = "limits, accounts and shares are"
                _warn_unread("slurmdbd", what, client.database_since)


def _warn_unread(who: str, what: str, since: float) -> None:
    from scheduler.explain.words import clock_time, duration

    now = time.time()
    at, ago = clock_time(since, now), duration(max(0.0, now - since))
    typer.echo(f"{who} does not answer: {what} of {at}, {ago} ago.", err=True)


@dataclass(frozen=True, kw_only=True)
class Service(Address):
    """The options of a command that talks to a service: its address, and whether the answer is
    printed as JSON."""

    as_json: JSON = False


@dataclass(frozen=True, kw_only=True)
class Preview(Service):
    """The options of a command that changes nodes or settings, and may preview the change first."""

    preview: PREVIEW_MOVES = False


class Reasoned(TypedDict):
    preview: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Change(Preview):
    """The options of a command that changes nodes or settings: also a reason for the change."""

    reason: REASON = ""

    def how(self) -> Reasoned:
        """Return the options as arguments of the client: preview and reason."""
        return {"preview": self.preview, "reason": self.reason}


def connect(server: str | None, token: Path | None) -> Client:
    """Return a client of the service at the address `server`. `token` is the file that holds the
    token."""
    from scheduler.service.client import Client

    return Client(server, None if token is None else _read_token(token))


def _read_token(file: Path) -> str:
    try:
        with opened(file) as content:
            if os.fstat(content.fileno()).st_mode & 0o077:
                raise UserError(f"--token-file {file}: others can read it: chmod 600 {file}")
            found = content.read(MOST_BYTES + 1)
        if len(found) > MOST_BYTES:
            raise ValueError
        return found.decode("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds more than a token"
        raise UserError(f"--token-file {file}: {why}") from None


def print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))


def change(service: Service, done: str, ask: Callable[[Client], Json]) -> None:
    """Ask the service for a change of nodes or settings, or for its preview, and print the result.

    Args:
        done: words for the node or the settings after the change, such as "drained".
        ask: sends the request with a client, and returns the service's answer.
    """
    with service.client() as client:
        answer = ask(client)
    if service.as_json:
        print_json(answer)
    else:
        print_change(answer, done)


def print_change(answer: Json, done: str) -> None:
    """Print the service's answer to a change of nodes or settings, or to its preview, and which
    jobs can no longer start. `done` are words for the node or the settings after the change."""
    from features.codec import decode
    from scheduler.service.api.shapes import ClusterChange

    made = decode(ClusterChange, answer)
    if made.effect is not None:
        _preview(made.effect)
        if made.running is not None:
            _runs_there(made.running)
    elif made.changed:
        typer.echo(f"{made.name or 'it'} {done}")
    else:
        typer.echo(f"{made.name or 'it'}: nothing to do, it is so already")
    if made.never:
        can = "could" if made.effect is not None else "can"
        typer.echo(
            f"These jobs {can} not start any more, their virtual cluster being too small: "
            + ", ".join(made.never)
        )


def _runs_there(running: list[RunsThere]) -> None:
    from scheduler.explain.effect_words import runs_there_words

    if not running:
        typer.echo("Nothing runs there.")
    for job in running:
        typer.echo(runs_there_words(job.job_id, job.owner, job.ends_at))


def _preview(effect: Effect) -> None:
    from scheduler.explain.effect_words import preview_lines

    for line in preview_lines(effect):
        typer.echo(line)
