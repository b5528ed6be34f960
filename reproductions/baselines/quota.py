"""The common part of preemptive baselines: the GPUs of a virtual cluster are assigned by number, in
the order of the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.core.cluster import Run
from scheduler.core.decisions import Reason
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn


def by_quota(
    turn: Turn, line: Iterable[Run | QueuedJob], stop: Callable[[Run, str | None], None]
) -> None:
    """Assign the GPUs of the virtual cluster by number, to the best jobs first: stop running jobs
    that get none, start waiting jobs that get some, let the others wait.

    Args:
        line: running and waiting jobs, best first.
        stop: called with a running job that gets no GPUs, and the id of the first waiting job that
            does (None: no waiting job does).
    """
    quota = turn.pool.gpus
    inside: list[QueuedJob] = []
    outside: list[Run] = []
    ahead: str | None = None  # the last job the quota went to
    for item in line:
        fits = item.job.gpus <= quota
        if fits:
            quota -= item.job.gpus
            ahead = item.job.job_id
        if isinstance(item, QueuedJob):
            if fits:
                inside.append(item)
            else:
                turn.wait(item, Reason.BEHIND_HIGHER_PRIORITY, blocker=ahead)
        elif not fits:
            outside.append(item)
    blocker = inside[0].job.job_id if inside else None
    for run in outside:
        stop(run, blocker)
    for queued in inside:
        placement = turn.pool.place(queued.job.gpus)
        if placement is None:
            turn.wait(queued, turn.capacity_reason(queued))
        else:
            turn.start(queued, placement)
