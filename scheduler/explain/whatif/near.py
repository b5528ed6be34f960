"""Futures of a long queue: only its front is simulated, and only for one day.

A copy of a core in which fifty thousand jobs wait takes seconds, and each simulated future two. The
jobs at the front of a queue go before all jobs that are left out. For the jobs behind the front,
only the work ahead over GPUs is given, counted over the whole queue.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from scheduler.core.plural import count
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.forecasts import Futures, StartForecast, WhyNot, crude
from scheduler.explain.whatif.memory import DAY_S

LONG = 4_000  # jobs that wait, from which on only the front of each line is followed
FRONT = 1_000  # jobs of it


def near(whole: Futures, also: Collection[str] = ()) -> Futures:
    """Return futures of one day, of all running jobs, the first 1,000 of each queue and `also`.

    Where at most 4,000 jobs wait, `whole` is returned unchanged.
    """
    core = whole.core
    if len(core.jobs) - len(core.cluster.runs) <= LONG:
        return whole
    kept = {*core.cluster.runs, *also}
    for queue in core.queues.values():
        kept.update(queued.job.job_id for queued in islice(queue, FRONT))
    return Futures(
        core.restricted_to(kept),
        whole.memory,
        whole.now,
        seed=whole.seed,
        horizon_s=DAY_S,
        whole=core,
    )


def place_of(futures: Futures, queued: QueuedJob) -> int:
    """Return the position of a job in its queue, with its present or changed request."""
    queue = futures.whole.queues[queued.job.vc]
    own = futures.whole.jobs.get(queued.job.job_id)
    return queue.position(queued) - (own is not None and own in queue and own < queued)


def is_behind(futures: Futures, queued: QueuedJob) -> bool:
    """Return whether a job is so far behind in its queue that some jobs ahead of it are not
    simulated."""
    return futures.whole is not futures.core and place_of(futures, queued) > FRONT


def by_work(futures: Futures, *asked: QueuedJob) -> list[StartForecast]:
    """Return a crude start forecast (work ahead over GPUs) for each given job: that of the job
    which now has its position in the whole queue. Where no job waits there, the forecast has no
    start."""
    rough, found = crude(futures.whole, futures.memory, futures.now), []
    for queued in asked:
        queue, made = futures.whole.queues[queued.job.vc], None
        if len(queue):
            there = queue[min(queue.position(queued), len(queue)) - 1]
            made = rough[there.job.job_id]
        found.append(made or StartForecast(futures.now, why_not=WhyNot.NO_TIME))
    return found


def left_out(futures: Futures) -> tuple[str, ...]:
    """Return a note that figures rest on the front of each queue only; () where all jobs are
    simulated."""
    if futures.whole is futures.core:
        return ()
    waiting = len(futures.whole.jobs) - len(futures.whole.cluster.runs)
    return (
        f"{count(waiting, 'job')} wait, of which the first {FRONT:,} in each line "
        "were followed, and for a day",
    )


def by_work_alone(futures: Futures) -> tuple[str, ...]:
    """Return a note that the start of a job behind the front was estimated from the work ahead of
    it."""
    waiting = len(futures.whole.jobs) - len(futures.whole.cluster.runs)
    return (
        f"{count(waiting, 'job')} wait, too many to follow: "
        "the start is estimated from the work ahead of it",
    )
