"""`pellucid whatif`: what another request would change."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.remote import JOB, JSON, SERVER, TOKEN, connect, effect_lines, print_json


def whatif(
    job: JOB,
    gpus: Annotated[int | None, typer.Option(help="If it asked for so many GPUs.")] = None,
    first: Annotated[bool, typer.Option("--first", help="If it went before all others.")] = False,
    priority: Annotated[int | None, typer.Option(help="If it had this priority.")] = None,
    vc: Annotated[str | None, typer.Option(help="If it were in this virtual cluster.")] = None,
    share: Annotated[
        bool | None, typer.Option("--share/--no-share", help="If it might share its GPUs, or not.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="If it were limited to so many seconds.")
    ] = None,
    server: SERVER = None,
    token: TOKEN = None,
    as_json: JSON = False,
) -> None:
    """Forecast a waiting job as it is, and as it would be. Nothing is changed.

    Examples:

      pellucid whatif 7njjr7qk87fm --gpus 4

      pellucid whatif 7njjr7qk87fm --first
    """
    changes: dict[str, Any] = {
        "gpus": gpus, "first": first or None, "priority": priority, "share": share, "vc": vc,
        "time_limit_s": time_limit,
    }  # fmt: skip
    asked = {name: value for name, value in changes.items() if value is not None}
    if not asked:
        raise UserError("say what is to be different: --gpus, --first, --priority, --no-share")
    with user_errors(), connect(server, token) as client:
        answer = client.what_if(job, **asked)
        now = client.cluster()["now"]
    if as_json:
        print_json(answer)
        return
    for line in effect_lines(answer, now):
        typer.echo(line)
