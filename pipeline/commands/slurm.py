"""`pellucid slurm`: what is asked of Slurm itself, with no service running."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.console import user_errors

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def _group() -> None:
    """What is asked of Slurm itself; no service need run.

    Example:

      pellucid slurm release-all --dry-run
    """


@app.command("release-all")
def release_all(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands, change nothing.")
    ] = False,
) -> None:
    """Take back every priority and comment that `serve --slurm-mode order` gave to waiting jobs.

    They are found by their AdminComment, so that no database is needed. priority/multifactor
    computes such a job's priority again, with its whole age; with priority/basic it gets the one it
    had. Needs the rights that order needs. A service that is stopped does the same.

    Examples:

      pellucid slurm release-all --dry-run

      pellucid slurm release-all
    """
    with user_errors():
        from pipeline.errors import UserError
        from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError, to_stdout
        from scheduler.backends.slurm.parse import ParseError
        from scheduler.service.follow.orders import release_all as take_back

        slurm = Slurm(show=to_stdout if dry_run else None)
        try:
            answers = take_back(slurm)
        except (SlurmDown, SlurmError, ParseError) as error:
            raise UserError(f"Slurm: {error}") from None
        finally:
            slurm.close()
        refused = {name: said for name, said in answers.items() if said}
        for name, said in refused.items():
            typer.echo(f"{name}: {said}", err=True)
        done = len(answers) - len(refused)
        if not dry_run:
            typer.echo(f"Taken back: {done} of {len(answers)}.")
        if refused:
            raise typer.Exit(1)
