"""`pellucid priority`: makes waiting jobs start earlier or later by a priority."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.commands.hold import act
from pipeline.options import JOBS, PREVIEW, spread
from pipeline.remote import Service
from scheduler.service.api.shapes import PriorityEffect


@spread
def priority(
    jobs: JOBS,
    to: Annotated[
        int,
        typer.Option(
            "--to", help="New priority of the jobs. A job has 0 unless it was given another."
        ),
    ],
    service: Service,
    preview: PREVIEW = False,
) -> None:
    """Set the priority of waiting jobs. Those of higher priority go first, however long others have
    waited.

    You may set 0 or less for your own jobs, so that they go later; an operator may set any
    priority for any job.

    Examples:

      pellucid priority 7njjr7qk87fm --to 10 --preview

      pellucid priority 7njjr7qk87fm 4q2w9z01xkfe --to=-1
    """
    act(
        kind=PriorityEffect,
        service=service,
        jobs=jobs,
        lines=_lines,
        ask=lambda client, job: client.set_priority(job, to, preview=preview),
    )


def _lines(answer: PriorityEffect, now: float) -> list[str]:
    from scheduler.explain.effect_words import effect_lines

    has = "has" if answer.applied else "would have"
    lines = [f"{answer.job_id} {has} priority {answer.priority_after}"]
    if answer.before and answer.after:
        lines.append(f"  place {answer.before.position} before, {answer.after.position} after")
    if answer.effect:
        lines += [f"  {line}" for line in effect_lines(answer.effect, now)]
    return lines
