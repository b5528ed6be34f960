"""Quasi-shortest-service first (Helios, SC'21): predicted GPU-time, smallest first."""

from __future__ import annotations

from scheduler.core.capabilities import Capabilities
from scheduler.core.policy import Policy, in_order
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn


class Qssf(Policy):
    """Orders the queue by predicted duration x GPUs. The first job that does not fit blocks the
    rest.

    With `gpu_count_first`, a quirk of the published simulator is copied: jobs that meet an empty
    queue are ordered by GPU count alone, and get their predicted key only once they have to wait.
    """

    name = "qssf"
    capabilities = Capabilities(estimates=True)

    gpu_count_first = False  # the quirk above

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.predicted_s is not None
        return queued.predicted_s * queued.job.gpus

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
