"""The forecast of a job that is not submitted: what would be decided about it now, and when it
would start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.core.curves import Curve
from scheduler.core.decisions import STARTS
from scheduler.core.durations import LONG_S, at_level
from scheduler.core.estimates import ENDED_HERE
from scheduler.explain.belief import are_open
from scheduler.explain.effect import NewJob
from scheduler.explain.reasons import sentence
from scheduler.explain.whatif.forecasts import Futures, StartForecast
from scheduler.explain.whatif.near import by_work, is_behind
from scheduler.explain.whatif.trial import Trial

if TYPE_CHECKING:
    from features.job import Job
    from scheduler.core.core import Core

Corrected = Callable[["Core", str, StartForecast], StartForecast]


def tried(
    futures: Futures,
    job: Job,
    *,
    corrected: Corrected,
    priority: int = 0,
    samples: int,
    budget_s: float,
) -> NewJob:
    """Return what would happen to a job if it were submitted now, as tried on a copy of the core.
    Where the core would refuse it, the start is "impossible".

    Args:
        futures: simulated futures of the present core.
        job: the job, with an id that no other job has.
        corrected: function that corrects a job's forecast, as for the forecasts that users are
            shown.
        samples: number of futures at most.
        budget_s: processor seconds for the futures.
    """
    now, job_id = futures.now, job.job_id
    job = replace(job, submit_time=now)
    core = futures.copy({job_id: futures.memory.predicted(job, now)})
    # a refusal is recorded when the job comes
    trial = Trial(core, now, lambda core, now: core.submitted(job, now, priority=priority))
    last = trial.decide().last(job_id)
    found = NewJob(
        now=now,
        vc=job.vc,
        gpus=job.gpus,
        reason=last.reason.value if last is not None else "",
        why=sentence(last, ()) if last is not None else "",
    )
    if job_id not in core.jobs:
        return replace(found, estimate="impossible", why_not=found.why)
    queued = core.jobs[job_id]
    then = Futures(core, futures.memory, now, seed=futures.seed)
    lasts = then.beliefs.quantiles[job_id]
    odds = {name: Curve.of(lasts).chance(seconds) for name, seconds in LONG_S}
    found = replace(
        found,
        lasts_p50_s=at_level(lasts, 0.5),
        lasts_p90_s=at_level(lasts, 0.9),
        odds=odds,
        asks=not job.expect and are_open(odds),
    )
    if (ended := dict(queued.evidence).get(ENDED_HERE)) is not None:
        found = replace(found, ended_here=int(float(ended)))
    run = core.cluster.runs.get(job_id)
    if run is not None and last is not None and last.action in STARTS:
        return replace(found, starts_now=True, start_p50=now, start_p90=now)
    if queued in core.queues[job.vc] and is_behind(futures, queued):
        (made,) = (shown,) = by_work(futures, queued)
    else:
        made = then.forecast([job_id], samples=samples, budget_s=budget_s)[job_id]
        shown = corrected(core, job_id, made)
    return replace(
        found,
        start_p50=shown.start_p50,
        start_p90=shown.start_p90,
        estimate=shown.estimate,
        why_not=shown.why_not,
        futures=made.samples,
    )
