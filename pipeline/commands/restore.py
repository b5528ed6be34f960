"""`pellucid restore`: replaces a damaged database of a service by a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.options import DATABASE


def restore(
    backup: Annotated[
        Path, typer.Argument(help="A backup of the database, or the folder that holds one.")
    ],
    database: DATABASE = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help=("State folder of the service; it receives the backup's models.")),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help=("Put the backup in place. Without --apply, only print what would change."),
        ),
    ] = False,
) -> None:
    """Replace a damaged or lost SQLite database of a service by a backup.

    Stop the service first. Every page of the backup is checked, and a summary of its contents is
    printed. Nothing changes without --apply. The present database is kept under another name.
    Jobs that waited when the backup was made wait again; jobs that ran then become `lost` unless
    they still run on this host. What happened after the backup is not in it. For PostgreSQL use
    `pg_restore`.

    Examples:

      pellucid restore /backup

      pellucid restore /backup/pellucid.db --database sqlite:///data/service/pellucid.db --apply
    """
    with user_errors():
        from scheduler.service.log.restore import Restore
        from scheduler.service.settings import read_settings

        settings = read_settings(database=database, state_dir=state_dir)
        found = Restore.of(settings.database, settings.state_dir, backup)
        lines = found.apply() if apply else [*found.lines(), "nothing was changed: --apply"]
    for line in lines:
        typer.echo(line)
