"""`pellucid eta`: when a job would start, before it is submitted to Slurm."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import UserError
from pipeline.options import spread
from pipeline.remote import Service, aligned, print_json

if TYPE_CHECKING:
    from scheduler.explain.effect import Eta

HEAD = "PARTITION", "WOULD", "UNTIL THEN IT WAITS FOR"
OPTIONS = Annotated[
    list[str],
    typer.Argument(
        metavar="-- SBATCH-OPTIONS [SCRIPT]",
        help="As sbatch has them. The script is read for its #SBATCH lines, and is not sent.",
    ),
]
MOST_BYTES = 4 << 20  # of a script: slurm.conf's max_script_size, as it comes


@spread
def eta(
    options: OPTIONS,
    service: Service,
    user: Annotated[str | None, typer.Option(help="For this user; operators.")] = None,
) -> None:
    """Say when a job would start, in each partition that takes it. Nothing is submitted.

    Asks a service in front of Slurm (serve --backend slurm), which tries it on a copy of the queue.

    Examples:

      pellucid eta -- --gres=gpu:a100:2 --time=60

      pellucid eta -- -p short,long -N2 --gpus-per-node=1 --qos=high

      pellucid eta -- --time=30 job.sh
    """
    from features.codec import decode
    from scheduler.explain.effect import Eta

    asked = with_script(options)
    with service.client() as client:
        answer = client.eta(asked, user)
    if service.as_json:
        print_json(answer)
        return
    for line in lines(decode(Eta, answer)):
        typer.echo(line)


def with_script(options: list[str]) -> list[str]:
    """The options of the script's `#SBATCH` lines, then those given: the last of two counts.
    Raises UserError."""
    from scheduler.backends.slurm.request import RequestError, script_of, script_options

    try:
        words = script_of(options)
    except RequestError as error:
        raise UserError(f"these options cannot be tried: {error}") from None
    if not words:
        return options
    script = words[0]
    try:
        handle = os.open(script, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would have us wait
        with open(handle, encoding="utf-8", errors="replace") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UserError(f"{script}: not a regular file")
            found = script_options(opened.read(MOST_BYTES).splitlines())
    except RequestError as error:
        raise UserError(f"{script}: {error}") from None
    except OSError as error:
        raise UserError(f"{script}: {error.strerror}") from None
    return [*found, *options[: len(options) - len(words)]]


def lines(answer: Eta) -> list[str]:
    """A line of each partition, the times of each before why."""
    if answer.unavailable:
        return [f"estimate unavailable: {answer.unavailable}"]
    from scheduler.explain.words import starts

    rows = []
    for one in answer.tried:
        at_once = not one.reason and one.start_p50 is not None
        when = starts(one.start_p50, one.start_p90, "", answer.now)
        word = f"{one.reason}: {one.why}" if one.reason and one.why else one.reason
        rows.append((one.partition, "starts at once" if at_once else when, word))
    found = aligned([HEAD, *rows]) if rows else []
    if len(answer.asked) > 1:
        found.append(f"Asked for {', '.join(answer.asked)}: it starts in whichever is first.")
    if answer.not_tried:
        found.append(f"Not tried, there was no time: {', '.join(answer.not_tried)}.")
    if answer.own:
        found.append(f"Pellucid: {answer.own}")
    return found + [f"Not in {one.partition}: it {one.why}." for one in answer.closed]
