"""Routes that tell whether the service is alive and ready, and that give its metrics."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from scheduler.core.plural import count
from scheduler.explain.words import clock_time
from scheduler.service.api.auth import Seen
from scheduler.service.api.lives import Lives
from scheduler.service.api.problems import Problem, responses
from scheduler.service.log.store.soundness import WHAT_TO_DO, Soundness
from scheduler.service.log.store.store import Store
from scheduler.service.log.unread import Unread
from scheduler.service.metrics import Counts, Metrics

router = APIRouter(tags=["system"])
DECIDING = ("decider", "follower")  # processes that hold the lease


@dataclass(frozen=True, slots=True)
class Health:
    """The status, "ok", or "stale" where the followed Slurm does not answer, and what was
    checked.
    """

    status: str
    checks: dict[str, str]


@router.get("/health", summary="This process answers")
def health() -> Health:
    """Say whether the API answers. No token is needed. The database is not checked."""
    return Health("ok", {})


@router.get("/ready", summary="Requests can be served", responses=responses(503))
def ready(request: Request) -> Health:
    """Say whether the service is ready. No token is needed. Ready means that the database answers
    and that a decider works: the process that holds the lease has taken its first decision pass, or
    found that none is due. `stale` means the same, but Slurm does not answer; the answer says since
    when.
    """
    store: Store = request.app.state.store
    counts: Counts = request.app.state.counts
    soundness: Soundness = request.app.state.soundness
    if damage := soundness.damage():
        raise Problem(503, "not-ready", f"{damage.sentence()}; {WHAT_TO_DO}")
    if full_since := counts.full_since.value:
        when = clock_time(full_since, store.clock.now())
        why = f"the service's disk is full since {when}: make room, and it goes on by itself"
        raise Problem(503, "not-ready", why)
    try:
        held, lease = store.held("decider"), store.holder("decider")
    except SQLAlchemyError:
        raise Problem(503, "not-ready", "the database does not answer") from None
    lives: Lives = request.app.state.lives
    if not held or lives.is_over(lease, counts.holder):
        why = "nobody decides: no decider holds the lease"
        deaths = sum(d.value for name, d in counts.deaths.items() if name in DECIDING)
        if deaths:
            died = count(deaths, "time")
            why = f"nobody decides: the decider's process has died {died}, and is started again"
        raise Problem(503, "not-ready", why + _as_it_hung(counts))
    doing = lease.doing if lease is not None else ""
    if lease is not None and not lease.ready:
        why = f"nobody decides yet: the decider {doing or 'begins'}"
        raise Problem(503, "not-ready", why + _as_it_hung(counts))
    checks = {"database": "answers", "decider": f"decides; {doing}" if doing else "decides"}
    unread: Unread = request.app.state.unread
    silent = dict(unread.silent().checks(store.clock.now()))
    return Health("stale" if silent else "ok", checks | silent)


def _as_it_hung(counts: Counts) -> str:
    """Return words to append, on how often the decider was killed because it hung; "" where it was
    not.
    """
    hangs = sum(hung.value for name, hung in counts.hangs.items() if name in DECIDING)
    return f"; it was killed {count(hangs, 'time')}, as nothing was heard of it" if hangs else ""


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
def metrics(request: Request, _: Seen) -> Response:
    """Return metrics in the text format of Prometheus. They are computed when asked for, and name
    nobody.
    """
    collector: Metrics = request.app.state.metrics
    content, media_type = collector.exposition()
    return Response(content, media_type=media_type)
