"""Why a job is now forecast to start later than before. What has happened since is undone on a copy
of the core, to find what delays the start.

An event is named only if, with it undone, the job starts earlier by the crude rule (work ahead over
GPUs). Such events are later jobs that stand before it or run, runs that have lasted longer than
predicted, and nodes that were closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.core.durations import seconds_of
from scheduler.explain.answer import Cause, MovedStart
from scheduler.explain.whatif.forecasts import Futures, StartForecast, crude
from scheduler.explain.whatif.trial import Item, without

LEAST_S = 60.0  # a start that moved by less has not moved
SHARE = 0.1  # of the wait that is left: nor by less than that


def moved(
    futures: Futures,
    job_id: str,
    promised: StartForecast,
    latest: StartForecast,
    closed: Mapping[int, float],
) -> MovedStart | None:
    """Return how far, and why, the forecast start of a job has moved since one was promised. Causes
    are given only if it is later. Return None if it has moved by less than a minute or a tenth of
    the wait that is left, or one of the two starts is unknown.

    Args:
        promised, latest: the forecast that was promised, and the latest one.
        closed: the closed nodes, each with the time since when it is closed (seconds since the
            epoch).
    """
    if promised.start_p50 is None or latest.start_p50 is None:
        return None
    by_s = latest.start_p50 - promised.start_p50
    left_s = latest.start_p50 - latest.made_at
    if abs(by_s) < max(LEAST_S, SHARE * left_s):
        return None
    if by_s <= 0:
        return MovedStart(promised.made_at, by_s, left_s)
    now = _crude(futures, job_id, ())
    causes = []
    for kind, gone in _since(futures, job_id, promised.made_at, closed):
        without = _crude(futures, job_id, gone)
        if now is not None and without is not None and now - without >= LEAST_S:
            causes.append(Cause(kind, len(gone), now - without))
    causes.sort(key=lambda cause: -cause.by_s)
    return MovedStart(promised.made_at, by_s, left_s, tuple(causes))


def _crude(futures: Futures, job_id: str, gone: Iterable[Item]) -> float | None:
    """Return when a job starts by the crude rule (work ahead over GPUs), seconds since the epoch,
    on a copy without the jobs in `gone`, and with the nodes in `gone` open. Return None where the
    rule gives no start."""
    altered = futures.trial(without(gone)).core
    return crude(altered, futures.memory, futures.now)[job_id].start_p50


def _since(
    futures: Futures, job_id: str, since: float, closed: Mapping[int, float]
) -> Iterable[tuple[str, tuple[Item, ...]]]:
    """Yield what has happened in a job's virtual cluster since the time `since`: the kind of event
    (`Cause.kind`), and the jobs to remove from a copy, or the nodes to open, to undo it."""
    core, now = futures.core, futures.now
    queued = core.jobs[job_id]
    vc = queued.job.vc
    ahead = tuple(
        other.job.job_id
        for other in core.queues[vc]
        if other < queued and other.job.submit_time > since
    )
    if ahead:
        yield "ahead", ahead
    runs = [run for run in core.runs_of(vc) if not run.profiling]
    later = tuple(run.job.job_id for run in runs if run.job.submit_time > since)
    if later:
        yield "running", later
    outlived = tuple(
        run.job.job_id
        for run in runs
        if run.job.job_id not in later
        and (expected_s := futures.beliefs.jobs[run.job.job_id].predicted_s) is not None
        and since < run.start_time + seconds_of(expected_s) < now
    )
    if outlived:
        yield "outlived", outlived
    nodes = tuple(
        node for node in core.cluster.pools[vc].nodes() if closed.get(node, since) > since
    )
    if nodes:
        yield "closed", nodes
