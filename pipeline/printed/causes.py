"""Turns a summary of all waiting jobs by cause into lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.printed import aligned, between

if TYPE_CHECKING:
    from scheduler.explain.causes import Causes

HEAD = "JOBS", "GPUS", "LONGEST", "OF JOB", "BECAUSE"
HOLDS = "JOBS", "THEIR GPUS", "WAIT FOR JOB", "OF USER", "WHICH IS"


def lines(found: Causes) -> list[str]:
    """Return lines of text about why jobs wait: one per cause, the remedies of the causes, then
    the jobs whose end would free most waiting jobs. If no job waits, return one line that says
    so."""
    from scheduler.explain.render import WAITED_FOR, of_causes

    if not found.waiting:
        return [of_causes(found)]
    causes = [
        (str(one.jobs), str(one.gpus), between(one.oldest, found.now), one.example, one.text)
        for one in found.causes
    ]
    steps = {one.text: one.step for one in found.causes if one.step}
    waited_for = [
        (str(one.jobs), str(one.gpus), one.job_id, one.owner, one.phase) for one in found.waited_for
    ]
    return [
        of_causes(found),
        *aligned([HEAD, *causes], right=(0, 1)),
        *(f"{text}: {step}" for text, step in steps.items()),
        *([WAITED_FOR] if waited_for else []),
        *(aligned([HOLDS, *waited_for], right=(0, 1)) if waited_for else []),
    ]
