"""What owners and operators do about waiting jobs: change, hold, release, cancel many.

Each request becomes an event, which takes effect in the next decision pass (one round of
decisions). With `preview` nothing is changed. A repeated request changes nothing further.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from features.codec import Json
from scheduler.backends.events import Event, Kind
from scheduler.explain.effect import WhatIfAnswer
from scheduler.service.api.auth import Seen
from scheduler.service.api.changes import Changes, Wish
from scheduler.service.api.problems import Problem, responses
from scheduler.service.api.questions import Questions
from scheduler.service.api.schemas import CancelRequest, ChangeRequest
from scheduler.service.api.shapes import CancelledMany, JobChange
from scheduler.service.log.record import HoldBy, Phase
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.visibility import Role, Viewer

router = APIRouter(tags=["jobs"])
Preview = Annotated[bool, Query(description="Change nothing; show what the change would do.")]


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request. `event`: the event to append; None where nothing would change. `differs`:
    the changes in the form in which the analyst is asked about them; {} where it has no question.
    """

    event: Event | None
    differs: Json = field(default_factory=dict)


class Acting:
    """Checks what a viewer asks of waiting jobs. Every method raises Problem (403, 409, 422) for a
    request that is refused.
    """

    def __init__(self, changes: Changes, viewer: Viewer):
        self.changes, self.viewer = changes, viewer

    def _event(self, kind: Kind, job: JobRow, **body: Any) -> Event:
        return Event(kind, self.changes.now(), job.job_id, self.viewer.name, body=body)

    def _may(self, instead: str) -> None:
        self.changes.in_charge(instead)
        if self.viewer.role is Role.VIEWER:
            raise Problem(403, "forbidden", "a viewer's token cannot change jobs")

    def may_change(self, job: JobRow) -> None:
        """Raise Problem (403, 409) where the viewer may not change jobs at all, whatever the
        change.
        """
        self._may(f"scontrol update JobId={job.job_id}")

    @property
    def _operator(self) -> bool:
        return self.viewer.role is Role.OPERATOR

    def change(self, job: JobRow, asked: ChangeRequest) -> Asked:
        """Check a change of what a waiting job asks for. Return the event to append; none where
        nothing would change.
        """
        self.may_change(job)
        given = asked.given().items()
        differs = {name: to for name, to in given if to != getattr(job, name)}
        if job.phase == Phase.PROFILING:
            why = "the job is being profiled: change it when that is over, in a few minutes"
            raise Problem(409, "not-waiting", why)
        if not Phase(job.phase).waits or job.cancel_asked:
            stands = "cancelled" if job.cancel_asked else job.phase
            why = f"the job is {stands}: only a job that waits can be changed"
            if job.phase == Phase.RUNNING and "time_limit_s" in differs:
                why += "; once it runs its time limit stays, for operators too"
            raise Problem(409, "not-waiting", why)
        if not differs:
            return Asked(None)
        if {"vc", "gpus", "gpu_type"} & differs.keys():
            wants = {"vc": job.vc, "gpus": job.gpus, "gpu_type": job.gpu_type, **differs}
            self.changes.vc_for(self.viewer, Wish(wants["vc"], wants["gpus"], wants["gpu_type"]))
        if {"after", "after_any"} & differs.keys():
            self.changes.check_dependencies(self.viewer, differs, job.job_id)
        self.changes.check_messages(differs)
        question = {name: "" if to is None else to for name, to in differs.items()}
        return Asked(self._event(Kind.CHANGED, job, **differs), question)

    def hold(self, job: JobRow) -> Asked:
        """Check that a waiting job may be held. Return the event to append; none where the job is
        held already. Only operators can release a job that an operator holds for another user.
        """
        self._may(f"scontrol hold {job.job_id}")
        self._holdable(job)
        operator = self._operator and job.owner != self.viewer.name
        if job.hold == HoldBy.OPERATOR or (job.hold and not operator):
            return Asked(None)
        return Asked(self._event(Kind.HELD, job, operator=operator), {"held": True})

    def release(self, job: JobRow) -> Asked:
        """Check that a held job may be released. Return the event to append; none where it is
        not held."""
        self._may(f"scontrol release {job.job_id}")
        self._holdable(job)
        if not job.hold:
            return Asked(None)
        if job.hold == HoldBy.OPERATOR and not self._operator:
            why = "an operator holds this job: only an operator can release it"
            raise Problem(403, "forbidden", why)
        return Asked(self._event(Kind.RELEASED, job, operator=self._operator), {"held": False})

    @staticmethod
    def _holdable(job: JobRow) -> None:
        if not (Phase(job.phase).waits or job.phase == Phase.PROFILING):
            why = f"the job is {job.phase}: only a job that waits can be held or released"
            raise Problem(409, "not-waiting", why)


