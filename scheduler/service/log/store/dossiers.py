"""Reads the dossier of a job (all that its explanation is made from) from the database, as far as
the viewer may see it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.core.phase import Phase
from scheduler.explain.dossier import (
    Dossier,
    Recorded,
    Stands,
    decision_of,
    facts_of,
    joined_of,
    needs_bound,
    needs_nodes,
    spells_of,
)
from scheduler.explain.stories import names_of_terms
from scheduler.explain.why import explain

if TYPE_CHECKING:
    from scheduler.explain.explanation import Explanation, Standing
    from scheduler.explain.job import JobRow
    from scheduler.service.log.store.reads import VisibleQueries


def explained(view: VisibleQueries, job_id: str, now: float) -> Explanation:
    """Return the explanation of where a job is at `now`, and why. Raise UnknownJob where the viewer
    may not see the job.
    """
    return explain(dossier_of(view, job_id, now))


def dossier_of(view: VisibleQueries, job_id: str, now: float) -> Dossier:
    """Return all that the viewer may know of a job at `now`. Raise UnknownJob where the viewer may
    not see the job.

    Decisions about a job that Slurm started are left out, because they took no effect. Which jobs
    had GPUs while it waited is not recorded for jobs of Slurm.
    """
    job = view.job(job_id)
    facts, until = facts_of(job), max(now, job.submitted_at)
    started = job.slurm is not None and job.slurm.started
    own = [] if started else [decision_of(line) for line in view.decisions(job_id)]
    ours = job.slurm is None
    standing = view.standing(job_id) if Phase(job.phase).waits else None
    return Dossier(
        facts=facts,
        own=own,
        joined=joined_of(view.joined_by(job_id), job),
        beside=Recorded(
            bundles=names_of_terms(view.bundle()),
            held=view.held(job, spells_of(facts, own, until), now) if ours else (),
            overtaken=view.overtaken(job_id) if ours else {},
        ),
        stands=replace(
            stands_of(view, job, now, standing),
            nodes=view.nodes_now() if needs_nodes(job, own) else (),
            busy=view.keeps_decider(),
            alike=view.alike(job),
            receipt=view.receipt(job_id) if job.phase == Phase.RUNNING else None,
        ),
    )


def stands_of(
    view: VisibleQueries, job: JobRow, now: float, standing: Standing | None = None
) -> Stands:
    """Return a job with its forecasts and, where these lack it, the latest time at which it starts:
    all that `forecast_of` needs. `standing`: its place in its queue, where it is known.
    """
    forecast = view.forecast(job.job_id)
    return Stands(
        row=job,
        now=now,
        standing=standing,
        forecast=forecast,
        promised=view.forecast(job.job_id, "submission"),
        bound=view.bound(job.job_id, now, standing) if needs_bound(job, forecast) else None,
    )
