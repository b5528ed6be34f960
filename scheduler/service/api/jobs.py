"""Routes for jobs: submit, list, cancel, priority, story, explanation, forecast, what-if."""

from __future__ import annotations

from asyncio import wrap_future
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool

from features.codec import Json, decode
from scheduler.core.decisions import STARTS, Action
from scheduler.core.limits import PRINTABLE, composed
from scheduler.explain.answer import Analysis
from scheduler.explain.effect import NewJob, WhatIfAnswer
from scheduler.explain.explanation import (
    Compared,
    Explanation,
    Finding,
    Order,
    Standing,
)
from scheduler.explain.why import forecast_of
from scheduler.explain.words import duration
from scheduler.service.api.auth import Seen, only_asks
from scheduler.service.api.changes import Changes
from scheduler.service.api.followed import up_to_date
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import Questions
from scheduler.service.api.schemas import (
    ArrayRequest,
    PriorityRequest,
    SubmitRequest,
    WhatIfRequest,
    tasks_of,
)
from scheduler.service.api.shapes import ForecastAnswer, PriorityEffect, SubmittedArray
from scheduler.service.log.record import Phase
from scheduler.service.log.store.dossiers import explained, stands_of
from scheduler.service.log.store.reads import Chosen, VisibleQueries
from scheduler.service.log.store.rows import JobRow, Line, Page
from scheduler.service.log.store.visible_rows import MAX_PAGE
from scheduler.service.settings import Settings

router = APIRouter(tags=["jobs"])
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows per page.")]
After = Annotated[
    str | None, Query(max_length=256, description="Cursor: `next` of the page before.")
]
Word = Annotated[
    Annotated[str, AfterValidator(composed)] | None, Query(max_length=128, pattern=PRINTABLE)
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Sent again with the same body, it submits nothing and names the first job.",
    ),
]


@router.post(
    "/jobs",
    status_code=201,
    summary="Submit a job",
    responses={
        200: {"description": "Submitted before under this Idempotency-Key", "model": JobRow},
        **responses(403, 422, 503),
    },
)
async def submit(
    asked: SubmitRequest, request: Request, response: Response, view: Seen, key: Key = None
) -> JobRow:
    """Submit a job. Once the answer comes, the job is stored in the log for good."""
    changes: Changes = request.app.state.changes
    written = await wrap_future(changes.submit(view.viewer, asked, key))
    response.headers["Location"] = f"{request.url.path}/{written.job_id}"
    if written.row is not None:
        return replace(view.fresh(written.row), command=tuple(asked.command))
    response.status_code = 200
    return await run_in_threadpool(view.job, written.job_id)


@router.post("/jobs/eta", summary="When would a job start", responses=responses(403, 409, 422))
@only_asks
async def eta(asked: SubmitRequest, request: Request, view: Seen) -> NewJob:
    """Say when a job that is not submitted would start, and how long it should run. It is tried on
    a copy of the decision core. Nothing is submitted. In front of a Slurm: `POST /eta`.
    """
    changes: Changes = request.app.state.changes
    made = await run_in_threadpool(changes.submission, view.viewer, asked)
    questions: Questions = request.app.state.questions
    body = made.sealing().body()
    answer = await questions.ask("new", {"submission": body}, view.viewer.name)
    found = decode(NewJob, {"vc": made.vc, "gpus": made.gpus, **answer})
    if found.unavailable or found.starts_now or made.after or made.after_any:
        return found
    at = await run_in_threadpool(view.bound_of, made.vc, made.gpus, made.gpu_type, found.now)
    return replace(found, latest=at.latest, no_latest=at.missing)


@router.post(
    "/jobs/array", status_code=201, summary="Submit an array", responses=responses(403, 422, 503)
)
def submit_array(
    asked: ArrayRequest, request: Request, view: Seen, key: Key = None
) -> SubmittedArray:
    """Submit jobs that differ only in a number, which each finds in its environment as
    PELLUCID_ARRAY_TASK_ID and SLURM_ARRAY_TASK_ID. Every task counts as a change. With 0-9%2 at
    most two run at once: each task waits for the end of the second one before it.
    """
    more = len(tasks_of(asked.array).numbers) - 1
    request.app.state.authenticator.spend(view.viewer, more)
    changes: Changes = request.app.state.changes
    return changes.submit_array(view.viewer, asked, key)


