"""The page on which an operator changes a shape function, sees the effect, and saves it.

Trying is a GET that changes nothing. Saving adds an edit to `edits.yaml` in the state folder, in
the format of `pellucid train --edits`; the models in use stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.explain.stories import bundle_in_use
from scheduler.service.api.auth import Operator, form
from scheduler.service.log.beside import SHOWN, ended_with, uses
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import show
from scheduler.service.pages.workbench import KINDS, Asked, NoEdit, Tried, editable, saved, tried
from scheduler.service.settings import Settings

router = APIRouter(include_in_schema=False)
FIELDS = ("feature", "kind", "low", "high", "score", "why")
FILE = "edits.yaml"


@router.get("/models/edit")
def try_edit(request: Request, viewer: Operator) -> Response:
    """Show a form for a change of a shape function; with a change, what it would do."""
    return _answer(request, viewer, request.query_params)


@router.post("/models/edit")
def save_edit(request: Request, viewer: Operator) -> Response:
    """Save a change (`feature`, `kind`, `low`, `high`, `score`, `why`), with who made it."""
    fields = form(request)
    asked = _asked(fields)
    settings: Settings = request.app.state.settings
    queries = PageQueries(request.app.state.store, viewer, request.app.state.reads.bundles)
    try:
        bundle = bundle_in_use(queries.bundle())
        if bundle is None:
            raise NoEdit("No models are in use.")
        asked.changed(bundle.duration)
        today = datetime.fromtimestamp(request.app.state.changes.now(), UTC).date()
        count = saved(settings.state_dir / FILE, asked, viewer.name, today)
    except NoEdit as error:
        return _answer(request, viewer, fields, problem=str(error))
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}/models/edit?saved={count}", 303)


def _asked(fields: Mapping[str, str]) -> Asked:
    return Asked(**{name: fields.get(name, "").strip() for name in FIELDS})


def _answer(
    request: Request, viewer: Viewer, fields: Mapping[str, str], *, problem: str = ""
) -> Response:
    settings: Settings = request.app.state.settings
    store: Store = request.app.state.store
    asked = _asked(fields)

    def build(queries: PageQueries) -> Mapping[str, Any]:
        found: Tried | None = None
        why_not, bundle = problem, bundle_in_use(queries.bundle())
        shapes = {} if bundle is None else editable(bundle.duration)
        if bundle is not None and asked.kind and not problem:
            with store.reading() as connection:
                since = uses(connection)[-1][1]
                ended = ended_with(connection, bundle.digest, since, SHOWN)
            try:
                found = tried(bundle.duration, asked, ended)
            except NoEdit as error:
                why_not = str(error)
        return {
            "asked": asked,
            "kinds": KINDS,
            "shapes": [(name, axis.spec.text or name) for name, (_, _, axis) in shapes.items()],
            "tried": found,
            "problem": why_not,
            "saved": fields.get("saved", ""),
            "file": settings.state_dir / FILE,
        }

    status = 422 if problem else 200
    return show(
        request, viewer, template="models_edit.html", here="/models", build=build, status=status
    )
