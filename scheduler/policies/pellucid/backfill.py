"""Backfill: jobs that run on reserved GPUs until the job for which these are reserved (the holder)
can start.

A job of many GPUs that has waited beyond its bound may wait days for the last of them, while the
others stand idle. Until then, jobs that are likely to end in time may use the idle ones, as long as
`StarvationBound.overdue` returns False. After that no other job may start on them, whatever is
predicted.
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
    """The jobs that may run on reserved GPUs in one turn (one round of decisions on a queue).

    Args:
        kept: the reserved GPUs.
        before: the runs that already ran when the GPUs were reserved: the holder waits for their
            end.
        left_s: function that returns the predicted seconds until the GPUs of a run are free.
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
        """Return whether a job is likely to have ended before the reserved GPUs would all be free
        for the job for which they are reserved. Return False for a number of GPUs that did not fit
        earlier in this turn."""
        if queued.job.gpus in self._too_many:
            return False
        assert queued.estimate_s is not None
        if self._likely_s(queued.estimate_s, queued.outlived_s) <= self._within_s:
            return True
        return 0.0 < (queued.job.time_limit_s or 0.0) <= self._within_s

    def has_room(self, gpus: int) -> bool:
        """Return whether there is room for a job of `gpus` GPUs if reserved GPUs may be used."""
        return gpus not in self._too_many and self._place(gpus) is not None

    def start(self, queued: QueuedJob) -> bool:
        """Start a job on free and reserved GPUs, where it fits and is likely to end in time. Return
        whether it was started."""
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
    """Return whether a run has any of the GPUs in `masks`, which maps nodes to bit masks."""
    return any(masks.get(n, 0) & gpus for n, gpus in zip(run.nodes, run.gpus, strict=True))
