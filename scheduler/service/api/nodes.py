"""Routes by which operators add, remove, drain, open and change nodes, and change settings of the
policy, while jobs run. Each request is an event; with `preview` nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from features.codec import Json, decode
from scheduler.core.decisions import ANOTHER
from scheduler.core.limits import Line
from scheduler.explain.effect import Effect
from scheduler.service.api.auth import Operator, Seen
from scheduler.service.api.changes import Changes
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import Questions
from scheduler.service.api.schemas import (
    AddNodeRequest,
    ChangeNodeRequest,
    NodeRequest,
    SettingsRequest,
)
from scheduler.service.api.shapes import ClusterChange, RunsThere
from scheduler.service.log.cluster_changes import (
    ChangeRefused,
    ClusterChanges,
    Wanted,
    fixed_nodes,
)
from scheduler.service.log.present import Present
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.rows import Node as NodeSeen
from scheduler.service.log.store.rows import Setting
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Viewer

router = APIRouter(tags=["nodes and settings"])
Named = Annotated[str, InPath(max_length=128, description="A node's name, or its number.")]
Several = Annotated[
    str, InPath(max_length=8192, description="Names of nodes, or numbers, with commas between.")
]
Preview = Annotated[bool, Query(description="Change nothing; show the effect.")]
Why = Annotated[Line, Query(max_length=256)]
Ask = Callable[[ClusterChanges], Wanted | list[Wanted]]


class Operations:
    """One operator's request for changes of nodes or settings."""

    def __init__(self, request: Request, viewer: Viewer):
        self.changes: Changes = request.app.state.changes
        self.reads: Reads = request.app.state.reads
        self.store: Store = request.app.state.store
        self.fake_gpus: bool = request.app.state.settings.fake_gpus
        self.questions: Questions = request.app.state.questions
        self.viewer = viewer
        self.changes.in_charge("scontrol")

    async def make(self, ask: Ask, preview: bool) -> ClusterChange:
        """Check the changes that `ask` returns. Append all of them, or with `preview` only ask for
        their effect, and return the result. Raise Problem where one cannot be made; then none is.
        """
        wanted, never = await run_in_threadpool(self._checked, ask)
        needed = [one.event(self.changes.now(), self.viewer.name) for one in wanted if one.needed]
        effect = running = None
        if preview and needed:
            question = {"events": [{"kind": e.kind.value, "body": e.body} for e in needed]}
            effect = _effect(await self.questions.ask("cluster", question, self.viewer.name))
            on = {one.node.node for one in wanted if one.node is not None}
            running = await run_in_threadpool(self._running, on) if on else None
        elif needed:
            await run_in_threadpool(self.changes.write, needed)
        first, name = wanted[0], ", ".join(one.name for one in wanted)
        number = first.node.node if first.node is not None and len(wanted) == 1 else None
        return ClusterChange(
            kind=first.kind.value,
            node=number,
            name=name,
            never=never,
            changed=bool(needed),
            effect=effect,
            running=running,
        )

    def _running(self, nodes: set[int]) -> list[RunsThere]:
        """Return the jobs on some nodes that the viewer may see, each with its forecast end."""
        view, now = self.reads.seen_by(self.viewer), self.changes.now()
        on = [gpu for node in view.cluster() if node.node in nodes for gpu in node.gpus]
        found = []
        for job_id in dict.fromkeys(job for gpu in on for job in gpu.jobs if job != ANOTHER):
            made = view.forecast(job_id)
            ends_at = None if made is None or (made.end_p50 or now) <= now else made.end_p50
            found.append(RunsThere(job_id, view.job(job_id).owner, ends_at))
        return found

    def _checked(self, ask: Ask) -> tuple[list[Wanted], list[str]]:
        with self.store.reading() as connection:
            present = present_in(self.store, connection)
            fixed = fixed_nodes(present.header.backend, self.fake_gpus)
            changes = ClusterChanges(present, fixed)
            try:
                asked = ask(changes)
            except ChangeRefused as refused:
                status = {"not-found": 404, "invalid-request": 422, "unknown-vc": 422}.get(
                    refused.kind, 409
                )
                raise Problem(status, refused.kind, str(refused)) from None
            wanted = asked if isinstance(asked, list) else [asked]
            return wanted, changes.never(connection, *wanted)


def present_in(store: Store, connection: Connection) -> Present:
    """Return the present nodes and settings. Raise Problem (503) where the log is empty."""
    found = Present.read(store, connection)
    if found is None:
        raise Problem(503, "not-ready", "the service has not begun its log", retry_after_s=2)
    return found


def _effect(answer: Json) -> Effect:
    if "unavailable" in answer:
        return Effect({}, 0, 0, 0, why_not=answer["unavailable"])
    return decode(Effect, answer)


@router.get("/nodes", summary="Every node: what it has, whether it is open, and why not")
def list_nodes(view: Seen) -> list[NodeSeen]:
    """List every node. Who drained a node is shown to operators."""
    return view.cluster()


@router.post("/nodes", status_code=202, summary="Add a node", responses=responses(403, 409, 422))
async def add_node(
    asked: AddNodeRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Add a node; operators only. Values that are left out are taken from other nodes of the
    virtual cluster.
    """
    return await Operations(request, viewer).make(
        lambda there: there.add(**asked.model_dump()), preview
    )


@router.put(
    "/nodes/{node}",
    status_code=202,
    summary="Drain nodes or open them",
    responses=responses(403, 404, 409),
)
async def set_node(
    node: Several, asked: NodeRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Drain or open nodes; operators only. Jobs on a drained node run on. Opening a node cancels a
    change that waits for the node to be idle.
    """
    return await Operations(request, viewer).make(
        lambda there: there.each(node, asked.open, asked.reason), preview
    )


@router.patch(
    "/nodes/{node}",
    status_code=202,
    summary="Move a node to another virtual cluster, or change what it has",
    responses=responses(403, 404, 409, 422),
)
async def change_node(
    node: Named,
    asked: ChangeNodeRequest,
    request: Request,
    viewer: Operator,
    preview: Preview = False,
) -> ClusterChange:
    """Change a node; operators only. Nothing new starts on the node, and the change is made once
    nothing runs there.
    """
    given = asked.model_dump(exclude={"reason", "new_vc"}, exclude_none=True)
    return await Operations(request, viewer).make(
        lambda there: there.change(node, given, asked.reason, asked.new_vc), preview
    )


@router.delete(
    "/nodes/{node}", status_code=202, summary="Remove a node", responses=responses(403, 404, 409)
)
async def remove_node(
    node: Named, request: Request, viewer: Operator, reason: Why = "", preview: Preview = False
) -> ClusterChange:
    """Remove a node; operators only. Nothing new starts on the node, and it is removed once nothing
    runs there.
    """
    return await Operations(request, viewer).make(lambda there: there.remove(node, reason), preview)


@router.get("/settings", summary="The settings of the policy, as they are now")
def show_settings(request: Request, viewer: Operator) -> list[Setting]:
    """List the settings of the policy; operators only."""
    store: Store = request.app.state.store
    with store.reading() as connection:
        return present_in(store, connection).settings_in_force()


@router.put(
    "/settings",
    status_code=202,
    summary="Set what the policy can be set to",
    responses=responses(403, 409, 422),
)
async def set_settings(
    asked: SettingsRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Change settings of the policy; operators only. Settings that are left out stay. The queues
    are sorted by the new settings.
    """
    return await Operations(request, viewer).make(
        lambda there: there.set_settings(asked.settings, asked.reason), preview
    )
