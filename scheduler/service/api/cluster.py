"""Routes for the cluster and for figures about all users, as far as the viewer may see them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from features.codec import decode
from scheduler.explain.causes import Causes
from scheduler.explain.claims import Record
from scheduler.explain.share import Shares
from scheduler.service.api.auth import Asking, Operator, Seen
from scheduler.service.api.changes import Changes
from scheduler.service.api.jobs import After, Limit, Word
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import ANALYST, Questions
from scheduler.service.api.shapes import ClusterMap, WhoAmI
from scheduler.service.log.beside import Standing, standing
from scheduler.service.log.questions import LEASE, SHARES
from scheduler.service.log.store.rows import (
    Calibration,
    Day,
    Models,
    Page,
    QueueEntry,
    Refusal,
    Share,
)
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.settings import Settings

router = APIRouter(tags=["cluster"])
Since = Annotated[
    float, Query(ge=0, le=1e11, allow_inf_nan=False, description="Seconds since the epoch.")
]


@router.get("/whoami", summary="Who you are here")
def who_am_i(viewer: Asking) -> WhoAmI:
    return WhoAmI(viewer.name, viewer.role.value, list(viewer.vcs), viewer.os_user)


@router.get("/cluster", summary="Node by GPU, who is on it")
def cluster_map(request: Request, view: Seen) -> ClusterMap:
    """Return the virtual clusters and every GPU. Jobs that you may not see appear as
    "another job".
    """
    changes: Changes = request.app.state.changes
    return ClusterMap(changes.now(), view.load(), view.cluster())


@router.get("/queue", summary="Who waits, in order", responses=responses(404))
def queue(
    view: Seen,
    vc: Annotated[str, Query(max_length=128, description="A virtual cluster.")],
    limit: Limit = 50,
    after: After = None,
) -> Page[QueueEntry]:
    """Return the queue of a virtual cluster. Of a job that you may not see only the place
    is shown.
    """
    if vc not in view.vcs():
        raise Problem(404, "not-found", "there is no virtual cluster of that name")
    return view.queue(vc, limit=limit, after=after)


@router.get("/causes", summary="Why jobs wait: all of them, by cause")
def causes(request: Request, view: Seen) -> Causes:
    """Return the causes for which your jobs wait (for operators all jobs), and the jobs whose end
    would free most of them.
    """
    changes: Changes = request.app.state.changes
    return view.causes(changes.now())


@router.get("/share", summary="What you have had lately, against what is due")
async def share(request: Request, view: Seen, user: Word = None) -> Shares:
    """Return what a user has used, and their fair share, by virtual cluster, or in front of a Slurm
    by account. Only operators may ask about others.
    """
    if user not in (None, view.viewer.name) and not view.viewer.sees_all:
        raise Problem(403, "forbidden", "only an operator may ask for another user")
    return await shares_of(request, view.viewer, user)


async def shares_of(request: Request, viewer: Viewer, user: str | None = None) -> Shares:
    """Return what a user has used and is due; by default the viewer. The analyst answers, or in
    front of a Slurm the follower.
    """
    settings: Settings = request.app.state.settings
    questions: Questions = request.app.state.questions
    who = user or viewer.name
    kind, whom = (SHARES, LEASE) if settings.follows else ("shares", ANALYST)
    return decode(
        Shares, {"user": who, **await questions.ask(kind, {"user": who}, viewer.name, whom=whom)}
    )


@router.get("/models", summary="The models in use")
def models(view: Seen) -> Models:
    """Return the policy, and the digest of the bundle of models that makes its scores."""
    return view.models()


@router.get("/models/beside", summary="Models that decide nothing, beside those that do")
def models_beside(request: Request, _: Asking) -> Standing:
    """Return how the predictions of a shadow bundle and of the former models compare with those in
    use, on jobs that ended since.
    """
    settings: Settings = request.app.state.settings
    store: Store = request.app.state.store
    with store.reading() as connection:
        return standing(connection, settings.state_dir / "bundles", settings.shadow)


@router.get("/fairness", summary="GPU-time and waits per virtual cluster and user")
def fairness(view: Seen, since: Since = 0.0) -> list[Share]:
    """Return usage and waits of whole virtual clusters (`user` is "") and of yourself; for
    operators, of every user.
    """
    return view.fairness(since)


@router.get("/history", summary="Ended jobs, day by day")
def history(view: Seen, since: Since = 0.0, vc: Word = None) -> list[Day]:
    """Return figures of ended jobs, day by day, over all users."""
    return view.history(since, vc)


@router.get("/calibration", summary="How forecasts turned out")
def calibration(view: Seen, since: Since = 0.0) -> Calibration:
    """Return how forecasts made at submission turned out: the share of jobs that started no later
    than promised.
    """
    return view.calibration(since)


@router.get("/claims", summary="How what was claimed turned out")
def claims(request: Request, view: Seen) -> list[Record]:
    """Return how often claims (predictions shown to people) came true, by kind, with a 95 %
    interval.
    """
    changes: Changes = request.app.state.changes
    return view.claims(changes.now())


@router.get("/refusals", summary="Requests turned down", responses=responses(403))
def refusals(view: Seen, _: Operator, limit: Limit = 50, after: After = None) -> Page[Refusal]:
    """Return refused requests, latest first. For operators only."""
    return view.refusals(limit=limit, after=after)
