"""Helios' estimates, and the Horus-like policy, on public traces.

Nothing here can be held against a published figure: Helios' job names and training code are not
public; Horus' figures are of its own cluster. The rules are tested; what they come to on these
traces is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from benchmarks.systems.figure import CpuClock, Figure, told
from features.schema import State
from models.training.helios import HeliosForest
from pipeline.worlds import open_scenario
from scheduler.core.estimates import Estimator
from scheduler.core.policy import Policy
from scheduler.policies.helios import HeliosEstimator
from scheduler.simulation.work import Workload

WEEK_S = 7 * 86_400.0
LEAST = 500  # ended jobs before a forest is fitted

Floats = NDArray[np.float64]


def figures(data: Path) -> Iterable[Figure]:
    yield from estimates(data)


def forests(workload: Workload, refit_s: float = WEEK_S) -> dict[str, float]:
    """Predicted seconds by job, from forests fitted each week on jobs that would have ended."""
    jobs = workload.jobs
    submit = np.array([job.submit_time for job in jobs])
    seconds = np.array([workload.work[job.job_id].duration_s for job in jobs])
    found: dict[str, float] = {}
    for cut in np.arange(submit.min() + refit_s, submit.max(), refit_s).tolist():
        past = np.flatnonzero(submit + seconds < cut)
        ahead = np.flatnonzero((submit >= cut) & (submit < cut + refit_s))
        if len(past) >= LEAST and len(ahead):
            forest = HeliosForest([jobs[i] for i in past], seconds[past])
            predicted = forest.predict([jobs[i] for i in ahead])
            found |= {jobs[i].job_id: float(p) for i, p in zip(ahead, predicted, strict=True)}
    return found


def replayed(workload: Workload, estimator: HeliosEstimator) -> dict[str, float]:
    """Predicted GPU-seconds of every job at submission, had nobody ever waited."""
    moments = []
    for job in workload.jobs:
        end = job.submit_time + workload.work[job.job_id].duration_s
        moments += [(job.submit_time, 1, job), (end, 0, job)]
    found = {}
    for now, submits, job in sorted(moments, key=lambda moment: moment[:2]):
        if submits:
            estimator.submitted(job, now)
            found[job.job_id] = estimator.gpu_s(job, now)
        else:
            duration_s = workload.work[job.job_id].duration_s
            estimator.ended(job.job_id, State.COMPLETED, duration_s, now)
    return found


def _made(make: Callable[[], Estimator], policy: Policy) -> Estimator:
    return make() if policy.estimates else Estimator()


def estimates(data: Path) -> Iterator[Figure]:
    clock = CpuClock()
    world = open_scenario(data / "venus", track="honest")
    workload = world.workload
    table = forests(workload)
    makers: dict[str, Callable[[], HeliosEstimator]] = {
        "rolling mean alone": HeliosEstimator,
        "blended with LightGBM": lambda: HeliosEstimator(lambda job, now: table.get(job.job_id)),
    }
    later = [job for job in workload.jobs if job.job_id in table]
    truth = [workload.work[job.job_id].duration_s * job.gpus for job in later]
    for label, make in makers.items():
        predicted = replayed(workload, make())
        rank = spearmanr([predicted[job.job_id] for job in later], truth).statistic
        yield told(
            "helios qssf",
            f"rank correlation of GPU-time from the second week, {label}",
            float(rank),
            clock.lap(),
            reference=0.542,
            note="the reference is the LightGBM of the artifact, fitted on five months",
        )
    fifo, _ = world.simulate("fifo")
    for label, make in makers.items():
        world.estimators = partial(_made, make)
        outcome, _ = world.simulate("qssf")
        yield told(
            "helios qssf",
            f"average JCT on Venus, {label}, s",
            fmean(r.jct_s for r in outcome.jobs),
            clock.lap(),
            reference=fmean(r.jct_s for r in fifo.jobs),
            note="track honest; the reference is FIFO; job names are not public",
        )
    outcome, _ = world.simulate("horus")
    plain, _ = world.simulate("fifo-skip")
    yield told(
        "horus-like",
        "average JCT on Venus, s",
        fmean(r.jct_s for r in outcome.jobs),
        clock.lap(),
        reference=fmean(r.jct_s for r in plain.jobs),
        note=f"ours; {outcome.packings} packings; the reference is the same order without packing",
    )
