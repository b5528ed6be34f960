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
from pipeline.printed import between

if TYPE_CHECKING:
    from features.codec import Json
    from scheduler.explain.effect import Effect, ExpectedTimes, WhatIfAnswer
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


def forecast_words(forecast: ExpectedTimes | None, now: float) -> str:
    """Return a forecast of a job's start and end as a sentence, with times relative to `now`."""
    from scheduler.explain.words import ForecastKind

    if forecast is None:
        return "estimate unavailable: none was made yet"
    if forecast.estimate == ForecastKind.IMPOSSIBLE:
        return forecast.why_not
    if forecast.start_p50 is None:
        return f"estimate unavailable: {forecast.why_not or 'the service gives no reason'}"
    words = f"starts within {between(now, forecast.start_p50)} in half of such cases"
    if forecast.start_p90 is not None:
        words += f", within {between(now, forecast.start_p90)} nine times in ten"
    if forecast.end_p50 is not None:
        words += f"; ends within {between(now, forecast.end_p50)} in half of them"
    return words


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
    """Print the service's answer to a change of nodes or settings, or to its preview. `done` are
    words for the node or the settings after the change."""
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
    if not running:
        typer.echo("Nothing runs there.")
    for job in running:
        until = "until when is not known"
        if job.ends_at is not None:
            until = time.strftime("until about %F %R", time.localtime(job.ends_at))
        typer.echo(f"Runs there: {job.job_id} of {job.owner}, {until}")


def _preview(effect: Effect) -> None:
    from scheduler.explain.words import duration

    if effect.why_not:
        typer.echo(f"Nothing is changed. No preview: {effect.why_not}")
        return
    typer.echo(
        f"Nothing is changed. Of {effect.waiting} waiting jobs, {effect.examined} were forecast "
        f"in {effect.futures} simulated futures. What the change would do:"
    )
    for job_id, by_s in sorted(effect.moved.items(), key=lambda item: item[1]):
        typer.echo(f"  {job_id} {duration(abs(by_s))} {'later' if by_s > 0 else 'earlier'}")
    for job_id in effect.stuck:
        typer.echo(f"  {job_id} would not start within the forecast")
    if not (effect.moved or effect.stuck):
        typer.echo("  no job starts a minute or more earlier or later")


def effect_lines(answer: WhatIfAnswer, now: float) -> list[str]:
    """Return lines of text about what a change would do to a waiting job and to others, by the
    service's forecast. Times are relative to `now`."""
    if answer.unavailable:
        return [f"estimate unavailable: {answer.unavailable}"]
    lines = [
        f"unchanged:  {forecast_words(answer.now, now)}",
        f"changed:    {forecast_words(answer.then, now)}",
    ]
    if answer.starts_now:
        lines.append("It would start at once.")
    gain = answer.gain_s
    if gain is not None and abs(gain) >= 1:
        word = "earlier" if gain > 0 else "later"
        by = f"Its median start is {between(0.0, abs(gain))} {word}"
        if gain > 0 and 2 * (answer.earlier or 0) < (answer.futures or 0):
            by = "No clear change"  # the medians differ by the luck of the draw
        lines.append(f"{by} (earlier in {answer.earlier} of {answer.futures} simulated futures).")
    end = answer.then.end_p50 if answer.then is not None else None
    if answer.stopped and end is not None:
        lines.append(f"Its time limit would stop it {between(now, end)} from now, unfinished.")
    for one in answer.moved:
        word = "later" if one.by_s > 0 else "earlier"
        by = between(0.0, abs(one.by_s))
        lines.append(f"Your job {one.job_id} would start {by} {word}.")
    others = answer.others_moved
    if others and (others.later or others.earlier):
        lines.append(f"Jobs of others: {others.later} would start later, {others.earlier} earlier.")
    lines += [f"This holds if {assumed}." for assumed in answer.assumed]
    if answer.command:
        worse = gain is not None and gain <= -1
        lines.append(f"{'Do it all the same' if worse else 'Do it'}: {answer.command}")
    return lines
