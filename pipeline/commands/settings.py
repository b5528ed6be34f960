"""`pellucid settings`: shows and changes the settings of a running service's policy."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from features.codec import decode
from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.options import spread
from pipeline.remote import Change, Service, change, print_json
from scheduler.service.log.store.rows import Setting

HELP = """Show or change the settings of a running service's policy. For operators.

Example:

  pellucid settings set ageing=0.5 --reason "long jobs waited too long" --preview
"""
app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)


@app.command()
@spread
def show(service: Service) -> None:
    """Show the settings of the service's policy: present value, default, last change, meaning."""
    with service.client() as client:
        found = client.settings()
    if service.as_json:
        print_json(found)
        return
    for one in decode(list[Setting], found):
        changed = "" if one.value == one.default else f" (default {_written(one.default)})"
        if one.since is not None:
            changed += time.strftime(" (%F %R", time.localtime(one.since))
            changed += f" by {one.actor})" if one.actor else ")"
        unit = f" {one.unit}" if one.unit else ""
        typer.echo(f"{one.name} = {_written(one.value)}{unit}{changed}: {one.description}")


def _written(value: Any) -> str:
    """Return a value of a setting as text, written as in a cluster file."""
    return json.dumps(value, ensure_ascii=False)


@app.command("set")
@spread
def set_settings(
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="Settings of the policy and their new values, e.g. fairness.weight=1. The others "
            "stay.",
        ),
    ],
    asked: Change,
) -> None:
    """Change settings of the service's policy. They hold at once, also for jobs that wait already.

    Example:

      pellucid settings set ageing=0.5 fairness.weight=1 --preview
    """
    from scheduler.core.settings import value_of

    with user_errors():
        values = {}
        for text in assignments:
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise UserError(f"{text}: use NAME=VALUE")
            values[name] = value_of(value)
    change(asked, "is set", lambda client: client.set_settings(values, **asked.how()))
