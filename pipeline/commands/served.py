"""`pellucid served`: shows which models decided about how many jobs each week, and the errors of
their predictions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from features.codec import encode
from pipeline.console import user_errors
from pipeline.options import JSON_OBJECT
from pipeline.printed import aligned
from scheduler.service.log.served import WEEK_S, Served, Week, weeks


def served(
    state_dir: Annotated[
        Path,
        typer.Option(
            help="Folder of the service's files (its --state-dir), which holds the figures of each "
            "week."
        ),
    ] = Path("data/service"),
    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Add the figures of finished weeks to the registered versions of the models in "
            "MLflow, each week once. Models that are not registered are skipped. A line for each "
            "model is printed instead of the table.",
        ),
    ] = False,
    params: Annotated[
        Path,
        typer.Option(help="With --log: YAML file that names the MLflow registry.", metavar="FILE"),
    ] = Path("params.yaml"),
    as_json: JSON_OBJECT = False,
) -> None:
    """Show which models were used for how many jobs each week, and the errors of their predictions.

    The error is the mean of |ln(true / predicted duration)| over the jobs that ended in the week
    and were not stopped; 0.7 is a factor of 2. A job is announced as one of over six hours if its
    chance of that was at least 20 %. Run `pellucid served --log` once a week (cron),
    unless the service has the file of its setting params: then it
    stores the figures itself.

    Examples:

      pellucid served

      pellucid served --log
    """
    found = weeks(state_dir)
    if as_json:
        typer.echo(json.dumps({"weeks": encode(found)}))
    elif not log:
        for line in lines(found):
            typer.echo(line)
    if log:
        _logged(found, params, as_json)


def _logged(found: list[Week], params: Path, as_json: bool) -> None:
    """Log the figures of complete weeks to the model registry, each with the registered version
    of the models that decided. Print a line for each week and bundle, also for a bundle that is
    skipped because it is not registered."""
    with user_errors():
        from models.training.tracking import log_serving, registered
        from pipeline.stages.common import read_params
        from pipeline.stages.evaluate import registry_of

        registry = registry_of(read_params(params))
        for week in reversed(found):
            for one in week.bundles if week.whole else ():
                version = registered(one.digest, registry)
                name = "is no registered version"
                if version is not None:
                    log_serving(version, week.number, figures(one), registry)
                    name = f"version {version.number}"
                line = f"{_day(week)} {one.digest[:12]} {name}: {one.decided} jobs decided"
                typer.echo(line, err=as_json)


def figures(one: Served) -> dict[str, float]:
    """Return the figures of one bundle in one week, by the names under which they are logged.
    Unknown figures are left out."""
    known = {
        "jobs decided": one.decided,
        "jobs ended": one.ended,
        "error": one.error,
        "median of true over predicted": one.ratio,
        "share within half to twice": one.twice,
    }
    if one.announced:  # else perhaps no chance was recorded, as of a Slurm's jobs
        known |= {
            "over 6 h": one.long,
            "over 6 h announced": one.found,
            "over 6 h announced wrongly": one.warned - one.found,
        }
    return {name: float(value) for name, value in known.items() if value is not None}


def lines(found: list[Week]) -> list[str]:
    """Return lines of text about the weeks, the latest first."""
    table = [["WEEK OF", "BUNDLE", "DECIDED", "ENDED", "ERROR", "TRUE/PREDICTED", "HALF TO TWICE"]]
    table[0].append("OVER 6 H ANNOUNCED")
    marks = {words: "*" * i for i, words in enumerate(_open(found), 1)}
    for week in found:
        for one in week.bundles:
            known = ["-", "-", "-"]
            if one.error is not None and one.ratio is not None and one.twice is not None:
                known = [f"{one.error:.3f}", f"{one.ratio:.2f}", f"{one.twice:.0%}"]
            day = f"{_day(week)} {marks.get(week.words, '')}".rstrip()
            table.append([day, one.digest[:12], str(one.decided), str(one.ended), *known])
            table[-1].append(one.announced or "-")
    if len(table) == 1:
        return ["No week was counted yet: the service counts once an hour."]
    return [*aligned(table), *(f"{mark} {words}" for words, mark in marks.items())]


def _open(found: list[Week]) -> list[str]:
    """Return texts that say what may still change in the figures of the weeks, each once."""
    return list(dict.fromkeys(week.words for week in found if week.words and week.bundles))


def _day(week: Week) -> str:
    return str(datetime.fromtimestamp(week.number * WEEK_S, UTC).date())
