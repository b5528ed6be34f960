"""The form that submits a job. Its fields are the declared fields of a job; those left blank take
their default.
"""

from __future__ import annotations

import re
import secrets
import shlex
from asyncio import wrap_future
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from scheduler.core.request import FIELDS
from scheduler.explain.new_job import sentences
from scheduler.service.api.auth import Asking, form, only_asks
from scheduler.service.api.changes import Changes
from scheduler.service.api.jobs import eta
from scheduler.service.api.problems import Problem, misfit
from scheduler.service.api.refusals import not_there_sentence
from scheduler.service.api.schemas import ArrayRequest, SubmitRequest, tasks_of
from scheduler.service.log.store.reads import UnknownJob
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.pages.asked import Input
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import Word, show

router = APIRouter(include_in_schema=False)
INPUTS = {name: Input(one) for name, one in FIELDS.items() if name != "priority"}
FIRST = ("gpus", "time_limit_s", "vc", "name")  # the rest is folded
WORDS = ("command", "workdir")


@router.get("/submit")
def empty(
    request: Request, viewer: Asking, again: Word = "", alone: bool = False, memory: int = 0
) -> Response:
    """Show the form, empty, or filled with what a job that the viewer may see asked for.

    Args:
        again: id of the job that fills the form; "": none.
        alone: fill in that the GPUs are not to be shared.
        memory: MiB of host memory to fill in; 0: as the other job asked.
    """
    if not again:
        return _form(request, viewer, {})
    view = request.app.state.reads.seen_by(viewer)
    try:
        job = view.job(again)
    except UnknownJob:
        request.app.state.refusals.missed(request, again)
        why_not = not_there_sentence(request, again)
        return _form(request, viewer, given={}, why_not=why_not, status=404)
    given = asked_by(job)
    given |= {"share": "no"} if alone else {}
    given |= {"memory_mib": str(memory)} if memory > 0 else {}
    return _form(request, viewer, given, again=again)


def asked_by(job: JobRow) -> dict[str, str]:
    """Return what a job asked for, by the form's fields. For a job that has ended, the command is
    only the program.
    """
    values = {one.name: getattr(job, name) for name, one in INPUTS.items()}
    usual = {one.name: one.of.default for one in INPUTS.values()}
    sent = {
        one.name: one.sent(values[one.name])
        for one in INPUTS.values()
        if values[one.name] not in (None, "", usual[one.name])
    }
    return {"command": shlex.join(job.command), "workdir": job.workdir, **sent}


@router.post("/submit")
async def submit(request: Request, viewer: Asking) -> Response:
    """Submit the form and show the job; or show the form again, filled in, with what is wrong.
    The same form sent twice submits one job."""
    given = {name: text.strip() for name, text in form(request).items()}
    try:
        changes: Changes = request.app.state.changes
        asked = wanted(given)
        if isinstance(asked, ArrayRequest):
            request.app.state.authenticator.spend(viewer, len(tasks_of(asked.array).numbers) - 1)
            many = await run_in_threadpool(changes.submit_array, viewer, asked, key_of(given))
            where = f"arrays/{many.array_id}"
        else:
            done = await wrap_future(changes.submit(viewer, asked, key_of(given)))
            where = f"jobs/{done.job_id}"
    except Problem as problem:
        return await run_in_threadpool(
            _form, request, viewer, given, problem.sentence, problem.status
        )
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{where}", 303)


@router.post("/submit/eta")
@only_asks
async def try_it(request: Request, viewer: Asking) -> Response:
    """Show the form as it was filled in, and when such a job would start. Nothing is submitted."""
    given = {name: text.strip() for name, text in form(request).items()}
    try:
        view = request.app.state.reads.seen_by(viewer)
        found = await eta(one_of(wanted(given)), request, view)
    except Problem as problem:
        return await run_in_threadpool(
            _form, request, viewer, given, problem.sentence, problem.status
        )
    return await run_in_threadpool(_form, request, viewer, given, expected=sentences(found))


def one_of(asked: SubmitRequest) -> SubmitRequest:
    """Return the request for the first task of an array. Return any other request unchanged."""
    if not isinstance(asked, ArrayRequest):
        return asked
    return SubmitRequest.model_validate(asked.model_dump(exclude={"array"}))


def key_of(given: Mapping[str, str]) -> str | None:
    key = given.get("key", "")
    return key if re.fullmatch(r"[0-9a-f]{32}", key) else None


def wanted(given: Mapping[str, str]) -> SubmitRequest:
    """Return the request that the form asks for. Raise Problem (422) where a field does not
    fit."""
    try:
        command = shlex.split(given.get("command", ""))
    except ValueError as error:
        raise Problem(422, "invalid-request", f"Command: {error}") from None
    sent = {name: one for name, one in INPUTS.items() if given.get(one.name)}
    values: dict[str, Any] = {name: one.read(given[one.name]) for name, one in sent.items()}
    try:
        asked = {"command": command, "workdir": given.get("workdir", ""), **values}
        if array := given.get("array"):
            return ArrayRequest.model_validate({**asked, "array": array})
        return SubmitRequest.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
    where = str(first["loc"][0]) if first["loc"] else ""
    if one := sent.get(where):
        detail = f"{one.title} is {given[one.name]}; give {one.accepts}"
    elif where == "array":
        detail = f"Array is {given['array']}; give 0-9, 1,3,7, 0-10:2 or 0-9%2"
    elif where == "command" and not command:
        detail = "Command: say what is to run"
    else:
        detail = misfit({**first, "loc": ("body", *first["loc"])})
    raise Problem(422, "invalid-request", detail)


def _form(
    request: Request,
    viewer: Viewer,
    given: Mapping[str, str],
    why_not: str = "",
    status: int = 200,
    again: str = "",
    expected: Sequence[str] = (),
) -> Response:
    def build(queries: PageQueries) -> Mapping[str, Any]:
        vcs = queries.vcs() if viewer.sees_all else viewer.vcs
        changes: Changes = request.app.state.changes
        choices = {"vc": list(vcs)}
        parts: dict[bool, list[tuple[Input, list[str]]]] = {True: [], False: []}
        for name, one in INPUTS.items():
            if name == "notify" and not changes.mails:
                continue
            yes_no = ["yes", "no"] if one.of.kind is bool else []
            parts[name in FIRST].append((one, choices.get(name, yes_no)))
        key = given.get("key") or secrets.token_hex(16)
        return {
            "given": given, "problem": why_not, "key": key, "first": parts[True],
            "more": parts[False], "again": again, "expected": expected,
        }  # fmt: skip

    return show(request, viewer, template="submit.html", here="/submit", build=build, status=status)
