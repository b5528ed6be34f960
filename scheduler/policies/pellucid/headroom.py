"""Head-room: GPUs kept free for bursts, at the cost of everybody else's wait.

A virtual cluster is filled up to `target` of its GPUs; what is left is for jobs that give it back
soon (of those predicted like them nine in ten end within `short_s`), for jobs past their bound and
for urgent ones. A job that finds the virtual cluster empty starts whatever its size. Sharing takes
no free GPU and goes on. Off (1.0) unless an operator wants it: `docs/policy.md` has the price.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.core import QueuedJob, Turn
from scheduler.core.durations import Outlook


class HeadRoom:
    """Who may have the last GPUs of a virtual cluster.

    Args:
        target: share of the GPUs that anybody may have, in (0, 1].
        short_s, level: a job is short when it ends within `short_s` with chance `level`.
    """

    def __init__(
        self, outlook: Outlook, target: float = 1.0, *, short_s: float = 3600.0, level: float = 0.9
    ):
        if not 0 < target <= 1:
            raise ValueError(f"headroom is {target:g}; it must be above 0 and at most 1")
        self.target = target
        self.short_s = short_s
        self.level = level
        self._outlook = outlook

    def allows(self, turn: Turn, queued: QueuedJob, late: Callable[[QueuedJob], bool]) -> bool:
        """Whether a job may be given free GPUs of its virtual cluster now."""
        if self.target >= 1:
            return True
        pool = turn.pool
        used = pool.gpus - pool.free
        if not used or used + queued.job.gpus <= self.target * pool.gpus:
            return True
        assert queued.estimate_s is not None
        return (
            late(queued)
            or queued.priority > 0
            or self._outlook.quantile_s(queued.estimate_s, self.level) <= self.short_s
        )
