"""The pages of nodes and settings. Everybody sees the nodes; operators drain and open them.

A change is previewed first, by a GET that changes nothing. It is then confirmed by a form on the
preview, which carries what was previewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from scheduler.service.api.auth import Asking, Operator, form
from scheduler.service.api.nodes import Operations, present_in
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import NodeRequest
from scheduler.service.api.shapes import ClusterChange
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.routes import Word, show

router = APIRouter(include_in_schema=False)


@router.get("/nodes")
def nodes(
    request: Request,
    viewer: Asking,
    find: Word = "",
    state: Literal["all", "open", "drained"] = "all",
) -> Response:
    """List the nodes: what each has, whether it is open, and who drained it, when and why.

    Args:
        find: part of a node's name, virtual cluster or GPU type.
        state: show only open or only drained nodes.
    """
    changes = viewer.role is Role.OPERATOR and not request.app.state.settings.follows

    def build(queries: PageQueries) -> Mapping[str, Any]:
        shown = [
            node
            for node in queries.cluster()
            if find.lower() in f"{node.name} {node.vc} {node.gpu_type}".lower()
            and (state == "all" or node.open is (state == "open"))
        ]
        return {
            "nodes": shown,
            "changes": changes,
            "find": find,
            "state": state,
            "now": queries.now(),
        }

    return show(request, viewer, template="nodes.html", here="/nodes", build=build)


@router.get("/nodes/change")
async def preview(
    request: Request,
    viewer: Operator,
    node: Annotated[list[str] | None, Query()] = None,
    open: str = "",
    reason: str = "",
) -> Response:
    """Show what draining or opening nodes would do. Nothing is changed: a form on the page shown
    does it.
    """
    fields = {"node": ",".join(node or ()), "open": open, "reason": reason}
    return await _answer(request, viewer, fields, preview=True)


@router.post("/nodes/change")
async def change(request: Request, viewer: Operator) -> Response:
    """Drain or open nodes (form fields `node`: names with commas, `open`: 1 or "", `reason`), and
    show the nodes again; or show what is wrong.
    """
    return await _answer(request, viewer, form(request, lists=("node",)), preview=False)


@router.get("/settings")
def settings(request: Request, viewer: Asking) -> Response:
    """Show the settings of the policy. Only operators see them, because they may name users."""
    if viewer.role is not Role.OPERATOR:
        what = "Only operators see the settings: they may name users."
        return show(
            request,
            viewer,
            template="missing.html",
            here="",
            build=lambda _: {"what": what},
            status=403,
        )
    store: Store = request.app.state.store
    with store.reading() as connection:
        in_force = present_in(store, connection).settings_in_force()

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {"settings": in_force, "policy": queries.policy()}

    return show(request, viewer, template="settings.html", here="/settings", build=build)


async def _answer(
    request: Request, viewer: Viewer, fields: Mapping[str, str], *, preview: bool
) -> Response:
    node, is_open = fields.get("node", ""), bool(fields.get("open"))
    reason, change, why_not, status = fields.get("reason", "").strip(), None, "", 200
    try:
        if not node:
            raise Problem(422, "invalid-request", "select at least one node first")
        asked = NodeRequest(open=is_open, reason=reason)
        change = await _asked(request, viewer, node, asked, preview=preview)
    except ValidationError:
        why_not, status = "The reason is one line of at most 256 characters.", 422
    except Problem as problem:
        why_not, status = problem.sentence, problem.status
    if not preview and change is not None:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/nodes", 303)

    def build(queries: PageQueries) -> Mapping[str, Any]:
        return {
            "node": node, "open": is_open, "reason": reason, "change": change, "problem": why_not
        }  # fmt: skip

    return await run_in_threadpool(
        show, request, viewer, "node_change.html", "", build, status=status
    )


async def _asked(
    request: Request, viewer: Viewer, node: str, asked: NodeRequest, preview: bool
) -> ClusterChange:
    operations = Operations(request, viewer)
    return await operations.make(lambda there: there.each(node, asked.open, asked.reason), preview)
