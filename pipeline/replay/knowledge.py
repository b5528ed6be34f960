"""Evaluates how well the histories in a dump itself would have predicted durations."""

from __future__ import annotations

import numpy as np

from models.training.errors import TrainingError
from models.training.metrics import duration_metrics
from pipeline.replay.site import Site
from pipeline.replay.window import DAY_S
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import HistoriesEstimator

LAST_DAYS = 7.0
LEAST = 50


def duration_knowledge(site: Site) -> dict[str, float] | None:
    """Return the errors, over the last days of the dump, of an estimator of durations that learned
    from the earlier jobs.

    It predicts when a job was submitted, and learns its duration when the job ended, by the
    recorded times. Return None if there are too few jobs to measure errors on."""
    record = site.submitted  # what was cut by the window's opening has no duration of its own
    jobs = [
        job
        for job, cut in zip(site.workload.jobs, site.recorded["carried"].to_pylist(), strict=True)
        if not cut
    ]
    start = record["submit"].to_numpy() + record["wait_s"].to_numpy()
    moments = sorted(
        [
            *((job.submit_time, 2, i) for i, job in enumerate(jobs)),
            *((at, 1, i) for i, at in enumerate(start)),
            *((at, 0, i) for i, at in enumerate(start + record["ran_s"].to_numpy())),
        ]
    )
    estimator = HistoriesEstimator()
    scores = np.full(len(jobs), np.nan)
    submitted: set[int] = set()
    for now, kind, i in moments:
        job = jobs[i]
        if kind == 2:
            estimator.submitted(job, now)
            scores[i] = np.log1p(seconds_of(estimator.enqueued(job, now).seconds))
            submitted.add(i)
        elif i not in submitted:
            continue  # a job of no length, or one whose clock runs backwards
        elif kind == 1:
            estimator.started(job.job_id, now)
        else:
            work = site.workload.work[job.job_id]
            estimator.ended(job.job_id, work.state, work.duration_s, now)
            submitted.discard(i)
    truth = np.array([site.workload.work[job.job_id].duration_s for job in jobs])
    last = np.array([job.submit_time for job in jobs]) >= jobs[-1].submit_time - LAST_DAYS * DAY_S
    if last.sum() < LEAST:
        return None
    gpus = np.array([job.gpus for job in jobs])
    try:
        found = duration_metrics(scores[last], truth[last], gpus[last])
    except TrainingError:
        return None
    return {name: value for name, value in found.items() if value == value}
