"""Why a start is forecast later than it was. What has happened since is undone on a copy, and what
moves the start is named.

Named is only what, undone, brings the start forward there by the crude rule (work ahead over GPUs):
jobs that came later and stand before it or run, runs that have outlived their predictions, nodes
closed since.
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
    """Return whether and why a job is forecast to start at another time than was promised.

    Args:
        closed: the closed nodes, each with since when (seconds since the epoch).

    None: it has not moved, or one of the two is unknown.
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
    """Return when a job starts by the crude rule on a copy without some jobs and closed nodes
    (`gone`), seconds since the epoch; None where it has no such start."""
    altered = futures.trial(without(gone)).core
    return crude(altered, futures.memory, futures.now)[job_id].start_p50


def _since(
    futures: Futures, job_id: str, since: float, closed: Mapping[int, float]
) -> Iterable[tuple[str, tuple[Item, ...]]]:
    """Yield what has happened in a job's virtual cluster since a moment: its kind
    (`Cause.kind`), and the jobs or nodes to remove from a copy to undo it."""
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
