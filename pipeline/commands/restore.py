"""`pellucid restore`: replaces a damaged database of a service by a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.console import user_errors
from pipeline.options import DATABASE


def restore(
    backup: Annotated[
        Path, typer.Argument(help="Backup of the database: the file, or the folder that holds it.")
    ],
    database: DATABASE = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the service's files (its --state-dir), to which the backup's models "
            "are copied. Left out: data/service."
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Replace the database. Without --apply, only print what would change.",
        ),
    ] = False,
) -> None:
    """Replace a damaged or lost SQLite database of a service by a backup.

    Stop the service first. The backup is checked, and a summary of what it holds is printed. With
    --apply, it takes the place of the present database, which is kept under another name.

    Jobs that waited when the backup was made wait again. Jobs that ran then get the state lost,
    unless they still run on this host. Everything that happened since the backup is forgotten. For
    PostgreSQL, use `pg_restore`.

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
