"""Asked of the follower of a Slurm: when a job would start that is not submitted yet, and what
would have a waiting one start sooner."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field
from pydantic.dataclasses import dataclass
from starlette.concurrency import run_in_threadpool

from scheduler.service.api.auth import Seen, only_asks
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import Questions
from scheduler.service.api.schemas import Request as Body
from scheduler.service.follow.answers import ETA, LEASE, PATIENCE_S, TRIED
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.settings import Settings

router = APIRouter(tags=["jobs"])


class EtaRequest(Body):
    """A job as sbatch would be asked for it."""

    options: Annotated[
        list[Annotated[str, Field(max_length=1024)]],
        Field(max_length=128, examples=[["--gres=gpu:a100:2", "-t", "60"]]),
    ]
    user: Annotated[str | None, Field(max_length=128, description="Whose; operators.")] = None


@dataclass(slots=True)
class Tried:
    """One trial. `words`, `command`: what was otherwise, and the command that asks so."""

    start_p50: float | None = None
    start_p90: float | None = None
    futures: Annotated[int, Field(description="Futures the times rest on.")] = 0
    reason: Annotated[str, Field(description="Slurm's word for its wait; empty: it starts.")] = ""
    why: str = ""
    partition: str = ""
    words: str = ""
    command: str = ""


@dataclass(slots=True)
class ClosedPartition:
    """A partition that does not take the job."""

    partition: str
    why: str


@dataclass(slots=True)
class Eta:
    """When a job would start, in each partition that takes it; first in those it names."""

    now: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    closed: list[ClosedPartition] = field(default_factory=list)
    asked: Annotated[list[str], Field(description="Partitions it names, or the default.")] = field(
        default_factory=list
    )
    not_tried: Annotated[list[str], Field(description="Partitions that there was no time for.")] = (
        field(default_factory=list)
    )
    own: Annotated[str, Field(description="What Pellucid's own policy would do with it.")] = ""
    unavailable: str = ""


@dataclass(slots=True)
class Sooner:
    """A waiting job as it is, and what would have it start sooner, soonest first."""

    now: float = 0.0
    as_it_is: Tried | None = None
    tried: list[Tried] = field(default_factory=list)
    not_tried: Annotated[list[str], Field(description="Changes that there was no time for.")] = (
        field(default_factory=list)
    )
    unavailable: str = ""


@router.post("/eta", summary="When would it start", responses=responses(403, 409, 422))
@only_asks
async def eta(asked: EtaRequest, request: Request, view: Seen) -> Eta:
    """Nothing is submitted. Only in front of a Slurm, with the policy `slurm`."""
    if asked.user not in (None, view.viewer.name) and not view.viewer.sees_all:
        raise Problem(403, "forbidden", "only an operator may ask for another user")
    user = asked.user or view.viewer.name
    told = await _ask(request, view, ETA, {"options": asked.options, "user": user})
    if refused := told.pop("refused", ""):
        raise Problem(422, "invalid-options", refused)
    return Eta(**told)


@router.get(
    "/jobs/{job_id}/sooner",
    summary="What would have it start sooner",
    responses=responses(404, 409),
)
async def sooner(job_id: str, request: Request, view: Seen) -> Sooner:
    """Each tried on a copy of the Slurm that is followed. Nothing is changed."""
    await run_in_threadpool(view.job, job_id)
    return Sooner(**await _ask(request, view, TRIED, {"job_id": job_id}))


async def _ask(
    request: Request, view: VisibleQueries, kind: str, body: dict[str, Any]
) -> dict[str, Any]:
    settings: Settings = request.app.state.settings
    if not settings.follows:
        raise Problem(409, "not-followed", "this service decides itself: ask `pellucid whatif`")
    questions: Questions = request.app.state.questions
    return await questions.ask(kind, body, view.viewer.name, whom=LEASE, answer_s=PATIENCE_S)
