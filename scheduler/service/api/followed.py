"""Routes with questions to the follower of a Slurm: when a new job would start, and what would let
a waiting job start sooner.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool

from features.codec import Json, decode
from scheduler.explain.effect import ByNode, Eta, Sooner
from scheduler.service.api.auth import Seen, only_asks
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import Questions
from scheduler.service.api.schemas import Request as Body
from scheduler.service.log.questions import ETA, LEASE, LOOK, NODES, PATIENCE_S, TRIED
from scheduler.service.log.store.reads import UnknownJob, VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.unread import Unread, read_at
from scheduler.service.settings import Settings

router = APIRouter(tags=["jobs"])


class EtaRequest(Body):
    """A job, described by options of sbatch."""

    options: Annotated[
        list[Annotated[str, Field(max_length=1024)]],
        Field(max_length=128, examples=[["--gres=gpu:a100:2", "-t", "60"]]),
    ]
    user: Annotated[
        str | None, Field(max_length=128, description="The user to ask for; operators only.")
    ] = None


@router.post("/eta", summary="When would it start", responses=responses(403, 409, 422))
@only_asks
async def eta(asked: EtaRequest, request: Request, view: Seen) -> Eta:
    """Say when a job would start. Nothing is submitted. Only in front of a Slurm, with the policy
    `slurm`.
    """
    if asked.user not in (None, view.viewer.name) and not view.viewer.sees_all:
        raise Problem(403, "forbidden", "only an operator may ask for another user")
    user = asked.user or view.viewer.name
    answer = await _ask(request, view, ETA, {"options": asked.options, "user": user})
    if refused := answer.pop("refused", ""):
        raise Problem(422, "invalid-options", refused)
    return decode(Eta, answer)


@router.get(
    "/jobs/{job_id}/sooner",
    summary="What would have it start sooner",
    responses=responses(404, 409),
)
async def sooner(job_id: str, request: Request, view: Seen) -> Sooner:
    """Say what would let a waiting job start sooner. Each change is tried on a copy of the followed
    Slurm. Nothing is changed.
    """
    await run_in_threadpool(view.job, job_id)
    return decode(Sooner, await _ask(request, view, TRIED, {"job_id": job_id}))


@router.get(
    "/jobs/{job_id}/nodes", summary="What it lacks, node by node", responses=responses(404, 409)
)
async def by_node(job_id: str, request: Request, view: Seen) -> ByNode:
    """Say for each node what keeps a waiting job of the followed Slurm from starting there, as of
    the last poll.
    """
    job_id = await run_in_threadpool(view.task_of, job_id)
    await run_in_threadpool(view.job, job_id)
    return decode(ByNode, await _ask(request, view, NODES, {"job_id": job_id}))


async def _ask(request: Request, view: VisibleQueries, kind: str, body: Json) -> Json:
    settings: Settings = request.app.state.settings
    if not settings.follows:
        raise Problem(409, "not-followed", "this service decides itself: ask `pellucid whatif`")
    questions: Questions = request.app.state.questions
    return await questions.ask(kind, body, view.viewer.name, whom=LEASE, answer_s=PATIENCE_S)


FRESH_S, KNOWN_S = 8.0, 1.0  # ages of a read of the queue that will do: of a known job, or another
LOOK_S = 3.0  # for which a new one is waited for


async def up_to_date(request: Request, view: VisibleQueries, job_id: str) -> None:
    """Have Slurm's queue read again where the job is unknown (as just after `sbatch`), or the last
    reading is old. Do nothing where this service decides itself, Slurm does not answer, or the
    database takes no question now: the caller then answers from what is known.
    """
    settings: Settings = request.app.state.settings
    unread: Unread = request.app.state.unread
    if not settings.follows or (await run_in_threadpool(unread.silent)).slurm is not None:
        return
    questions: Questions = request.app.state.questions
    if await run_in_threadpool(_is_old, request.app.state.store, view, job_id):
        with suppress(Problem, SQLAlchemyError):
            await questions.ask(LOOK, {}, view.viewer.name, whom=LEASE, answer_s=LOOK_S)


def _is_old(store: Store, view: VisibleQueries, job_id: str) -> bool:
    """Return whether Slurm's queue was last read too long ago to answer a question about a job. An
    unknown job needs a more recent reading than a known one. Return False where it is not known
    when it was read.
    """
    at = read_at(store)
    if at is None:
        return False
    try:
        view.job(view.task_of(job_id))
        enough_s = FRESH_S
    except UnknownJob:
        enough_s = KNOWN_S
    return store.clock.now() - at > enough_s
