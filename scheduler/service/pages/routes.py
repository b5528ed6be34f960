"""The routes of the pages, which `service.app.create_app` adds to the app."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import time
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response

from features.codec import Json
from features.survival import History
from features.watch import Alarm
from scheduler.backends.local.usage import read_usage
from scheduler.charts.chart import Chart
from scheduler.charts.histories import pictures
from scheduler.charts.shapes import placed
from scheduler.core.limits import PRINTABLE, composed
from scheduler.explain.render import says
from scheduler.explain.share import sentences
from scheduler.explain.stories import bundle_in_use
from scheduler.explain.words import NOT_WAITING
from scheduler.service.api import jobs as api
from scheduler.service.api.auth import COOKIE, Asking, Authenticator
from scheduler.service.api.cluster import shares_of
from scheduler.service.api.output import JobOutput, may_read, output_of
from scheduler.service.api.problems import Problem
from scheduler.service.api.questions import Questions
from scheduler.service.api.refusals import not_there_sentence
from scheduler.service.api.session import local_path
from scheduler.service.log.beside import standing
from scheduler.service.log.record import Phase
from scheduler.service.log.store.paging import BadCursor
from scheduler.service.log.store.reads import UnknownJob
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.short import LIVE
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages import figures
from scheduler.service.pages.asked import filled_in, inputs
from scheduler.service.pages.blockers import blockers_page
from scheduler.service.pages.board import board, others
from scheduler.service.pages.groups import GROUPS, group_page
from scheduler.service.pages.lately import Lately
from scheduler.service.pages.listing import (
    COLUMNS,
    Wanted,
    as_csv,
    every_row,
    listing,
)
from scheduler.service.pages.live import Line, Tail, TooManyListeners
from scheduler.service.pages.models import models
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.render import Frame, assets, render
from scheduler.service.pages.story import page_of
from scheduler.service.pages.usage import usage_charts
from scheduler.service.settings import Settings

router = APIRouter(include_in_schema=False)

# Styles: bars and plots are placed by style attributes. Scripts: our own files only.
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
RETRY_MS = 2000
SHOWN_BYTES = 8192  # of the end of a job's output, on its page
Word = Annotated[str, Query(max_length=128, pattern=PRINTABLE), AfterValidator(composed)]
Build = Callable[[PageQueries], Mapping[str, Any]]


# --- pages ---------------------------------------------------------------------------------------


@router.get("/")
def now(request: Request, viewer: Asking, vc: str = "", after: str = "") -> Response:
    """Show the cluster and its queues at this moment."""
    return show(
        request,
        viewer,
        template="board.html",
        here="/",
        build=lambda queries: {
            "b": board(queries, vc, after),
            "odd": unlike_before(request, viewer),
            "others": others,
            "groups": GROUPS,
            "submits": may_act(request, viewer),
        },
    )


def _alike(
    viewer: Asking,
    vc: Word = "",
    owner: Word = "",
    like: Word = "",
    gpus: int = 0,
    phase: Word = "",
) -> Mapping[str, str | int]:
    owner = owner or viewer.name
    return {"vc": vc, "owner": owner, "like": like, "gpus": gpus, "phase": phase}


Alike = Annotated[Mapping[str, str | int], Depends(_alike)]  # what the jobs of a group share


@router.get("/jobs")
def group(request: Request, viewer: Asking, which: Alike, first: int = 0) -> Response:
    """Show the jobs of a group (`pages.groups`), one by one."""
    return show(
        request,
        viewer,
        template="group.html",
        here="",
        build=lambda queries: {
            "g": group_page(queries, which, first),
            "now": queries.now(),
            "acts": may_act(request, viewer),
        },
    )


def _wanted(
    find: Word = "",
    owner: Word = "",
    account: Word = "",
    partition: Word = "",
    state: Word = "",
    without: bool = False,
    sort: Word = "job_id",
) -> Wanted:
    return Wanted(
        find=find.strip(),
        owner=owner,
        account=account,
        partition=partition,
        state=state,
        without=without,
        sort=sort,
    )


Chosen = Annotated[Wanted, Depends(_wanted)]


@router.get("/list")
def list_jobs(
    request: Request, viewer: Asking, wanted: Chosen, first: int = 0, after: Word = ""
) -> Response:
    """Show a table of the jobs that the viewer may see and that have not ended. The address's query
    holds the search, the filters and the sorting.
    """
    return show(
        request,
        viewer,
        template="list.html",
        here="/list",
        build=lambda queries: {
            "l": listing(queries, wanted, first, after),
            "w": wanted,
            "columns": COLUMNS,
            "states": LIVE,
            "now": queries.now(),
        },
    )


@router.get("/list.csv")
def list_as_csv(request: Request, viewer: Asking, wanted: Chosen) -> Response:
    """Send the whole table of `list_jobs` as CSV, for a spreadsheet."""
    queries = _queries(request, viewer)
    rows = every_row(queries, wanted)
    headers = {"Content-Disposition": 'attachment; filename="jobs.csv"'}
    return Response(as_csv(rows), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/causes")
async def why_they_wait(request: Request, viewer: Asking) -> Response:
    """Show waiting jobs by cause, the jobs whose end would free most of them, and the viewer's fair
    share.
    """
    share = sentences(await shares_of(request, viewer))

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {"c": queries.causes(queries.now()), "share": share}

    return await run_in_threadpool(
        show, request, viewer, template="causes.html", here="/causes", build=build
    )


def may_act(request: Request, viewer: Viewer) -> bool:
    return viewer.role is not Role.VIEWER and not request.app.state.settings.follows


@router.get("/jobs/{job_id}")
def job(request: Request, viewer: Asking, job_id: str, codes: str | None = None) -> Response:
    """Show one job, or for an array its first waiting task. With `codes`, show reason codes beside
    the words.
    """

    def build(queries: PageQueries) -> Mapping[str, Any]:
        found = page_of(queries, queries.task_of(job_id))
        return {
            "s": found,
            "codes": codes is not None,
            "policy": queries.policy(),
            "acts": may_act(request, viewer),
            "output": _output(request, viewer, found.job),
            "usage": _usage(request, found.job),
            "inputs": inputs(queries.vcs() if viewer.sees_all else viewer.vcs, found.job),
        }

    return show(request, viewer, template="job.html", here="", build=build, job_id=job_id)


def _output(request: Request, viewer: Viewer, job: JobRow) -> JobOutput | None:
    """Return the end of what a job has written; None where nothing is kept, or the viewer may not
    read it.
    """
    if may_read(viewer, job):
        with suppress(Problem):
            return output_of(request.app.state.settings, job, offset=-SHOWN_BYTES)
    return None


def _usage(request: Request, job: JobRow) -> Sequence[Chart]:
    """Return charts of what a job uses, or used, of this host's GPUs; [] for a job that runs
    elsewhere or has not begun.
    """
    settings = request.app.state.settings
    if settings.backend != "local" or not job.attempt:
        return []
    return usage_charts(read_usage(settings.state_dir / "local", job.job_id, job.attempt))


@router.get("/jobs/{job_id}/tail")
def tail_of(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show the end of what a job has written. The job's page fetches this again while the job
    runs.
    """

    def build(queries: PageQueries) -> Mapping[str, Any]:
        found = queries.job(job_id)
        return {"job": found, "output": _output(request, viewer, found)}

    return show(request, viewer, template="tail.html", here="", build=build, job_id=job_id)


