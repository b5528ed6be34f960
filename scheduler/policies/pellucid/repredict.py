"""When waiting jobs are predicted again.

Where a queue is deep its jobs were predicted long ago: of a burst submitted at one instant, before
anything was known of such jobs. So a virtual cluster whose queue holds more predicted work than it
does in a period has its jobs predicted again once in that period.

All at once: jobs predicted at different moments take each other's places by what happened in
between. And what a user submitted later says nothing of a job that has waited since before: a
retry that failed in seconds makes the long job that was sent for the night look short. So a job is
asked about only while no job has ended that its user submitted more than a period after it.
"""

from __future__ import annotations

from math import inf

from features.job import Job
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.reservation import is_starving

# A prediction within this ratio of the one before is the same one.
SAME = 1.03


class Repredict:
    """Which jobs are predicted again, and when.

    Args:
        period_s: 0: never.
    """

    def __init__(self, period_s: float):
        self.period_s = period_s
        self._last: dict[str, float] = {}  # by virtual cluster: when its jobs were predicted last
        self._newest: dict[str, float] = {}  # by user: the latest submission that has ended

    def take_over(self, other: Repredict) -> None:
        """Know what another knew."""
        self._last, self._newest = other._last, other._newest

    def ended(self, job: Job) -> None:
        """A job ended: the estimator has learned from it."""
        if job.user:  # nobody knows what is whose: jobs without a user are not all of one
            self._newest[job.user] = max(job.submit_time, self._newest.get(job.user, -inf))

    def due(self, turn: Turn) -> list[QueuedJob]:
        """The jobs of this virtual cluster that are to be predicted again now."""
        if not self.period_s:
            return []
        if turn.now - self._last.setdefault(turn.vc, turn.now) < self.period_s:
            return []
        self._last[turn.vc] = turn.now
        work = sum((queued.estimate_s or 0.0) * queued.job.gpus for queued in turn.queue)
        if work < self.period_s * turn.pool.gpus:
            return []
        return [queued for queued in turn.queue if not is_starving(queued) and self._apply(queued)]

    def _apply(self, queued: QueuedJob) -> bool:
        """Whether what ended since applies to a job; always, where users are unknown."""
        newest = self._newest.get(queued.job.user, -inf)
        return newest <= queued.submit_time + self.period_s
