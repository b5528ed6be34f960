"""The page on which an operator changes a shape function (the curve of one feature in a model),
sees the effect, and saves it.

Trying is a GET that changes nothing. Saving adds an edit to `edits.yaml` in the state folder, in
the format of `pellucid train --edits`; the models in use stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from models.bundle import AdditiveModel, Bundle
from scheduler.explain.stories import bundle_in_use
from scheduler.service.api.auth import Authenticator, Operator, form
from scheduler.service.log.beside import SHOWN, ended_with, uses
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.pages.lastweek import NoReplay, Starts, played_apart
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import show
from scheduler.service.pages.workbench import (
    KINDS,
    Asked,
    Drawing,
    NoEdit,
    Tried,
    drawing,
    editable,
    saved,
    tried,
)
from scheduler.service.settings import Settings

router = APIRouter(include_in_schema=False)
FIELDS = ("feature", "kind", "low", "high", "score", "points", "why")
FILE = "edits.yaml"


@router.get("/models/edit")
def try_edit(request: Request, viewer: Operator) -> Response:
    """Show the form for a change of a shape function; for a change that is filled in, also its
    effect.

    With `replay`, also show which starts of last week the change moves. That takes a while, so no
    other site may make a visitor's browser ask for it.
    """
    given = request.query_params
    if given.get("replay"):
        authenticator: Authenticator = request.app.state.authenticator
        authenticator.same_origin(request)
    return answer(request, viewer, given, parts=given.getlist("part"))


@router.post("/models/edit")
def save_edit(request: Request, viewer: Operator) -> Response:
    """Save a change of a shape function (form fields: those of `Asked`) with the name of who made
    it, and show the form again.
    """
    fields = form(request, lists=("points",))
    settings: Settings = request.app.state.settings
    try:
        asked, _ = changed_in_use(request, viewer, fields)
        today = datetime.fromtimestamp(request.app.state.changes.now(), UTC).date()
        count = saved(settings.state_dir / FILE, asked, viewer.name, today)
    except NoEdit as error:
        return answer(request, viewer, fields, problem=str(error))
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}/models/edit?saved={count}", 303)


def changed_in_use(
    request: Request, viewer: Viewer, fields: Mapping[str, str]
) -> tuple[Asked, Bundle]:
    """Return the change that a form asks for, and the models in use. Raise NoEdit where that change
    of the models cannot be made.
    """
    asked = _asked(fields)
    queries = PageQueries(request.app.state.store, viewer, request.app.state.reads.bundles)
    bundle = bundle_in_use(queries.bundle())
    if bundle is None:
        raise NoEdit("No models are in use.")
    asked.changed(bundle.duration)
    return asked, bundle


def _asked(
    fields: Mapping[str, str], model: AdditiveModel | None = None, parts: Sequence[str] = ()
) -> Asked:
    """Return the change of a shape function that a form's fields ask for. For a shape drawn by
    hand, the change holds only the parts that were moved. `parts`: the scores of all its parts, as
    drawn.
    """
    asked = Asked(**{name: fields.get(name, "").strip() for name in FIELDS})
    if model is None or asked.kind != "draw" or fields.get("of") != asked.feature:
        return asked
    return replace(asked, points=drawing(model, replace(asked, kind="")).points(parts))


def answer(
    request: Request,
    viewer: Viewer,
    fields: Mapping[str, str],
    *,
    parts: Sequence[str] = (),
    problem: str = "",
) -> Response:
    """Return the page with the form for editing a model. It shows the effect of the entered change,
    or why the change is not possible.
    """
    settings: Settings = request.app.state.settings
    store: Store = request.app.state.store

    def build(queries: PageQueries) -> Mapping[str, Any]:
        found: Tried | None = None
        starts: Starts | None = None
        no_starts = ""
        why_not, bundle, drawn = problem, bundle_in_use(queries.bundle()), Drawing()
        shapes = {} if bundle is None else editable(bundle.duration)
        asked = _asked(fields, None if bundle is None else bundle.duration, parts)
        if bundle is not None:
            drawn = drawing(bundle.duration, asked)
        if bundle is not None and asked.kind and not problem:
            with store.reading() as connection:
                since = uses(connection)[-1][1]
                ended = ended_with(connection, bundle.digest, since, SHOWN)
            try:
                found = tried(bundle.duration, asked, ended)
            except NoEdit as error:
                why_not = str(error)
        if bundle is not None and found is not None and fields.get("replay"):
            folder = settings.state_dir / "bundles" / bundle.digest
            try:
                starts = played_apart(store, folder, asked, queries.now())
            except NoReplay as error:
                no_starts = str(error)
        return {
            "asked": asked,
            "fields": FIELDS,
            "kinds": KINDS,
            "shapes": [(name, axis.spec.text or name) for name, (_, _, axis) in shapes.items()],
            "drawing": drawn,
            "tried": found,
            "starts": starts,
            "no_starts": no_starts,
            "problem": why_not,
            "saved": fields.get("saved", ""),
            "file": settings.state_dir / FILE,
            "judges": settings.judges,
        }

    status = 422 if problem else 200
    return show(
        request, viewer, template="models_edit.html", here="/models", build=build, status=status
    )
