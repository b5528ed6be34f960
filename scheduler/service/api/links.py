"""Routes for shared links: list the valid ones, and revoke one."""

from __future__ import annotations

from time import time

from fastapi import APIRouter, Request

from scheduler.service.api import shares
from scheduler.service.api.auth import Seen
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.shapes import Link
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer

router = APIRouter(tags=["jobs"])


@router.get("/links", summary="The shared links to your jobs that hold")
def listed(request: Request, view: Seen) -> list[Link]:
    """List the shared links to your jobs, the latest first, 1,000 at most; for operators, the links
    to everybody's jobs. The secret part of a link is not stored.
    """
    store: Store = request.app.state.store
    with store.engine.connect() as connection:
        return shares.of(connection, view.viewer, time())


@router.delete("/links/{link_id}", summary="Revoke a link", responses=responses(403, 404))
def revoke(link_id: str, request: Request, view: Seen) -> list[Link]:
    """Revoke a shared link. Return the links that are still valid."""
    end(request, view.viewer, link_id)
    return listed(request, view)


def end(request: Request, viewer: Viewer, link_id: str) -> None:
    """Revoke a shared link to a job that the viewer may see. Raise Problem: 403 for a viewer's
    token, 404 where there is no such link.
    """
    if viewer.role is Role.VIEWER:
        raise Problem(403, "forbidden", "a viewer's token cannot revoke links")
    store: Store = request.app.state.store
    with store.writing() as connection:
        if not shares.revoke(connection, viewer, link_id, time()):
            raise Problem(404, "not-found", "there is no such link to a job of yours")
