"""The page on which operators propose and promote models. Proposals are judged as `pellucid
promote` judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.service.api.auth import Operator, form
from scheduler.service.log.proposals import NoProposal, Proposals
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.pages.editing import answer, changed_in_use
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import show
from scheduler.service.pages.workbench import NoEdit, candidate
from scheduler.service.settings import Settings

router = APIRouter(include_in_schema=False)
SHOWN = 20  # the latest


@router.get("/models/proposals")
def proposals(request: Request, viewer: Operator) -> Response:
    """Show what operators proposed, how it compares with the champion (the models in use), and what
    became of it.
    """
    return _page(request, viewer)


@router.post("/models/proposals")
def propose(request: Request, viewer: Operator) -> Response:
    """Propose the models in use with one shape function changed (form fields: those of `Asked`),
    and show the proposals.
    """
    fields = form(request, lists=("points",))
    now = request.app.state.changes.now()
    today = datetime.fromtimestamp(now, UTC).date()
    try:
        asked, bundle = changed_in_use(request, viewer, fields)
        made = candidate(bundle, asked, viewer.name, today)
        entries = asked.entries(viewer.name, today)
        _kept(request).propose(made, bundle.digest, entries, by=viewer.name, why=asked.why, now=now)
    except (NoEdit, NoProposal) as error:
        return answer(request, viewer, fields, problem=str(error))
    return _back(request)


@router.post("/models/proposals/promote")
def promote(request: Request, viewer: Operator) -> Response:
    """Ask for a proposal (`name`) to become champion (the models in use). Return a redirect to the
    proposals, or the page with the problem. A proposal that is not better needs `anyway` and a
    `why`.
    """
    fields = form(request)
    try:
        _check_judges(request)
        _kept(request).promote(
            fields.get("name", ""),
            by=viewer.name,
            why=fields.get("why", ""),
            anyway=bool(fields.get("anyway")),
            now=request.app.state.changes.now(),
        )
    except NoProposal as error:
        return _page(request, viewer, str(error))
    return _back(request)


@router.post("/models/proposals/back")
def go_back(request: Request, viewer: Operator) -> Response:
    """Ask for the former champion (the models in use before) to come back, and show the proposals.
    Form field `why`: the reason, which is kept.
    """
    why = form(request).get("why", "")
    try:
        _check_judges(request)
        _kept(request).go_back(by=viewer.name, why=why, now=request.app.state.changes.now())
    except NoProposal as error:
        return _page(request, viewer, str(error))
    return _back(request)


def _check_judges(request: Request) -> None:
    """Raise NoProposal where nothing would ever promote what is asked for."""
    if not request.app.state.settings.judges:
        raise NoProposal("Nothing is promoted here.")


def _kept(request: Request) -> Proposals:
    return Proposals(request.app.state.settings.state_dir)


def _back(request: Request) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/models/proposals", 303)


def _page(request: Request, viewer: Viewer, problem: str = "") -> Response:
    settings: Settings = request.app.state.settings
    found = _kept(request).each()[:SHOWN]

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {"proposals": found, "judges": settings.judges, "problem": problem}

    return show(
        request,
        viewer,
        template="models_proposals.html",
        here="/models",
        build=build,
        status=422 if problem else 200,
    )
