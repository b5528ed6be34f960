"""How many GPUs the jobs of a virtual cluster ask for, running or waiting, as if nobody shared.

What sharing saves is GPUs, and they are worth its cost only where they are missed. Free GPUs do not
tell: where much is shared many are free. What all the jobs ask for does, and does not move when a
pair is made or not made.
"""

from __future__ import annotations

from collections import Counter

from features.job import Job
from scheduler.core import Turn


class Demand:
    """Counts the jobs that have not ended.

    Args:
        pooled: virtual clusters use one another's GPUs; what counts is what all of them ask for.
    """

    def __init__(self, pooled: bool = False):
        self.pooled = pooled
        self._jobs: dict[str, tuple[str, int]] = {}  # virtual cluster, GPUs
        self._gpus: Counter[str] = Counter()

    def joins(self, job: Job) -> None:
        """A job joins its queue; one that comes back, or is another now, is counted once."""
        self.over(job.job_id)
        self._jobs[job.job_id] = job.vc, job.gpus
        self._gpus[job.vc] += job.gpus

    def over(self, job_id: str) -> None:
        """A job, if it was counted, is over."""
        vc, gpus = self._jobs.pop(job_id, ("", 0))
        self._gpus[vc] -= gpus

    def share(self, turn: Turn) -> float:
        """What is asked for where a job of this turn may run, in units of all GPUs there."""
        if self.pooled:
            return self._gpus.total() / max(turn.cluster.spec.gpus, 1)
        return self._gpus[turn.vc] / max(turn.pool.gpus, 1)
