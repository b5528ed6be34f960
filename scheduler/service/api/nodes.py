"""Nodes and settings while jobs run: operators add, remove, drain, open and change nodes, and set
what the policy can be set to. Each request is an event; with `preview` nothing is changed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from scheduler.assembly import CoreSpec, policy_of, settings_of
from scheduler.backends.events import ABOUT_NODES, Kind
from scheduler.core.cluster import ClusterSpec, Node
from scheduler.core.settings import InvalidSettings, describe, flat
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
from scheduler.service.log.header import LogHeader, LogHeaderError, servable
from scheduler.service.log.nodes import node_of
from scheduler.service.log.record import Phase
from scheduler.service.log.store.reads import Node as NodeSeen
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs, nodes
from scheduler.service.log.store.visibility import Viewer

router = APIRouter(tags=["nodes and settings"])
Named = Annotated[str, InPath(max_length=128, description="A node's name, or its number.")]
Preview = Annotated[bool, Query(description="Change nothing; say what would come of it.")]
Row = dict[str, Any]  # of the table `nodes`
Why = Annotated[str, Query(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change would do to waiting jobs; `why_not`: why that could not be worked out.

    Attributes:
        moved: seconds by which jobs would start later (earlier: below 0), at the median over the
            futures; those by a minute or more.
        examined, waiting: jobs that were looked at, and that wait.
    """

    moved: dict[str, float]
    examined: int
    waiting: int
    futures: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """What was asked for, and is in the log; or, for a preview, would be.

    Attributes:
        node: number of the node; None for one that is to come, and for settings.
        never: waiting jobs that cannot start as the cluster then is.
        effect: of a preview.
    """

    kind: str
    node: int | None
    name: str
    never: list[str]
    changed: bool
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the policy. `accepts`: its limits, in words."""

    name: str
    value: Any
    default: Any
    unit: str
    accepts: str
    description: str


class ClusterChanges:
    """Checks what operators ask of nodes and settings against the cluster as it is."""

    def __init__(self, request: Request, viewer: Viewer):
        self.changes: Changes = request.app.state.changes
        self.store: Store = request.app.state.store
        self.settings = request.app.state.settings
        self.viewer = viewer
        self.changes.in_charge("scontrol")

    # --- what is there ----------------------------------------------------------------------

    def rows(self) -> list[Row]:
        with self.store.engine.connect() as connection:
            found = connection.execute(select(nodes).order_by(nodes.c.node)).mappings()
            return [dict(row) for row in found]

    def row(self, named: str) -> Row:
        """A node by its name, or else its number. Raises Problem."""
        rows = self.rows()
        for key in ("name", "node"):
            for row in rows:
                if str(row[key]) == named:
                    return row
        raise Problem(404, "not-found", f"there is no node {named!r}")

    def header(self) -> LogHeader:
        """How the log began."""
        with self.store.engine.connect() as connection:
            first = self.store.first_in(connection)
        if first is None:
            raise Problem(503, "not-ready", "the service has not begun its log", retry_after_s=2)
        return LogHeader.from_body(first.body)

    def spec(self) -> CoreSpec:
        """What decides now, with the settings of now."""
        return self.header().spec.with_settings(self._set())

    def _set(self) -> dict[str, Any] | None:
        found = self.store.last(Kind.SETTINGS_SET)
        return None if found is None else dict(found.body["settings"])

    def _intended(self) -> dict[int, Node]:
        found = {}
        for row in self.rows():
            to = json.loads(row["change"]) if row["change"] else None
            if to != {}:
                found[row["node"]] = node_of(to or row)
        return found

    def _cluster(self, *more: Node) -> ClusterSpec:
        """Every node as it is and as it is to be; `more`: of a request."""
        now = [node_of(row) for row in self.rows()]
        return ClusterSpec.of([*now, *self._intended().values(), *more])

    # --- what is asked ----------------------------------------------------------------------

    def set_open(self, named: str, asked: NodeRequest) -> tuple[Kind, dict[str, Any], Row]:
        row = self.row(named)
        body = {"node": row["node"], "open": asked.open, "reason": asked.reason}
        return Kind.NODE_SET, body, row

    def add(self, asked: AddNodeRequest) -> tuple[Kind, dict[str, Any], Row | None]:
        rows = self.rows()
        self._own_hardware()
        like = next((row for row in rows if row["vc"] == asked.vc), rows[0] if rows else None)
        body = {
            "vc": asked.vc,
            "gpus": asked.gpus or (like["gpus"] if like else 8),
            "gpu_type": like["gpu_type"] if asked.gpu_type is None and like else asked.gpu_type,
            "gpu_memory_mib": asked.gpu_memory_mib or (like["gpu_memory_mib"] if like else 24_576),
        }
        body["gpu_type"] = body["gpu_type"] or ""
        there = next((row for row in rows if row["name"] == asked.name), None)
        if there is not None and node_of(there) != node_of(body):
            raise Problem(409, "node-exists", f"a node named {asked.name!r} is there, and is other")
        self._fits_policy({**self._intended(), -1: node_of(body)}, node_of(body))
        return Kind.NODE_ADDED, {"name": asked.name, **body}, there

    def change(self, named: str, asked: ChangeNodeRequest) -> tuple[Kind, dict[str, Any], Row]:
        row = self.row(named)
        given = {k: v for k, v in asked.model_dump().items() if v is not None and k != "reason"}
        if given.keys() - {"vc"}:
            self._own_hardware()
        to = {**asdict(node_of(row)), **given}
        self._fits_policy({**self._intended(), row["node"]: node_of(to)}, node_of(to))
        return Kind.NODE_CHANGED, {"node": row["node"], **to, "reason": asked.reason}, row

    def remove(self, named: str, why: str) -> tuple[Kind, dict[str, Any], Row]:
        row = self.row(named)
        return Kind.NODE_REMOVED, {"node": row["node"], "reason": why}, row

    def set_settings(self, asked: SettingsRequest) -> tuple[Kind, dict[str, Any], None]:
        spec = self.spec()
        values = spec.settings.plain()
        for name, value in asked.settings.items():
            *sections, last = name.split(".")
            place = values
            for section in sections:
                if not isinstance(place.get(section), dict):
                    place[section] = {}
                place = place[section]
            place[last] = value
        try:
            settings = settings_of(spec.policy, values)
            servable(CoreSpec(self._cluster(), spec.policy, settings))
        except (InvalidSettings, LogHeaderError) as error:
            raise Problem(422, "invalid-request", str(error)) from None
        return Kind.SETTINGS_SET, {"settings": settings.plain(), "reason": asked.reason}, None

    def _own_hardware(self) -> None:
        """Raise Problem where nodes are what the backend finds."""
        backend = self.header().backend
        if backend == "slurm":
            raise Problem(409, "not-ours", "nodes are Slurm's here: change them in slurm.conf")
        if backend == "local" and not self.settings.fake_gpus:
            raise Problem(409, "not-ours", "the nodes of this service are the GPUs of its host")

    def _fits_policy(self, intended: dict[int, Node], came: Node) -> None:
        """Raise Problem where there would be types of GPU that the policy cannot place on."""
        spec, mixes = self.spec(), ClusterSpec.of(intended.values()).mixes_types
        why = f"{spec.policy} needs GPUs of one type; there would be several"
        try:
            policy = policy_of(CoreSpec(self._cluster(came), spec.policy, spec.settings))
            if policy.mixes_types or not mixes:
                return
        except InvalidSettings as error:
            why = str(error)
        raise Problem(409, "policy-cannot", why)

    # --- what comes of it -------------------------------------------------------------------

    def never(self, kind: Kind, body: dict[str, Any]) -> list[str]:
        """Waiting jobs that are too large for their virtual cluster after a change."""
        intended = self._intended()
        if kind is Kind.NODE_REMOVED:
            intended.pop(body["node"], None)
        elif kind in (Kind.NODE_ADDED, Kind.NODE_CHANGED):
            intended[body.get("node", -1)] = node_of(body)
        lent = {row["node"] for row in self.rows() if row["profiling"]}
        gpus: dict[str, int] = {}
        for node, has in intended.items():
            gpus[has.vc] = gpus.get(has.vc, 0) + (0 if node in lent else has.gpus)
        waits = [phase.value for phase in Phase if phase.waits]
        query = select(jobs.c.job_id, jobs.c.vc, jobs.c.gpus).where(jobs.c.phase.in_(waits))
        with self.store.engine.connect() as connection:
            found = connection.execute(query.order_by(jobs.c.submitted_seq)).all()
        return [row.job_id for row in found if row.gpus > gpus.get(row.vc, 0)]

    def needed(self, kind: Kind, body: dict[str, Any], row: Row | None) -> bool:
        """Whether a request changes anything: asked for again it does not."""
        if kind is Kind.NODE_ADDED:
            return row is None
        if kind is Kind.SETTINGS_SET:
            return bool(body["settings"] != self.spec().settings.plain())
        assert row is not None
        change = json.loads(row["change"]) if row["change"] else None
        if kind is Kind.NODE_REMOVED:
            return change != {}
        if kind is Kind.NODE_CHANGED:
            return node_of(change or row) != node_of(body)
        same = bool(row["open"]) is body["open"] and row["reason"] == body["reason"]
        return not same or (body["open"] and change is not None)


async def _make(
    request: Request,
    work: ClusterChanges,
    asked: tuple[Kind, dict[str, Any], Row | None],
    preview: bool,
) -> ClusterChange:
    kind, body, row = asked
    never = await run_in_threadpool(work.never, kind, body) if kind in ABOUT_NODES else []
    needed = await run_in_threadpool(work.needed, kind, body, row)
    effect = None
    if preview:
        questions: Questions = request.app.state.questions
        effect = _effect(await questions.ask("cluster", {"kind": kind.value, "body": body}))
    elif needed:
        await run_in_threadpool(work.changes.append, kind, work.viewer.name, **body)
        work.changes.forget_cluster()
    name = row["name"] if row is not None else body.get("name", "")
    return ClusterChange(
        kind.value, row["node"] if row is not None else None, name, never, needed, effect
    )


def _effect(answer: dict[str, Any]) -> Effect:
    if "unavailable" in answer:
        return Effect({}, 0, 0, 0, answer["unavailable"])
    return Effect(**answer)


@router.get("/nodes", summary="Every node: what it has, whether it is open, and why not")
def list_nodes(view: Seen) -> list[NodeSeen]:
    """Who drained a node is told to operators."""
    return view.cluster()


@router.post("/nodes", status_code=202, summary="Add a node", responses=responses(403, 409, 422))
async def add_node(
    asked: AddNodeRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Operators only. What is left out is as on other nodes of the virtual cluster."""
    work = await run_in_threadpool(ClusterChanges, request, viewer)
    return await _make(request, work, await run_in_threadpool(work.add, asked), preview)