@router.get("/jobs/{job_id}/ask")
async def ask(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show what would let a waiting job start sooner, with the analysis of the API."""
    view = request.app.state.reads.seen_by(viewer)
    analysis, why_not = None, ""
    try:
        analysis = (await api.explanation(job_id, request, view, analyse=True)).analysis
        why_not = "" if analysis else NOT_WAITING
    except Problem as problem:
        why_not = problem.detail
    except UnknownJob:
        await run_in_threadpool(request.app.state.refusals.missed, request, job_id)
        why_not = await run_in_threadpool(not_there_sentence, request, job_id)

    def build(queries: PageQueries) -> Mapping[str, Any]:
        words = says(analysis) if analysis and not analysis.unavailable else {}
        found = {"analysis": analysis, "says": words, "problem": why_not}
        return {"job_id": job_id, "now": queries.now(), "filled_in": filled_in, **found}

    return await run_in_threadpool(show, request, viewer, "answer.html", "", build, job_id=job_id)


@router.get("/jobs/{job_id}/blockers")
async def blockers(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show what is in the way of a waiting job at this moment: which runs must end first, and
    when each should end."""
    view = request.app.state.reads.seen_by(viewer)
    in_the_way, why_not = None, ""
    try:
        found = await run_in_threadpool(view.job, job_id)
        if Phase(found.phase).waits and not found.hold:
            in_the_way = blockers_page(await api.analysis(job_id, request, view, helps=False))
    except UnknownJob:
        await run_in_threadpool(request.app.state.refusals.missed, request, job_id)
        why_not = await run_in_threadpool(not_there_sentence, request, job_id)

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {"job_id": job_id, "now": queries.now(), "found": in_the_way, "problem": why_not}

    return await run_in_threadpool(show, request, viewer, "blockers.html", "", build, job_id=job_id)


@router.get("/jobs/{job_id}/histories")
async def histories_of(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show how long similar jobs lasted, on which this job's prediction rests."""
    view = request.app.state.reads.seen_by(viewer)
    answer: Mapping[str, Any] = {}
    why_not = ""
    try:
        asked = await run_in_threadpool(view.job, job_id)
        of = {"owner": asked.owner, "vc": asked.vc, "gpus": asked.gpus, "name": asked.name}
        answer = await _histories(request, viewer, job_id=job_id, **of)
        why_not = str(answer.get("unavailable", ""))
    except UnknownJob:
        await run_in_threadpool(request.app.state.refusals.missed, request, job_id)
        why_not = await run_in_threadpool(not_there_sentence, request, job_id)
    found = {**_drawn(answer), "job_id": job_id, "problem": why_not}

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return found | {"terms": _terms(queries, job_id) if answer else []}

    return await run_in_threadpool(
        show, request, viewer, "histories.html", "", build, job_id=job_id
    )


def _terms(queries: PageQueries, job_id: str) -> list[Chart]:
    """Return charts of the terms of a job's last score, with the job's own value marked in each; []
    where the models that made the score are no longer in use.
    """
    bundle, events = bundle_in_use(queries.bundle()), page_of(queries, job_id).drawn.story.events
    score = next((e.decision.score for e in reversed(events) if e.decision.score), None)
    if bundle is None or score is None or score.bundle != bundle.digest:
        return []
    return placed(bundle.duration, score)


@router.get("/histories")
async def histories(
    request: Request,
    viewer: Asking,
    owner: Word = "",
    vc: Word = "",
    gpus: int = 1,
    like: Word = "",
) -> Response:
    """Show how long the jobs of a user or a group lasted; other users' are shown to operators
    only.
    """
    view = request.app.state.reads.seen_by(viewer)
    vcs = list(await run_in_threadpool(view.vcs) if viewer.sees_all else viewer.vcs)
    mine = not viewer.sees_all or not owner
    who = viewer.name if mine else owner
    where = vc if vc in vcs else (vcs[0] if vcs else "")
    answer = await _histories(request, viewer, owner=who, vc=where, gpus=max(0, gpus), name=like)
    found = {**_drawn(answer)} | {
        "job_id": "",
        "problem": str(answer.get("unavailable", "")),
        "owner": who,
        "vc": where,
        "vcs": vcs,
        "gpus": gpus,
        "like": like,
        "terms": [],
    }
    return await run_in_threadpool(
        show, request, viewer, "histories.html", "/models", lambda _: found
    )


async def _histories(request: Request, viewer: Viewer, **asked: str | int) -> Json:
    """Return the analyst's answer on how long jobs similar to one lasted. `asked`: the job, or the
    fields of one that is not submitted.
    """
    questions: Questions = request.app.state.questions
    return await questions.ask("histories", dict(asked), viewer.name)


def _drawn(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return charts of the histories in the analyst's answer, the narrowest group first (`drawn`),
    and for how long the job has run, in seconds (`outlived_s`).
    """
    outlived_s = float(answer.get("outlived_s", 0.0))
    known = [History.read(one) for one in answer.get("histories", ())]
    return {"drawn": pictures(known, outlived_s), "outlived_s": outlived_s}


@router.get("/history")
def history(
    request: Request,
    viewer: Asking,
    period: str = "week",
    vc: Word = "",
    owner: Word = "",
    state: Word = "",
    after: str = "",
) -> Response:
    """Show the jobs that ended in a period, one by one and in figures."""

    def build(queries: PageQueries) -> Mapping[str, Any]:
        start = figures.since(period, queries.now())
        page = figures.history(queries, start, vc=vc, owner=owner, state=state, after=after)
        chosen = {"period": period, "vc": vc, "owner": owner, "state": state}
        kept = urlencode({name: value for name, value in chosen.items() if value})
        lists = {"vcs": queries.vcs(), "periods": figures.PERIODS, "states": figures.ENDS}
        return {"h": page, "kept": kept, **lists, **chosen}

    return show(request, viewer, template="history.html", here="/history", build=build)


@router.get("/fairness")
def fairness(request: Request, viewer: Asking, period: str = "week", least: str = "") -> Response:
    """Show who used how many GPUs, and who waited how long."""

    def build(queries: PageQueries) -> Mapping[str, Any]:
        page = figures.fairness(queries, figures.since(period, queries.now()), least)
        return {"f": page, "periods": figures.PERIODS, "period": period, "least": least}

    return show(request, viewer, template="fairness.html", here="/fairness", build=build)


def unlike_before(request: Request, viewer: Viewer) -> Sequence[Alarm]:
    """Return the alarms about jobs of the last day that are unlike those of the weeks before; none
    for a viewer who does not see all jobs.
    """
    if not viewer.sees_all:
        return ()
    store: Store = request.app.state.store
    with store.reading() as connection:
        found: Sequence[Alarm] = request.app.state.metrics.unlike(connection)
    return found


@router.get("/models")
def models_page(request: Request, viewer: Asking) -> Response:
    """Show what the models in use learned, and whether jobs still look like their training data."""

    def build(queries: PageQueries) -> Mapping[str, Any]:
        bundle = bundle_in_use(queries.bundle())
        live = queries.inputs(bundle.digest) if bundle else []
        settings: Settings = request.app.state.settings
        store: Store = request.app.state.store
        with store.reading() as connection:
            beside = standing(connection, settings.state_dir / "bundles", settings.shadow)
        page = models(
            bundle,
            live,
            queries.outcomes(),
            odd=unlike_before(request, viewer),
            sees_names=viewer.sees_all,
            follows=settings.follows,
            digest=queries.bundle_digest(),
        )
        return {"m": page, "policy": queries.policy(), "beside": beside}

    return show(request, viewer, template="models.html", here="/models", build=build)


@router.get("/forecasts")
def forecasts(request: Request, viewer: Asking) -> Response:
    """Show how forecasts of starts and ends turned out."""
    return show(
        request,
        viewer,
        template="forecasts.html",
        here="/forecasts",
        build=lambda queries: {"p": figures.promises(queries)},
    )


@router.get("/login")
def login(request: Request, next: str = "", wrong: str = "") -> Response:
    """Show the form in which a token is entered."""
    frame = Frame(_base(request))
    return _page(render("login.html", frame, goal=local_path(next), wrong=bool(wrong)))


# --- what they load ------------------------------------------------------------------------------


@router.get("/static/{name:path}")
def static(request: Request, name: str) -> Response:
    """Send one of the files that pages load. Its address changes with its content, so it may be
    cached for good. Raise Problem (404) for any other name."""
    asset = assets().get(name)
    if asset is None:
        raise Problem(404, "not-found", "there is nothing at this address")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    content = asset.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], content = "gzip", asset.zipped
    return Response(content, media_type=asset.media_type, headers=headers)


async def _room(request: Request, viewer: Asking) -> Tail:
    """Return the `Tail` that follows the log for live pages. Raise Problem (503) where it has too
    many listeners already, in all or of this viewer.
    """
    state = request.app.state
    if not hasattr(state, "tail"):
        state.tail = _tail(state.store)
    tail: Tail = state.tail
    try:
        tail.admit(viewer.name)
    except TooManyListeners:
        raise Problem(
            503,
            "too-many-streams",
            "too many pages are watching; this one looks now and then",
            retry_after_s=30,
        ) from None
    return tail


@router.get("/live", response_class=EventSourceResponse)
async def live(
    request: Request,
    viewer: Asking,
    after: int = 0,
    job: str = "",
    tail: Tail = Depends(_room),  # noqa: B008
) -> AsyncIterator[ServerSentEvent]:
    """Yield which topics (such as "job") changed, as server-sent events; the `id` of each is the
    `seq` of an event of the log. End when the viewer's rights have changed.
    """
    last = request.headers.get("last-event-id", "")
    start = int(last) if last.isdecimal() and len(last) < 19 else max(after, 0)
    seen = bool(job) and await run_in_threadpool(_may_see, request, viewer, job)
    authenticator: Authenticator = request.app.state.authenticator
    vouched = await run_in_threadpool(authenticator.vouched, request)
    shown = job if seen else ""
    async for change in tail.changes(start, shown, viewer.name, vouched=vouched):
        if not await run_in_threadpool(authenticator.still, request, viewer):
            return  # the token was revoked, or says otherwise by now
        yield ServerSentEvent(
            event="changed" if change.topics else "hello",
            id=str(change.seq),
            raw_data=json.dumps({"topics": change.topics}),
            retry=RETRY_MS,
        )


def _tail(store: Store) -> Tail:
    def since(seq: int) -> list[Line]:
        return [Line(e.seq, e.kind, e.job_id) for e in store.read(seq, limit=4096)]

    return Tail(store.last_seq, since)


# --- how -----------------------------------------------------------------------------------------


def show(
    request: Request,
    viewer: Viewer,
    template: str,
    here: str,
    build: Build,
    *,
    job_id: str = "",
    status: int = 200,
) -> Response:
    """Return a page, or the part of it that htmx asks for. Where a job or a part of a list does not
    exist, return a page that says so.

    Args:
        template: file name of the template.
        here: path of the page in the menu; "" for none.
        build: returns the template's variables, from queries.
        job_id: the job that the page is about; "" for none.
    """
    queries = _queries(request, viewer)
    base = _base(request)
    live = f"{base}/live?job={quote(job_id)}"
    frame = Frame(
        base=base,
        here=here,
        viewer=f"{viewer.name} · {viewer.role.value}",
        live=live,
        seq=queries.last_seq(),
        may_leave=COOKIE in request.cookies,
        bundle=queries.bundle_digest(),
        made_at=time(),
    )
    if viewer.only:
        frame = Frame(base, made_at=time(), guest="shared, to be read only")
    authenticator: Authenticator = request.app.state.authenticator
    leave = request.app.state.settings.proxy_sign_out if authenticator.vouched(request) else ""
    frame = replace(frame, silent=queries.silent(), sign_out=leave)
    part = request.headers.get("hx-target", "").removeprefix("part-")
    csrf = authenticator.csrf_word(request)
    try:
        values = {**build(queries), "viewer": viewer, "csrf": csrf}
        return _page(render(template, frame, part, here_url=_again(request), **values), status)
    except UnknownJob as unknown:
        request.app.state.refusals.missed(request, str(unknown))
        what = not_there_sentence(request, str(unknown))
        return _page(render("missing.html", frame, what=what, csrf=csrf), 404)
    except BadCursor:
        what = "This page of the list is not there: start again from its beginning."
        return _page(render("missing.html", frame, what=what, csrf=csrf), 422)


def _queries(request: Request, viewer: Viewer) -> PageQueries:
    state = request.app.state
    if not hasattr(state, "lately"):
        state.lately = Lately()
    return PageQueries(state.store, viewer, state.reads.bundles, state.lately)


def refused_page(request: Request, what: str, status: int) -> Response:
    """Return a page that only says why the wanted page cannot be shown, for somebody who is not
    logged in. `what`: the reason.
    """
    return _page(render("missing.html", Frame(_base(request)), what=what), status)


def _page(html: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": _POLICY, "Vary": "HX-Request"}
    return HTMLResponse(html, status, headers)


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _again(request: Request) -> str:
    """Return the path and query of the present page, for fetching parts of it again."""
    query = f"?{request.url.query}" if request.url.query else ""
    return quote(_base(request) + request.url.path, safe="/") + query


def _may_see(request: Request, viewer: Viewer, job_id: str) -> bool:
    with suppress(UnknownJob):
        request.app.state.reads.seen_by(viewer).job(job_id)
        return True
    return False
