"""Pages of the tasks of an array of jobs: all of them, and the change, hold, release or cancel of
some, after a preview.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.service.api.auth import Asking, form
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import tasks_of
from scheduler.service.log.record import Phase
from scheduler.service.log.store.reads import UnknownJob, VisibleQueries
from scheduler.service.log.store.rows import JobRow
from scheduler.service.pages.acting import FIELDS, act_on
from scheduler.service.pages.asked import differences, inputs, wanted
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import may_act, show

router = APIRouter(include_in_schema=False)


@router.get("/arrays/{array_id}")
def array(request: Request, viewer: Asking, array_id: str) -> Response:
    """Show the tasks of an array, with a form that changes some or all of them."""

    def build(queries: PageQueries) -> Mapping[str, Any]:
        tasks = _tasks(queries, array_id)
        waits = [job for job in tasks if Phase(job.phase).waits]
        vcs = queries.vcs() if viewer.sees_all else viewer.vcs
        return {
            "array": array_id,
            "tasks": tasks,
            "most": max((job.at_once or 0 for job in tasks), default=0),
            "now": queries.now(),
            "acts": may_act(request, viewer) and any(not Phase(job.phase).over for job in tasks),
            "inputs": inputs(vcs, waits[0]) if waits else [],
        }

    return show(request, viewer, template="array.html", here="", build=build)


@router.get("/arrays/{array_id}/act")
def preview(request: Request, viewer: Asking, array_id: str) -> Response:
    """Show for which tasks of an array an action would be done (`do`, `tasks` as in 0-4,9 and, for
    a change, the new values).
    """
    given = _given(request.query_params)
    seen: VisibleQueries = request.app.state.reads.seen_by(viewer)
    shown: dict[str, Any] = {"array": array_id, "given": given, "ids": [], "left": 0, "problem": ""}
    shown["differs"], status = [], 200
    try:
        tasks = _chosen(_tasks(seen, array_id), given["tasks"])
        ids = [job.job_id for job in tasks]
        shown["ids"], shown["left"] = act_on(request, seen, given, ids, preview=True)
        if given["do"] == "change":
            asked, those = wanted(given).given(), set(shown["ids"])
            each = [one for job in tasks if job.job_id in those for one in differences(job, asked)]
            shown["differs"] = dict.fromkeys(one for one in each if one[1] != one[2])
    except Problem as problem:
        shown["problem"], status = problem.sentence, problem.status
    except UnknownJob:
        pass  # answered below

    def build(queries: PageQueries) -> Mapping[str, Any]:
        _tasks(queries, array_id)
        return shown

    return show(request, viewer, template="array_change.html", here="", build=build, status=status)


@router.post("/arrays/{array_id}/act")
def act(request: Request, viewer: Asking, array_id: str) -> Response:
    """Do an action to the tasks that were previewed (`jobs`), and show the array again."""
    seen: VisibleQueries = request.app.state.reads.seen_by(viewer)
    sent = form(request, lists=("jobs",))
    act_on(request, seen, _given(sent), sent.get("jobs", "").split(), preview=False)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/arrays/{array_id}", 303)


def _given(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent.get(name, "").strip() for name in ("tasks", *FIELDS)}


def _tasks(view: VisibleQueries, array_id: str) -> list[JobRow]:
    """Return the tasks of an array that the viewer may see, in the order of their numbers. Raise
    UnknownJob where there are none.
    """
    found = view.tasks(array_id)
    if not found:
        raise UnknownJob(array_id)
    return sorted(found, key=_number)


def _number(job: JobRow) -> int:
    number = job.job_id.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1  # those that Slurm has not split yet


def _chosen(tasks: Sequence[JobRow], numbers: str) -> list[JobRow]:
    """Return the tasks with these numbers ("0-4,9"), all for "". Raise Problem (422) where the
    numbers cannot be read, or no task has one of them.
    """
    if not numbers:
        return list(tasks)
    try:
        asked = tasks_of(numbers)
    except ValueError as error:
        raise Problem(422, "invalid-request", f"Tasks {numbers}: {error}") from None
    if asked.at_once:
        raise Problem(
            422, "invalid-request", f"Tasks {numbers}: %N is set as an array is submitted"
        )
    wanted_numbers = set(asked.numbers)
    found = [job for job in tasks if _number(job) in wanted_numbers]
    if not found:
        raise Problem(422, "invalid-request", f"the array has no task {numbers}")
    return found
