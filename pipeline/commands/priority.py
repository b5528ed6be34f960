"""`pellucid priority`: let waiting jobs go sooner or later."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pipeline.commands.hold import act
from pipeline.options import JOBS, PREVIEW, spread
from pipeline.remote import Service, effect_lines


@spread
def priority(
    jobs: JOBS,
    to: Annotated[int, typer.Option("--to", help="The priority; 0 is what everybody has.")],
    service: Service,
    preview: PREVIEW = False,
) -> None:
    """Give waiting jobs a priority: higher goes first, whatever else makes their place.

    Submitters may put off their own jobs (below 0); operators do both.

    Examples:

      pellucid priority 7njjr7qk87fm --to 10 --preview

      pellucid priority 7njjr7qk87fm 4q2w9z01xkfe --to=-1
    """
    act(service, jobs, _told, lambda client, job: client.set_priority(job, to, preview=preview))


def _told(answer: dict[str, Any], now: float) -> list[str]:
    job, to, before = answer["job_id"], answer["priority_after"], answer["before"]
    lines = [f"{job} {'has' if answer['applied'] else 'would have'} priority {to}"]
    if before and answer["after"]:
        lines.append(f"  place {before['position']} before, {answer['after']['position']} after")
    if answer["effect"]:
        lines += [f"  {line}" for line in effect_lines(answer["effect"], now)]
    return lines
