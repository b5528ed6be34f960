"""Shared links: the page that makes one, and the page that it opens."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.service.api import links as api
from scheduler.service.api import shares
from scheduler.service.api.auth import Asking, Authenticator, form, scheme
from scheduler.service.api.problems import Problem
from scheduler.service.api.request_guard import LOOPBACK_NAMES
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import refused_page, show
from scheduler.service.pages.story import page_of

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{job_id}/share")
def share(request: Request, viewer: Asking, job_id: str) -> Response:
    """Show what a link reveals, and the form that makes one."""
    return _page(request, viewer, job_id)


@router.post("/jobs/{job_id}/share")
def make(request: Request, viewer: Asking, job_id: str) -> Response:
    """Make a link to a job that the viewer may see, and show it, or why there is none. `lasts`: one
    of `shares.LASTS_S`.
    """
    lasts_s = shares.LASTS_S.get(form(request).get("lasts", ""))
    if lasts_s is None:
        problem = f"A link holds for one of: {', '.join(shares.LASTS_S)}."
        return _page(request, viewer, job_id, problem=problem, status=422)
    job_id = request.app.state.reads.seen_by(viewer).job(job_id).job_id
    if viewer.role is Role.VIEWER:  # who could not revoke it either
        problem = "A viewer's token reads, and makes no links."
        return _page(request, viewer, job_id, problem=problem, status=403)
    authenticator: Authenticator = request.app.state.authenticator
    try:
        with request.app.state.store.writing() as connection:
            secret = authenticator.secret(request)
            made = shares.make(connection, secret, job_id, lasts_s, now=time())
    except Problem as refused:
        return _page(request, viewer, job_id, problem=refused.sentence, status=refused.status)
    if made is None:
        problem = (
            "You came without a token, and a link is signed with one: pellucid token create makes "
            "one, and auth: on in the settings file asks for them."
        )
        return _page(request, viewer, job_id, problem=problem, status=409)
    base = f"{scheme(request)}://{request.headers.get('host', '')}"
    named = request.app.state.settings.named
    here = request.url.hostname in (*LOOPBACK_NAMES, "::1")
    if here and named:
        base, here = f"https://{named[0]}", False
    path = f"{request.scope.get('root_path', '')}/shared/{job_id}/{made.mark}"
    return _page(request, viewer, job_id, share=made, link=base + path, here=here)


@router.get("/links")
def links(request: Request, viewer: Asking) -> Response:
    """List the valid links to one's own jobs (for operators, to all jobs), each with a form that
    revokes it.
    """
    return _links(request, viewer)


@router.post("/links")
def revoke(request: Request, viewer: Asking) -> Response:
    """Revoke a shared link (form field `id`), and show the links that are left."""
    try:
        api.end(request, viewer, form(request).get("id", ""))
    except Problem as problem:
        return _links(request, viewer, problem=problem.sentence, status=problem.status)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/links", 303)


def _links(request: Request, viewer: Viewer, *, problem: str = "", status: int = 200) -> Response:
    with request.app.state.store.engine.connect() as connection:
        found = shares.of(connection, viewer, time())
    shown = {"links": found, "problem": problem, "may": viewer.role is not Role.VIEWER}
    return show(
        request, viewer, template="links.html", here="", build=lambda _: shown, status=status
    )


@router.get("/shared/{job_id}/{mark}")
def shared(request: Request, job_id: str, mark: str) -> Response:
    """Show one job, with why it waits, to somebody who came by a shared link. Without a valid link,
    show why not.
    """
    authenticator: Authenticator = request.app.state.authenticator
    try:
        guest, until = authenticator.guest(request, job_id, mark)
    except Problem as problem:
        return refused_page(request, problem.sentence, problem.status)

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {"s": page_of(queries, job_id), "until": until}

    answer = show(request, guest, template="shared.html", here="", build=build)
    answer.headers["Referrer-Policy"] = "no-referrer"
    answer.headers["X-Robots-Tag"] = "noindex"
    return answer


def _page(
    request: Request,
    viewer: Viewer,
    job_id: str,
    *,
    share: shares.Share | None = None,
    link: str = "",
    here: bool = False,
    problem: str = "",
    status: int = 200,
) -> Response:
    def build(queries: PageQueries) -> Mapping[str, Any]:
        shown = {"share": share, "link": link, "here": here, "lasts": list(shares.LASTS_S)}
        may = viewer.role is not Role.VIEWER
        return {"job": queries.job(job_id), "may": may, "problem": problem, **shown}

    return show(request, viewer, template="share.html", here="", build=build, status=status)
