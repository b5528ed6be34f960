"""Pages that compare models, by week and side by side, and that show which terms moved a user's
estimates.

Both are for operators, because they name users and their jobs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from models.bundle import Bundle, BundleError
from scheduler.explain.stories import bundle_in_use
from scheduler.service.api.auth import Operator
from scheduler.service.log.beside import (
    FORMER,
    SHOWN,
    as_of,
    began_with,
    in_order,
    learned_to,
    uses,
)
from scheduler.service.log.proposals import BUNDLE, Proposal, Proposals
from scheduler.service.log.served import weeks
from scheduler.service.log.store.store import Store
from scheduler.service.pages.contrast import (
    NOW_S,
    THEN_S,
    Contrast,
    Movement,
    contrast,
    movement,
    scored_of,
)
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import Word, show
from scheduler.service.settings import Settings

router = APIRouter(include_in_schema=False)
DIGEST = re.compile(r"[0-9a-f]{64}")


@router.get("/models/compare")
def compare(request: Request, viewer: Operator, one: Word = "", other: Word = "") -> Response:
    """Show the figures of all models week by week, and compare two of them on the same jobs. `one`,
    `other`: digests of these two; "": the latest.
    """
    settings: Settings = request.app.state.settings
    store: Store = request.app.state.store
    proposed = {p.proposed.digest: p for p in Proposals(settings.state_dir).each() if not p.back}

    def build(queries: PageQueries) -> Mapping[str, Any]:
        with store.reading() as connection:
            used = uses(connection)
        since = {digest: at for digest, at, _ in used}
        asked = [digest for digest in (one, other) if digest]
        asked += [d for d in list(since)[::-1] if d not in asked][: 2 - len(asked)]
        # the one that came into use last first: of its jobs neither learned
        asked.sort(key=lambda digest: -since.get(digest, 0.0))
        found: Contrast | None = None
        problem = ""
        try:
            if len(set(asked)) == 2:
                found = _on_the_same_jobs(
                    store, settings, proposed=proposed, used=used, asked=asked
                )
            elif one or other:
                problem = "Choose two."
        except BundleError as error:
            problem = str(error)
        return {
            "weeks": weeks(settings.state_dir),
            "since": since,
            "proposed": [digest for digest in proposed if digest not in since],
            "asked": [*asked, "", ""][:2],
            "found": found,
            "problem": problem,
        }

    return show(request, viewer, template="models_compare.html", here="/models", build=build)


@router.get("/models/moved")
def moved(request: Request, viewer: Operator, owner: Word = "") -> Response:
    """Show which terms moved a user's estimates of this week, beside those of the three weeks
    before. Without `owner`, show the form that asks for one.
    """
    settings: Settings = request.app.state.settings
    store: Store = request.app.state.store

    def build(queries: PageQueries) -> Mapping[str, Any]:
        bundle = bundle_in_use(queries.bundle())
        found: Movement | None = None
        if bundle is not None and owner:
            now = queries.now()
            with store.reading() as connection:
                scored = scored_of(connection, owner, now - NOW_S)
                scored += scored_of(connection, owner, now - THEN_S, until=now - NOW_S)
            known = dict[str, Bundle]()
            for digest in {one.bundle for one in scored}:
                with suppress(BundleError):  # its copy is gone: those jobs are left out
                    known[digest] = _copy(settings, digest)
            found = movement(scored, bundle, known, now)
        return {"owner": owner, "m": found, "used": bundle is not None}

    return show(request, viewer, template="models_moved.html", here="/models", build=build)


def _on_the_same_jobs(
    store: Store,
    settings: Settings,
    *,
    proposed: Mapping[str, Proposal],
    used: list[tuple[str, float, int]],
    asked: list[str],
) -> Contrast:
    """Return how two models compare on the jobs of the one that came into use last, which is the
    first of `asked` (digests). Raise BundleError where neither was in use, or one cannot be read.

    Args:
        proposed: proposals by the digest of their models.
        used: bundles that were in use, as `beside.uses` returns them.
    """
    both = []
    for digest in asked:
        known = proposed.get(digest)
        in_use = any(digest == each for each, _, _ in used)
        if in_use or known is None:
            both.append(_copy(settings, digest))
        else:
            both.append(Bundle.load(known.folder / BUNDLE))
    first, then = both
    place = max((i for i, (digest, _, _) in enumerate(used) if digest == first.digest), default=-1)
    if place < 0:
        raise BundleError("Neither was in use: there are no jobs to compare them on.")
    since = max(used[place][1], learned_to(then))
    until = used[place + 1][1] if place + 1 < len(used) else math.inf
    with store.reading() as connection:
        began = began_with(connection, first.digest, since, SHOWN, until=until)
    return contrast(first, then, as_of(began, len(in_order(began))), FORMER)


def _copy(settings: Settings, digest: str) -> Bundle:
    """Return the kept copy of a bundle of models that was in use. Raise BundleError where there is
    none.
    """
    if not DIGEST.fullmatch(digest):
        raise BundleError("There are no such models.")
    return Bundle.load(settings.state_dir / "bundles" / digest)
