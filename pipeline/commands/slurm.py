"""`pellucid slurm`: commands that change Slurm itself, without a running service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from features.plain import plain
from pipeline.commands.token import Stored
from pipeline.console import user_errors
from pipeline.options import CONFIG, PRINT_JSON, spread
from pipeline.remote import print_json

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """For Slurm sites: undo the service's changes to Slurm, erase a user's data, list which
    features of Slurm forecasts take into account. No service need run.

    Example:

      pellucid slurm release-all --dry-run
    """


@app.command("modelled")
def modelled(as_json: PRINT_JSON = False) -> None:
    """List Slurm's settings, flags, limits, options, GRES and reasons, and which of them the policy
    slurm imitates when it forecasts Slurm's decisions.

    The list is made from Slurm's manual pages. At its start, `pellucid serve` prints which
    features your site uses that are not imitated, and for which jobs.

    Example:

      pellucid slurm modelled | grep 'not modelled'
    """
    from scheduler.slurm.twin.known import lines

    if as_json:
        print_json(list(lines()))
        return
    for line in lines():
        typer.echo(line)


@app.command("release-all")
def release_all(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the commands that would change Slurm.")
    ] = False,
    config: CONFIG = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Undo the changes even if --config has dry_run, or if a service is running.",
        ),
    ] = False,
    as_json: PRINT_JSON = False,
) -> None:
    """Undo every priority and AdminComment that `serve --slurm-mode order` gave to waiting jobs.

    The jobs are found by their AdminComment. With Slurm's priority/multifactor, Slurm computes
    their priority again; with priority/basic, they get back the one they had. You need the right to
    change jobs' priorities. A service that is stopped in the usual way does this itself.

    With --config, nothing is undone if the service's setting dry_run is on, or if a service with
    its database is running.

    Examples:

      pellucid slurm release-all --dry-run

      pellucid slurm release-all

      pellucid slurm release-all --config /etc/pellucid/service.yaml --force
    """
    with user_errors():
        from pipeline.errors import UserError
        from scheduler.slurm.follow.orders import release_all as take_back
        from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
        from scheduler.slurm.read.parse import ParseError

        commands: list[str] = []
        left = "" if dry_run or force or config is None else _kept(config)
        if left:
            if as_json:
                print_json({"jobs": [], "refused": {}, "commands": [], "left": left})
            else:
                typer.echo(f"Nothing is taken back: {left}.")
            return
        slurm = Slurm(show=commands.append if dry_run else None)
        try:
            answers = take_back(slurm)
        except (SlurmDown, SlurmError, ParseError) as error:
            raise UserError(f"Slurm: {error}") from None
        finally:
            slurm.close()
    refused = {name: reason for name, reason in answers.items() if reason}
    if as_json:
        print_json({"jobs": list(answers), "refused": refused, "commands": commands})
    elif dry_run:
        for line in commands:
            typer.echo(line)
    else:
        for name, reason in refused.items():
            typer.echo(plain(f"{name}: {reason}"), err=True)
        typer.echo(f"Taken back: {len(answers) - len(refused)} of {len(answers)}.")
    if refused:
        raise typer.Exit(1)


def _kept(config: Path) -> str:
    """Return why nothing is to be taken back: dry_run is set, or a service runs that keeps the
    order of jobs in Slurm. Return "" if neither is so."""
    from scheduler.service.log.questions import LEASE
    from scheduler.service.settings import read_settings

    settings = read_settings(config)
    if settings.dry_run:
        return "dry_run is set, so that nothing was given"
    with Stored(config=config).opened() as store:
        alive = store.is_renewed(LEASE)
    return "another service is alive and keeps the order" if alive else ""


@app.command()
@spread
def erase(
    user: Annotated[str, typer.Argument(help="Name of the user in Slurm.")],
    stored: Stored,
) -> None:
    """Erase a user's data from the database of a service that runs with --backend slurm.

    Erased are the user's jobs, decisions and predictions about them, links to them, refused
    requests, questions and tokens. Then restart the service, which otherwise still remembers how
    long the user's jobs ran. Jobs that Slurm still lists are stored again. Slurm's own records are
    not changed (docs/data-protection.md).

    Example:

      pellucid slurm erase alice --config /etc/pellucid/service.yaml
    """
    with user_errors(), stored.opened() as store:
        from pipeline.errors import UserError
        from scheduler.slurm.follow.erase import NotErasable
        from scheduler.slurm.follow.erase import erase as take_out

        try:
            gone = take_out(store, user)
        except NotErasable as error:
            raise UserError(str(error)) from None
    if stored.as_json:
        print_json(gone)
        return
    erased = ", ".join(f"{count} {name}" for name, count in gone.items() if count)
    typer.echo(f"Erased: {erased or 'nothing was kept'}.")