async def _act(
    request: Request, view: VisibleQueries, asked: Asked, job: JobRow, preview: bool
) -> JobChange:
    effect = None
    if preview and asked.event is not None and Phase(job.phase).waits:
        questions: Questions = request.app.state.questions
        body = {"job_id": job.job_id, "names": view.viewer.sees_all, "changes": asked.differs}
        answer = await questions.ask("whatif", {**body, "others": True}, view.viewer.name)
        effect = WhatIfAnswer.of(job.job_id, asked.differs, answer)
    elif asked.event is not None and not preview:
        changes: Changes = request.app.state.changes
        await run_in_threadpool(changes.write, [asked.event])
    return JobChange(
        job_id=job.job_id,
        changes=asked.differs,
        needed=asked.event is not None,
        applied=not preview,
        effect=effect,
    )


def allowed(job_id: str, request: Request, view: VisibleQueries) -> None:
    """Raise UnknownJob where the sender of a request may not see the job, and Problem (403, 409)
    where they may not change jobs at all.
    """
    _acting(request, view).may_change(view.job(job_id))


def _acting(request: Request, view: VisibleQueries) -> Acting:
    return Acting(request.app.state.changes, view.viewer)


@router.patch(
    "/jobs/{job_id}",
    status_code=202,
    summary="Change what a waiting job asks for",
    responses=responses(403, 404, 409, 422),
)
async def change_job(
    job_id: str, asked: ChangeRequest, request: Request, view: Seen, preview: Preview = False
) -> JobChange:
    """Change what a waiting job asks for. It keeps its place: when it was submitted, and what it
    has waited. Running jobs cannot be changed.
    """
    job = await run_in_threadpool(view.job, job_id)
    work = await run_in_threadpool(_acting(request, view).change, job, asked)
    return await _act(request, view, asked=work, job=job, preview=preview)


@router.put(
    "/jobs/{job_id}/hold",
    status_code=202,
    summary="Hold a waiting job",
    responses=responses(403, 404, 409),
)
async def hold(job_id: str, request: Request, view: Seen, preview: Preview = False) -> JobChange:
    """Hold a waiting job: it does not start until it is released. The time it is held does not
    count as waiting.
    """
    job = await run_in_threadpool(view.job, job_id)
    return await _act(
        request, view, asked=_acting(request, view).hold(job), job=job, preview=preview
    )


@router.delete(
    "/jobs/{job_id}/hold",
    status_code=202,
    summary="Release a held job",
    responses=responses(403, 404, 409),
)
async def release(job_id: str, request: Request, view: Seen, preview: Preview = False) -> JobChange:
    """Release a held job. What an operator holds only an operator can release."""
    job = await run_in_threadpool(view.job, job_id)
    return await _act(
        request, view, asked=_acting(request, view).release(job), job=job, preview=preview
    )


@router.post("/jobs/cancel", status_code=202, summary="Cancel jobs", responses=responses(403, 409))
def cancel_many(
    asked: CancelRequest, request: Request, view: Seen, preview: Preview = False
) -> CancelledMany:
    """Cancel several jobs. Those that can be are cancelled, whatever happens to the others. An
    array's id stands for its tasks.
    """
    changes: Changes = request.app.state.changes
    changes.in_charge("scancel")
    if view.viewer.role is Role.VIEWER:
        raise Problem(403, "forbidden", "a viewer's token cannot cancel jobs")
    rows = view.those(dict.fromkeys(asked.jobs))
    known = {row.job_id for row in rows}
    unknown = []
    for job_id in dict.fromkeys(one for one in asked.jobs if one not in known):
        tasks = view.tasks(job_id)
        rows += [task for task in tasks if task.job_id not in known]
        unknown += [] if tasks else [job_id]
    for job_id in unknown:
        request.app.state.refusals.missed(request, job_id)
    over = [row.job_id for row in rows if Phase(row.phase).over or row.cancel_asked]
    wanted = [row.job_id for row in rows if row.job_id not in set(over)]
    now, by = changes.now(), view.viewer.name
    if not preview:
        changes.write([Event(Kind.CANCEL_ASKED, now, job_id, by) for job_id in wanted])
    return CancelledMany(wanted, over, unknown)
