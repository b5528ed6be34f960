"""`pellucid hold` and `pellucid release`: keep waiting jobs from starting until they are
released."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import typer

from features.codec import decode
from pipeline.errors import UserError
from pipeline.options import JOBS, PREVIEW, spread
from pipeline.remote import Service, print_json
from scheduler.service.api.shapes import JobChange
from scheduler.service.log.record import Phase

if TYPE_CHECKING:
    from features.codec import Json
    from scheduler.service.client import Client

T = TypeVar("T")


@spread
def hold(jobs: JOBS, service: Service, preview: PREVIEW = False) -> None:
    """Hold waiting jobs: they do not start until they are released, and no GPUs are kept for
    them until then.

    The time for which a job is held does not count as time waited. A job that an operator held
    for another user can be released only by an operator.

    Example:

      pellucid hold 7njjr7qk87fm
    """
    lines = partial(effect, "is held until it is released")
    act(
        kind=JobChange,
        service=service,
        jobs=jobs,
        lines=lines,
        ask=lambda client, job: client.hold(job, preview=preview),
    )


@spread
def release(jobs: JOBS, service: Service, preview: PREVIEW = False) -> None:
    """Release held jobs, so that they may start. The time that they waited before they were held
    counts.

    Example:

      pellucid release 7njjr7qk87fm --preview
    """
    lines = partial(effect, "is released")
    act(
        kind=JobChange,
        service=service,
        jobs=jobs,
        lines=lines,
        ask=lambda client, job: client.release(job, preview=preview),
    )


def act(
    kind: type[T],
    service: Service,
    jobs: list[str],
    lines: Callable[[T, float], list[str]],
    ask: Callable[[Client, str], Json],
) -> None:
    """Send a request about each of several jobs, and print the answers. A failure for one job does
    not stop the others. The id of an array stands for its waiting tasks.

    Args:
        kind: type of an answer.
        jobs: ids of jobs or arrays.
        lines: returns lines of text, given an answer and the service's time.
        ask: sends the request about one job.

    Raises UserError (exit status 2) if a request failed.
    """
    from scheduler.service.client import ServiceError

    answers, failed = [], []
    with service.client() as client:
        now = client.now()
        for job in tasks_named(jobs):
            for one in _meant(client, job):
                try:
                    answers.append(ask(client, one))
                except ServiceError as error:
                    failed.append(str(error) if one in str(error) else f"{one}: {error}")
    if service.as_json:
        print_json(answers)
    for answer in () if service.as_json else answers:
        for line in lines(decode(kind, answer), now):
            typer.echo(line)
    if failed:
        raise UserError("; ".join(failed))


def tasks_named(jobs: list[str]) -> list[str]:
    """Return the ids in `jobs`, with ARRAY_[0-4] replaced by the id of each task. Raises UserError
    if such a text is not valid."""
    from scheduler.service.api.schemas import each_task

    try:
        return each_task(jobs)
    except ValueError as error:
        raise UserError(f"{' '.join(jobs)}: {error}") from None


def _meant(client: Client, job: str) -> list[str]:
    """Return the ids of the jobs that `job` stands for: if it is the id of an array, its tasks
    that have not begun, by number. Return only `job` itself if it is no array, or if no such
    task is left."""
    tasks = [] if "_" in job else client.jobs(array=job, over=False)
    begun = (Phase.STARTING, Phase.RUNNING)
    return [one["job_id"] for one in tasks if one["phase"] not in begun][::-1] or [job]


def effect(done: str, answer: JobChange, now: float) -> list[str]:
    """Return lines of text about the effect of a change on a waiting job. `done` are words for the
    job after the change, such as "is held"."""
    from scheduler.explain.effect_words import change_lines

    return change_lines(
        answer.job_id, done, answer.effect, now, needed=answer.needed, applied=answer.applied
    )
