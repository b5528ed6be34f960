"""The command line: `pellucid`. One module per command under `pipeline/commands/`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import typer

from pipeline.errors import UserError

# (module under pipeline.commands, function or group), in the order of `pellucid --help`.
COMMANDS: tuple[tuple[str, str], ...] = (
    ("ingest", "ingest"),
    ("train", "train"),
    ("evaluate", "evaluate"),
    ("simulate", "simulate"),
    ("compare", "compare"),
    ("explain", "explain"),
    ("report", "report"),
    ("systems", "systems"),
    ("replay", "replay"),
    ("powerdown", "powerdown"),
    ("profile", "profile"),
    ("colocate", "colocate"),
    ("serve", "serve"),
    ("audit", "audit"),
    ("export", "export"),
    ("demo", "serve_demo"),
    ("submit", "submit"),
    ("ps", "ps"),
    ("cancel", "cancel"),
    ("why", "why"),
    ("whatif", "whatif"),
    ("top", "top"),
    ("token", "token"),
)

app = typer.Typer(
    name="pellucid",
    help="A scheduler for GPU training clusters that can say why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _load() -> None:
    for module, function in COMMANDS:
        command: Callable[..., Any] | typer.Typer = getattr(
            importlib.import_module(f"pipeline.commands.{module}"), function
        )
        name = function.replace("_", "-")
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name=name)(command)


def main() -> None:
    _load()
    try:
        app()
    except UserError as error:
        print(f"pellucid: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
