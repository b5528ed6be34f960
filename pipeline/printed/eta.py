"""Turns a forecast of a job's start into lines of text; and reads the options in a job's script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from features.given import read_text
from pipeline.errors import UserError
from pipeline.printed import aligned

if TYPE_CHECKING:
    from scheduler.explain.effect import Eta

HEAD = "PARTITION", "START", "WHY NOT AT ONCE"
MOST_BYTES = 4 << 20  # of a script: slurm.conf's max_script_size, as it comes


def with_script(options: list[str]) -> list[str]:
    """Return the options in the `#SBATCH` lines of the script that `options` name, followed by
    `options` without the script and its arguments. If an option occurs twice, the last counts.
    Return `options` if they name no script. Raises UserError if the script cannot be read."""
    from scheduler.slurm.read.request import RequestError, script_of, script_options

    try:
        words = script_of(options)
    except RequestError as error:
        raise UserError(f"these options cannot be tried: {error}") from None
    if not words:
        return options
    script = words[0]
    try:
        found = script_options(read_text(script, MOST_BYTES, errors="replace").splitlines())
    except RequestError as error:
        raise UserError(f"{script}: {error}") from None
    except OSError as error:
        raise UserError(f"{script}: {error.strerror}") from None
    return [*found, *options[: len(options) - len(words)]]


def lines(answer: Eta) -> list[str]:
    """Return lines of text about the start in each partition: first those with a time, then the
    reasons of the others. If there is no estimate, return one line that says why."""
    if answer.unavailable:
        return [f"estimate unavailable: {answer.unavailable}"]
    from scheduler.explain.render import of_partitions
    from scheduler.explain.words import starts

    rows = []
    for one in answer.tried:
        at_once = not one.reason and one.start_p50 is not None
        when = starts(one.start_p50, one.start_p90, "" if one.reason else one.why, answer.now)
        word = f"{one.reason}: {one.why}" if one.reason and one.why else one.reason
        rows.append((one.partition, "starts at once" if at_once else when, word))
    found = aligned([HEAD, *rows]) if rows else []
    return [*found, *of_partitions(answer)]
