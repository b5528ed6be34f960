"""`pellucid promote`: makes a candidate model the champion (the model in use), if evidence says
so."""

from __future__ import annotations

import getpass
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.console import step, user_errors
from pipeline.errors import UserError
from pipeline.options import JSON_OBJECT

if TYPE_CHECKING:
    import pyarrow as pa

    from models.training.tracking import Registry, Version
    from pipeline.promotion import Proposal

NOT_BETTER = 1  # exit status
BACK = "back to the former champion"


def promote(
    version: Annotated[
        str | None,
        typer.Argument(
            help="Number of the registered version to judge. Default: the newest.",
            metavar="VERSION",
        ),
    ] = None,
    back: Annotated[
        bool,
        typer.Option(
            "--back",
            help="Put the former champion to use again. VERSION, if given, must be its number.",
        ),
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Register the models in this folder as a new version, with the text of --why, and "
                "judge that version."
            ),
            metavar="FOLDER",
        ),
    ] = None,
    shadow: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Promote nothing. Copy the version to this folder as a shadow (models on trial, "
                "which decide nothing). The service, if its setting shadow names the folder, "
                "compares its predictions with those of the models in use."
            ),
            metavar="FOLDER",
        ),
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Promote nothing. Print the comparison.")
    ] = False,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Promote without asking you first. A version that is not better also needs "
            "--anyway.",
        ),
    ] = False,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Promote the version even if it is not better. Needs --why.",
        ),
    ] = False,
    why: Annotated[
        str | None, typer.Option(help="Your reason; MLflow keeps it with the version.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="Name of who promotes; MLflow keeps it with the version. Default: your user name."
        ),
    ] = None,
    trace: Annotated[
        Path,
        typer.Option(
            help="Jobs to judge on: a folder that `pellucid ingest` wrote, or a file that "
            "`pellucid export` wrote."
        ),
    ] = Path("data/trace"),
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write the champion to. Services whose setting bundle names it use the "
            "new models without a restart."
        ),
    ] = Path("data/bundle"),
    params: Annotated[
        Path,
        typer.Option(
            help="YAML file that names the MLflow registry and the cluster file.", metavar="FILE"
        ),
    ] = Path("params.yaml"),
    draws: Annotated[
        int,
        typer.Option(help="Number of replays of the jobs with each of the two versions.", min=1),
    ] = 3,
    as_json: JSON_OBJECT = False,
) -> None:
    """Compare a registered version of the models with the champion (the models in use), and put it
    to use if it is better.

    Both predict the durations of jobs in --trace from which neither learned, and both schedule the
    last four weeks of these jobs in a simulation. A version is promoted (made champion) if it is
    better in at least one of the printed figures and worse in none, beyond chance: the 95 %
    intervals of the differences, for all figures together, decide.

    Otherwise nothing is changed, and the exit status is 1. If it is ahead, but not beyond chance,
    the number of weeks is printed after which there will probably be enough jobs to tell.

    Examples:

      pellucid promote --preview

      pellucid promote 3 --yes

      pellucid promote --shadow data/shadow

      pellucid promote --bundle mine --why "gpus made monotone" --preview

      pellucid promote --back --why "forecasts of long jobs got worse"
    """
    with user_errors():
        from models.training.tracking import champion
        from pipeline.promotion import Proposal, accepted, carried_out, proposed, register
        from pipeline.stages.common import read_params
        from pipeline.stages.evaluate import registry_of
        from pipeline.worlds.cluster_file import read_cluster

        _check_alone(bundle, back, version)
        if anyway and not why:
            raise UserError("--anyway needs --why: it is kept with the promotion")
        wanted, who = read_params(params), by or getpass.getuser()
        registry = registry_of(wanted)
        new = None if bundle is None else register(bundle, registry, by=who, why=why or "")
        present, candidate = champion(registry), new or _candidate(version, back, registry)
        if shadow is not None:
            accepted(candidate, registry).save(shadow)
            text = f"Version {candidate.number} is a shadow in {shadow}: pellucid beside."
            _say(text, as_json, version=candidate.number, shadow=str(shadow))
            return
        named = yes and not preview and version is not None
        if named and present is not None and present.digest == candidate.digest:
            made = accepted(present, registry)  # perhaps it was broken off before it was saved
            made.save(out)
            text = f"Version {present.number} is champion already."
            _say(text, as_json, version=present.number, already=True)
            return
        if present is not None and present.number == candidate.number:
            raise UserError(f"version {candidate.number} is champion already")
        if back:
            proposal = Proposal(candidate=candidate, champion=present, why_not=BACK)
        else:
            with step("judging, and replaying", as_json):
                proposal = proposed(
                    candidate,
                    registry,
                    _jobs(trace),
                    read_cluster(wanted.cluster),
                    draws=draws,
                )
        _tell(proposal, as_json)
        if preview:
            return
        if not (proposal.better or back or anyway):
            typer.echo("Not promoted. --anyway --why TEXT promotes it all the same.", err=True)
            raise typer.Exit(NOT_BETTER)
        if not yes and not _agreed(candidate):
            raise typer.Exit(NOT_BETTER)
        reason = why or proposal.reason
        made = carried_out(proposal, reason, registry, out, by=who, why=why)
    typer.echo(
        f"Version {candidate.number} is champion; {out} holds {made.digest[:12]}.", err=as_json
    )


