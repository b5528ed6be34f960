"""Quasi-shortest-service first (Helios, SC'21): predicted GPU-time, smallest first."""

from __future__ import annotations

from scheduler.core.core import QueuedJob, Turn
from scheduler.core.policy import Policy, in_order


class Qssf(Policy):
    """Predicted duration x GPUs orders the queue; the head blocks the rest.

    Args:
        gpu_count_first: order jobs that meet an empty queue by GPU count alone, and give them
            their predicted key only once they have to wait (a quirk of the published simulator).
    """

    name = "qssf"
    estimates = True

    def __init__(self, *, gpu_count_first: bool = False):
        self.gpu_count_first = gpu_count_first

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.estimate_s is not None
        return queued.estimate_s * queued.job.gpus

    def serve(self, turn: Turn) -> None:
        if self.gpu_count_first and len(turn.queue) == len(turn.queue.fresh):
            waiting = list(turn.queue)
            for queued in waiting:
                queued.key = float(queued.job.gpus)
            turn.queue.replace(waiting)
            in_order(turn)
            left = list(turn.queue)
            for queued in left:
                queued.key = self.key(queued, turn.now)
            turn.queue.replace(left)
        else:
            in_order(turn)