@router.put(
    "/nodes/{node}",
    status_code=202,
    summary="Drain a node or open it",
    responses=responses(403, 404, 409),
)
async def set_node(
    node: Named, asked: NodeRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Operators only. What runs on a drained node goes on. Opening it calls off a change that
    waits for it to be idle."""
    work = await run_in_threadpool(ClusterChanges, request, viewer)
    return await _make(request, work, await run_in_threadpool(work.set_open, node, asked), preview)


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
    """Operators only. Nothing new starts there; it is done once nothing runs there."""
    work = await run_in_threadpool(ClusterChanges, request, viewer)
    return await _make(request, work, await run_in_threadpool(work.change, node, asked), preview)


@router.delete(
    "/nodes/{node}", status_code=202, summary="Remove a node", responses=responses(403, 404, 409)
)
async def remove_node(
    node: Named, request: Request, viewer: Operator, reason: Why = "", preview: Preview = False
) -> ClusterChange:
    """Operators only. Nothing new starts there; it leaves once nothing runs there."""
    work = await run_in_threadpool(ClusterChanges, request, viewer)
    return await _make(request, work, await run_in_threadpool(work.remove, node, reason), preview)


@router.get("/settings", summary="The settings of the policy, as they are now")
def show_settings(request: Request, viewer: Operator) -> list[Setting]:
    """Operators only."""
    spec = ClusterChanges(request, viewer).spec()
    values = flat(spec.settings)
    return [
        Setting(one.name, values[one.name], one.default, one.unit, one.accepts, one.description)
        for one in describe(type(spec.settings))
        if one.name in values
    ]


@router.put(
    "/settings",
    status_code=202,
    summary="Set what the policy can be set to",
    responses=responses(403, 409, 422),
)
async def set_settings(
    asked: SettingsRequest, request: Request, viewer: Operator, preview: Preview = False
) -> ClusterChange:
    """Operators only. What is left out stays; the queues are put in their new order."""
    work = await run_in_threadpool(ClusterChanges, request, viewer)
    return await _make(request, work, await run_in_threadpool(work.set_settings, asked), preview)
