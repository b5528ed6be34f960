"""`pellucid whatif`: forecasts how a changed request would change a job's start."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from features.codec import decode
from pipeline.errors import UserError
from pipeline.options import JOB, takes
from pipeline.remote import Service, print_json
from scheduler.core.request import OF_JOB, TRIED
from scheduler.explain.effect import WhatIfAnswer
from scheduler.explain.effect_words import effect_lines

# a message or a note moves no start
MOVES = {name: one for name, one in TRIED.items() if name in {*OF_JOB, "priority"}}


@takes(MOVES, different=True)
def whatif(
    job: JOB,
    service: Service,
    first: Annotated[
        bool, typer.Option("--first", help="Try the job as the first in line.")
    ] = False,
    **asked: Any,
) -> None:
    """Forecast when a waiting job starts as it is, and when it would start with the given options.
    The job itself is not changed.

    Examples:

      pellucid whatif 7njjr7qk87fm --gpus 4

      pellucid whatif 7njjr7qk87fm --first
    """
    asked = {name: value for name, value in asked.items() if value is not None}
    asked |= {"first": True} if first else {}
    if not asked:
        raise UserError("say what is to be different: --gpus, --first, --priority, --no-share")
    with service.client() as client:
        answer = client.what_if(job, **asked)
        now = client.now()
    if service.as_json:
        print_json(answer)
        return
    for line in effect_lines(decode(WhatIfAnswer, answer), now):
        typer.echo(line)
