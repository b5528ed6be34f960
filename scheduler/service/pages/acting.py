"""Pages for actions on a job (change, hold, release, cancel), or on a group of jobs.

Each action is previewed first, by a GET that changes nothing. It is then confirmed by a form on the
preview, which carries what was previewed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from scheduler.service.api import acting as api
from scheduler.service.api import jobs
from scheduler.service.api.auth import Asking, form
from scheduler.service.api.changes import Changes
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import MOST_CANCELLED, CancelRequest
from scheduler.service.api.shapes import JobChange
from scheduler.service.log.record import Phase
from scheduler.service.log.store.reads import JOB_ID, UnknownJob, VisibleQueries
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.pages.asked import INPUTS, differences, wanted
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import Alike, Word, show

router = APIRouter(include_in_schema=False)
FIELDS = ("do", *(one.name for one in INPUTS.values()))
DEEDS = ("change", "hold", "release", "cancel")


@router.get("/jobs/{job_id}/act")
async def preview(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show what an action on a job would change. Nothing is changed: a form on the page shown does
    the action.
    """
    return await _answer(request, viewer, job_id, request.query_params, preview=True)


@router.post("/jobs/{job_id}/act")
async def act(request: Request, viewer: Asking, job_id: str) -> Response:
    """Do an action on a job (form field `do`: change, hold, release or cancel; for a change also
    the new values), and show the job again; or show what is wrong.
    """
    return await _answer(request, viewer, job_id, form(request), preview=False)


@router.get("/group/act")
def preview_of_group(request: Request, viewer: Asking, which: Alike, do: Word = "") -> Response:
    """Show which jobs of a group (`pages.groups`) would be held, released or cancelled."""
    view: VisibleQueries = request.app.state.reads.seen_by(viewer)
    of: dict[str, Any] = {"do": do, "like": which["like"], "vc": which["vc"]}

    def build(queries: PageQueries) -> Mapping[str, Any]:
        found = queries.members(**which)
        ids = found[:MOST_CANCELLED]
        those, left = act_on(request, view, {"do": do}, ids, preview=True)
        return {**of, "ids": those, "left": left, "more": len(found) - len(ids), "problem": ""}

    try:
        return show(request, viewer, template="group_change.html", here="", build=build)
    except Problem as problem:
        none = {**of, "ids": [], "left": 0, "more": 0, "problem": problem.sentence}
        status = problem.status
    return show(
        request, viewer, template="group_change.html", here="", build=lambda _: none, status=status
    )


@router.post("/group/act")
def act_on_group(request: Request, viewer: Asking) -> Response:
    """Do an action (form field `do`) to the jobs that were previewed (`jobs`), and show the front
    page again.
    """
    view: VisibleQueries = request.app.state.reads.seen_by(viewer)
    given = form(request, lists=("jobs",))
    what = {"do": given.get("do", "")}
    act_on(request, view, what, given.get("jobs", "").split(), preview=False)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/", 303)


def act_on(
    request: Request,
    view: VisibleQueries,
    given: Mapping[str, str],
    ids: Sequence[str],
    *,
    preview: bool,
) -> tuple[list[str], int]:
    """Hold, release, cancel or change several jobs, or only preview that. Return the ids of the
    jobs for which it is done, and the number of the other jobs. Of `ids`, only the first
    `MOST_CANCELLED` are looked at. Raise Problem where it is refused for some and done for none.

    Args:
        given: `do`; for a change also the values of the form, without which it is refused.
    """
    deed = given["do"]
    if deed not in (DEEDS if len(given) > 1 else DEEDS[1:]):
        raise Problem(422, "invalid-request", "jobs can be held, released or cancelled")
    changed = wanted(given) if deed == "change" else None
    ids = [job_id for job_id in ids if JOB_ID.fullmatch(job_id)][:MOST_CANCELLED]
    if not ids:
        return [], 0
    if deed == "cancel":
        many = api.cancel_many(CancelRequest(jobs=list(ids)), request, view, preview)
        return many.asked, len(ids) - len(many.asked)
    changes: Changes = request.app.state.changes
    work = api.Acting(changes, view.viewer)
    events = []
    refused: Problem | None = None
    rows = {job.job_id: job for job in view.those(ids)}
    for job in (rows[job_id] for job_id in dict.fromkeys(ids) if job_id in rows):
        try:
            if changed is not None:
                asked = work.change(job, changed)
            else:
                asked = work.hold(job) if deed == "hold" else work.release(job)
        except Problem as problem:
            refused = problem
            continue
        if asked.event is not None:
            events.append(asked.event)
    if refused and not events:
        raise refused
    if not preview:
        changes.write(events)
    return [event.job_id for event in events], len(ids) - len(events)


async def _answer(
    request: Request, viewer: Viewer, job_id: str, fields: Mapping[str, str], *, preview: bool
) -> Response:
    given = {name: fields.get(name, "").strip() for name in FIELDS}
    change, why_not, status = None, "", 200
    try:
        change = await _asked(request, viewer, job_id, given, preview=preview)
        if not preview:
            return RedirectResponse(f"{request.scope.get('root_path', '')}/jobs/{job_id}", 303)
    except Problem as problem:
        why_not, status = problem.sentence, problem.status
    except UnknownJob:
        pass  # answered below

    def build(queries: PageQueries) -> Mapping[str, Any]:
        job = queries.job(job_id)
        differs = differences(job, change.changes) if change else []
        shown = {"change": change, "problem": why_not, "given": given, "deeds": DEEDS}
        return {"job": job, "now": queries.now(), "differs": differs, **shown}

    return await run_in_threadpool(
        show, request, viewer, "job_change.html", "", build, job_id=job_id, status=status
    )


async def _asked(
    request: Request, viewer: Viewer, job_id: str, given: Mapping[str, str], preview: bool
) -> JobChange:
    view: VisibleQueries = request.app.state.reads.seen_by(viewer)
    deed = given["do"]
    if deed == "change":
        await run_in_threadpool(api.allowed, job_id, request, view)
        return await api.change_job(
            job_id, asked=wanted(given), request=request, view=view, preview=preview
        )
    if deed == "hold":
        return await api.hold(job_id, request, view, preview)
    if deed == "release":
        return await api.release(job_id, request, view, preview)
    if deed != "cancel":
        raise Problem(422, "invalid-request", "a job can be changed, held, released or cancelled")
    job = await run_in_threadpool(view.job, job_id)
    if not preview:
        await run_in_threadpool(jobs.cancel, job_id, request, view)
    needed = not job.cancel_asked and not Phase(job.phase).over
    return JobChange(job_id, {}, needed, not preview)