def _jobs(path: Path) -> pa.Table:
    """Return the jobs on which models are compared, from a dataset or from a file that a service
    exported. Raises UserError or TraceError if they cannot be read."""
    from features.given import arrow_file
    from features.schema import TRACE_SCHEMA, is_of_a_trace
    from pipeline.traces import read_dataset

    if not path.is_file():
        return read_dataset(path)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with arrow_file(path) as file:
            table = pq.read_table(file)
            if not is_of_a_trace(table.column_names):
                raise ValueError("its columns are others")
            found = pa.concat_tables(
                [TRACE_SCHEMA.empty_table(), table], promote_options="permissive"
            )
            return found.cast(TRACE_SCHEMA).sort_by("submit_time")
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UserError(f"{path}: no jobs that a service exported ({error})") from None


def _check_alone(bundle: Path | None, back: bool, version: str | None) -> None:
    """Raise UserError if `--bundle` is given together with VERSION or `--back`."""
    if bundle is not None and (back or version is not None):
        raise UserError("--bundle registers new models: it takes no VERSION and no --back")


def _candidate(version: str | None, back: bool, registry: Registry) -> Version:
    """Return the model version to judge: `version`, by default the newest. With `back`, return
    the former champion, or the present one if `version` is its number. Raise UserError if there
    is no such version."""
    from models.training.tracking import champion, former_champion, versions

    if back:
        former = former_champion(registry)
        if former is None:
            raise UserError("nobody was champion before: there is nothing to go back to")
        for one in (former, champion(registry)):
            if one is not None and version in (None, one.number):
                return one
        raise UserError(f"version {version} is not the former champion: {former.number} is")
    known = versions(registry)
    for one in known:
        if version is None or one.number == version:
            return one
    held = ", ".join(one.number for one in known) or "none"
    raise UserError(f"version {version}: {registry.name} has {held}; dvc repro registers one")


def _say(text: str, as_json: bool, **found: object) -> None:
    """Print a text; with `as_json`, print `found` as one JSON object and the text to stderr."""
    if as_json:
        typer.echo(json.dumps(found))
    typer.echo(text, err=as_json)


def _tell(proposal: Proposal, as_json: bool) -> None:
    """Print how both models compare on the same jobs, or why they were not compared.

    With `as_json`, print the evidence as JSON.
    """
    if as_json:
        found = dict(proposal.evidence(version=proposal.candidate.number, better=proposal.better))
        typer.echo(json.dumps(found))
        return
    judgement, replay = proposal.judgement, proposal.replay
    typer.echo(f"Version {proposal.candidate.number}, {proposal.candidate.digest[:12]}")
    if judgement is not None:
        for figure in judgement.figures:
            typer.echo(f"  {figure}")
        typer.echo(f"  on {judgement.rows:,} jobs of {judgement.users} users that neither saw")
    if replay is not None:
        for figure in replay.figures:
            typer.echo(f"  {figure}")
        typer.echo(f"  in {replay.about}; intervals of 95 %, all together")
    if judgement is None or replay is None:
        typer.echo(f"  {proposal.reason}")
    if proposal.outlook:
        typer.echo(f"  {proposal.outlook}")


def _agreed(candidate: Version) -> bool:
    """Ask the user at the terminal whether to promote the candidate, and return whether the answer
    is yes. Raises UserError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UserError("nobody to ask: say --yes to promote")
    return typer.confirm(f"Make version {candidate.number} the champion?", err=True)