@router.get("/jobs", summary="List your jobs, latest first")
def list_jobs(
    view: Seen,
    phase: Phase | None = None,
    over: Annotated[bool, Query(description="Also list jobs that have ended.")] = True,
    vc: Word = None,
    owner: Word = None,
    array: Annotated[Word, Query(description="Only tasks of this array.")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[JobRow]:
    """List your jobs; for operators, everybody's."""
    chosen = Chosen(
        phase=None if phase is None else phase.value, over=over, vc=vc, owner=owner, array=array
    )
    return view.jobs(chosen, limit=limit, after=after)


@router.get("/jobs/{job_id}", summary="One job", responses=responses(404))
def get_job(job_id: str, view: Seen) -> JobRow:
    """Return a job of yours, or for operators, anybody's. Another user's job counts as not
    found.
    """
    return view.job(job_id)


@router.post(
    "/jobs/{job_id}/cancel", status_code=202, summary="Cancel a job", responses=responses(404)
)
def cancel(job_id: str, request: Request, view: Seen) -> JobRow:
    """Ask for a job to be stopped. Asking again, or after its end, changes nothing."""
    changes: Changes = request.app.state.changes
    changes.cancel(view.viewer, view.job(job_id))
    return view.job(job_id)


@router.put(
    "/jobs/{job_id}/priority", summary="Change a job's priority", responses=responses(404, 409)
)
async def set_priority(
    job_id: str,
    asked: PriorityRequest,
    request: Request,
    view: Seen,
    preview: Annotated[bool, Query(description="Show the effect only, change nothing.")] = False,
) -> PriorityEffect:
    """Set the priority of a waiting job. Higher goes first. Submitters may give their own jobs 0 or
    less, operators may give any.

    The answer gives the effect at this moment: the place in the queue before and after. With
    `preview`, it also gives the start and reason that the analyst forecasts.
    """
    changes: Changes = request.app.state.changes
    job = await run_in_threadpool(view.job, job_id)
    changes.check_priority(view.viewer, job, asked.priority)
    before = await run_in_threadpool(view.standing, job_id)
    after = await run_in_threadpool(view.standing, job_id, asked.priority)
    effect = None
    if preview:
        wanted = {"priority": asked.priority}
        answer = await _ask(request, view, "whatif", job_id, changes=wanted)
        effect = WhatIfAnswer.of(job_id, wanted, answer)
    else:
        await run_in_threadpool(changes.set_priority, view.viewer, job, asked.priority)
    return PriorityEffect.of(job, asked.priority, before, after, effect=effect, applied=not preview)


@router.get("/jobs/{job_id}/story", summary="Everything that happened", responses=responses(404))
def story(job_id: str, view: Seen) -> list[Line]:
    """Return events and decisions of a job in order, each decision with its reason and numbers."""
    return view.story(job_id)


@router.get("/jobs/{job_id}/explain", summary="Why it is where it is", responses=responses(404))
async def explanation(
    job_id: str,
    request: Request,
    view: Seen,
    analyse: Annotated[
        bool, Query(description="Also try, on a copy of the core, what blocks and what helps.")
    ] = False,
) -> Explanation:
    """Explain why a job waits: at most four reasons with their numbers; the first is the reason
    now. For an array, the answer is about its first waiting task, else a running one, else its
    last.
    """
    changes: Changes = request.app.state.changes
    await up_to_date(request, view, job_id)
    job_id = await run_in_threadpool(view.task_of, job_id)
    found = await run_in_threadpool(explained, view, job_id, changes.now())
    if not analyse or found.hold or not Phase(found.phase).waits:
        return found
    made = await analysis(job_id, request, view)
    if made.unavailable or not found.principal:
        return replace(found, analysis=made)
    first = Finding(  # the numbers of one answer are those of one moment
        reason=made.reason,
        since=found.principal[0].since,
        remedy=found.principal[0].remedy,
        action=Action.WAIT.value,
        need=made.need,
        free=made.free,
        limit=made.limit,
        closed=made.closed,
        position=made.position,
    )
    return replace(
        found,
        reason=made.reason,
        principal=[first, *found.principal[1:]],
        standing=found.standing
        if made.position is None or made.waiting is None
        else Standing(made.position, made.waiting),
        analysis=made,
    )


async def analysis(
    job_id: str, request: Request, view: VisibleQueries, *, helps: bool = True
) -> Analysis:
    """Return the analyst's answer on why a job waits at this moment; with `helps` also on what
    would help it.
    """
    vcs = list(view.viewer.vcs)
    why = await _ask(request, view, "why", job_id, helps=helps, vcs=vcs)
    return Analysis.of(job_id, why)


@router.get("/jobs/{job_id}/after", summary="Why after that one", responses=responses(404))
async def after(
    job_id: str,
    request: Request,
    view: Seen,
    other: Annotated[str, Query(max_length=64, description="Another job of yours.")],
) -> Compared:
    """Say why another job went, or goes, before a waiting job: the terms that make the place of
    each in the queue.
    """
    this = await run_in_threadpool(view.job, job_id)
    beside = await run_in_threadpool(view.job, other)
    if beside.started_at is not None and beside.started_at < this.submitted_at:
        early_s = this.submitted_at - beside.started_at
        why = f"it started {duration(early_s)} before {job_id} was submitted"
        return Compared(job_id, other, first=True, why=why, early_s=early_s)
    answer = await _ask(request, view, "after", job_id, other=other)
    if why_not := answer.get("unavailable"):
        return Compared(job_id, other, unavailable=str(why_not))
    lines = await run_in_threadpool(view.decisions, other) if beside.started_at else []
    begun = [d for d in lines if d.body["action"] in STARTS]
    started = begun[-1].text if begun else ""
    return decode(Compared, {**answer, "started": started})


@router.get(
    "/order",
    summary="The order of those who wait, with its terms",
    tags=["cluster"],
    responses=responses(409),
)
async def order(request: Request, view: Seen, vc: Word = None, limit: Limit = 50) -> list[Order]:
    """List your waiting jobs (for operators, everybody's) in the order of their queue, each with
    the terms that make its place, like Slurm's `sprio`.
    """
    request.app.state.changes.in_charge("`sprio -l`, and `pellucid why JOB` for the place of a job")
    owner = None if view.viewer.sees_all else view.viewer.name
    questions: Questions = request.app.state.questions
    found = []
    for one in [vc] if vc else await run_in_threadpool(view.vcs):
        asked = {"vc": one, "owner": owner, "limit": limit}
        answer = await questions.ask("order", asked, view.viewer.name)
        found.append(decode(Order, {"vc": one, **answer}))
    return found


@router.get("/jobs/{job_id}/forecast", summary="When it will start", responses=responses(404))
def forecast(job_id: str, request: Request, view: Seen) -> ForecastAnswer:
    """Return the forecast of start and end as p50 and p90: the one made at submission, and the
    latest.
    """
    stands = stands_of(view, view.job(job_id), request.app.state.changes.now())
    return ForecastAnswer(stands.promised, forecast_of(stands))


@router.post(
    "/jobs/{job_id}/whatif",
    summary="What if it were different",
    responses=responses(403, 404, 409),
)
@only_asks
async def what_if(job_id: str, asked: WhatIfRequest, request: Request, view: Seen) -> WhatIfAnswer:
    """Forecast a waiting job as it is, and as it would be with changes. Nothing is changed."""
    job_id = await run_in_threadpool(view.task_of, job_id)
    job = await run_in_threadpool(view.job, job_id)
    if not Phase(job.phase).waits:
        raise Problem(409, "not-waiting", f"the job is {job.phase}: its turn has come")
    changes: Changes = request.app.state.changes
    await run_in_threadpool(changes.check_vc, view.viewer, job, asked.changes().get("vc"))
    settings: Settings = request.app.state.settings
    if settings.follows:
        instead = f"in front of Slurm, `pellucid why {job_id}` ends with what would help"
        return WhatIfAnswer.of(job_id, asked.changes(), {"unavailable": instead})
    answer = await _ask(request, view, "whatif", job_id, changes=asked.changes(), others=True)
    return WhatIfAnswer.of(job_id, asked.changes(), answer)


async def _ask(request: Request, view: VisibleQueries, kind: str, job_id: str, **more: Any) -> Json:
    """Return the analyst's answer to a question (`kind`) about a job. It names other users' jobs
    for operators only.
    """
    questions: Questions = request.app.state.questions
    asked = {"job_id": job_id, "names": view.viewer.sees_all, **more}
    return await questions.ask(kind, asked, view.viewer.name)
