"""Backfill: jobs that run on reserved GPUs until the job that these are kept for can start.

A wide job past its bound may wait days for the last of its GPUs, and those that stand idle for it
until then help nobody. They go to jobs that are likely to be gone in time, for as long as
`StarvationBound.overdue` has not come. From then on no prediction matters: they go to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from scheduler.core.cluster import Placement, Run
from scheduler.core.decisions import Reason
from scheduler.core.durations import DurationDistribution
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn

QUANTILE = 0.9  # of its predicted duration, in which a job has to be gone


class Backfill:
    """What may run on reserved GPUs in one turn.

    Args:
        kept: the reserved GPUs.
        before: the runs that were there when they were reserved: what the holder waits for.
        left_s: predicted seconds until the GPUs of a run are free.
    """

    def __init__(
        self,
        turn: Turn,
        kept: Placement,
        before: Iterable[Run],
        left_s: Callable[[Run], float],
        distribution: DurationDistribution,
    ):
        self._turn = turn
        self._kept = kept
        self._likely_s = distribution.quantile_at(QUANTILE)
        self._too_many: set[int] = set()  # GPU counts that did not fit
        masks = dict(kept)
        there = (run for run in before if _is_on(masks, run))
        self._within_s = max((left_s(run) for run in there), default=0.0)

    def admits(self, queued: QueuedJob) -> bool:
        """Return whether a job is likely to have ended before the holder can have the GPUs."""
        if queued.job.gpus in self._too_many:
            return False
        assert queued.estimate_s is not None
        if self._likely_s(queued.estimate_s, queued.outlived_s) <= self._within_s:
            return True
        return 0.0 < (queued.job.time_limit_s or 0.0) <= self._within_s

    def has_room(self, gpus: int) -> bool:
        """Return whether `gpus` GPUs can be placed if reserved GPUs may be used."""
        return gpus not in self._too_many and self._place(gpus) is not None

    def start(self, queued: QueuedJob) -> bool:
        """Start a job with the help of reserved GPUs, where it fits. Return whether it was
        started.
        """
        if not self.admits(queued):
            return False
        placement = self._place(queued.job.gpus)
        if placement is None:
            return False
        self._turn.pool.unreserve(self._kept)
        self._turn.start(queued, placement, Reason.BACKFILLED)
        self._turn.pool.reserve(self._kept)
        return True

    def _place(self, gpus: int) -> Placement | None:
        pool = self._turn.pool
        pool.unreserve(self._kept)
        placement = pool.place(gpus)
        pool.reserve(self._kept)
        if placement is None:
            self._too_many.add(gpus)
        return placement


def _is_on(masks: Mapping[int, int], run: Run) -> bool:
    """Return whether a run has any of these GPUs, bit masks by node."""
    return any(masks.get(n, 0) & gpus for n, gpus in zip(run.nodes, run.gpus, strict=True))
