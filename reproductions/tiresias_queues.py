"""Discretised two-dimensional least attained service: the queues of Tiresias (NSDI'19).

Attained service is the time that a job has run times its GPUs. A job starts in the first queue and
falls to the next each time its service reaches the limit of its queue. A job that has waited very
long may be promoted to the first queue again. Within a queue jobs keep their order.

There is no clock here: the caller passes the time, and which jobs run.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import floor

# GPU-seconds; of the published simulator.
LIMITS = (3250.0, 7200.0)


@dataclass(slots=True)
class Standing:
    """The state of one job in the queues.

    Attributes:
        job_id: id of the job.
        gpus: GPUs that the job asks for.
        submit_time: when the job was submitted, in seconds.
        queue: number of its queue; queue 0 is served first.
        ran_s: seconds it has run since it was submitted, or last promoted.
        waited_s: seconds it has waited since then, counted from its first run.
        running: whether it holds GPUs.
        promotions: how often it was moved back to the first queue.
    """

    job_id: str
    gpus: int
    submit_time: float
    queue: int = 0
    ran_s: float = 0.0
    waited_s: float = 0.0
    running: bool = False
    promotions: int = 0


class LeastAttained:
    """Queues of jobs by attained service.

    Args:
        limits: for each queue but the last, the service in GPU-seconds at which a job leaves it.
        by_gpus: whether service is GPU-seconds; if false, it is seconds.
        promote: a job that has waited `promote` times as long as it ran goes back to the first
            queue, and its service is reset to 0; None: never.
        running_first: each time that the running jobs are set, they go to the head of their queue.
        published_jumps: wake for a demotion at the time that the published simulator computes,
            which forgets to multiply a job's running time by its GPUs; the published figures depend
            on it.
    """

    def __init__(
        self,
        limits: Sequence[float] = LIMITS,
        *,
        by_gpus: bool = True,
        promote: float | None = None,
        running_first: bool = True,
        published_jumps: bool = False,
    ):
        self.limits = tuple(limits)
        self.by_gpus = by_gpus
        self.promote = promote
        self.running_first = running_first
        self.published_jumps = published_jumps
        self._jobs: dict[str, Standing] = {}  # in order of arrival
        self._queues: list[list[Standing]] = [[] for _ in range(len(self.limits) + 1)]
        self.promotions = 0  # in all
        self._now = 0.0

    def __getitem__(self, job_id: str) -> Standing:
        return self._jobs[job_id]

    def join(self, job_id: str, gpus: int, submit_time: float) -> None:
        """Put a job at the tail of the first queue."""
        self._jobs[job_id] = job = Standing(job_id, gpus, submit_time)
        self._queues[0].append(job)

    def leave(self, job_id: str) -> None:
        """Remove a job that ended."""
        job = self._jobs.pop(job_id)
        self._queues[job.queue].remove(job)

    def attained(self, job: Standing) -> float:
        """Return the service of a job: GPU-seconds, or seconds where `by_gpus` is false."""
        return job.ran_s * (job.gpus if self.by_gpus else 1)

    def advance(self, now: float) -> None:
        """Add the time since the last call to all jobs' sums, then demote (by one queue at most)
        and promote jobs.
        """
        passed, self._now = now - self._now, now
        for job in self._jobs.values():
            if job.running:
                job.ran_s += passed
                if job.queue < len(self.limits) and self.attained(job) >= self.limits[job.queue]:
                    self._move(job, job.queue + 1)
            elif job.ran_s > 0:
                job.waited_s += passed
                if self._starves(job):
                    job.ran_s = job.waited_s = 0.0
                    job.promotions += 1
                    self.promotions += 1
                    self._move(job, 0)

    def line(self) -> list[Standing]:
        """Return all jobs in the order in which they are to be served."""
        return [job for queue in self._queues for job in queue]

    def run(self, job_ids: Container[str]) -> None:
        """Mark these jobs as running from now on, and all others as waiting."""
        for job in self._jobs.values():
            job.running = job.job_id in job_ids
        if self.running_first:
            for queue in self._queues:
                queue.sort(key=lambda job: not job.running)

    def next_jump(self) -> float | None:
        """Return the time at which the next job changes its queue if the same jobs keep running;
        None if no job will.
        """
        times = [t for job in self._jobs.values() if (t := self._jump(job)) is not None]
        return min(times, default=None)

    def _starves(self, job: Standing) -> bool:
        """Return whether a job in a later queue has waited `promote` times as long as it ran."""
        return (
            self.promote is not None and job.queue > 0 and job.waited_s >= self.promote * job.ran_s
        )

    def _move(self, job: Standing, queue: int) -> None:
        self._queues[job.queue].remove(job)
        job.queue = queue
        self._queues[queue].append(job)

    def _jump(self, job: Standing) -> float | None:
        if job.running and job.queue < len(self.limits):
            limit, gpus = self.limits[job.queue], job.gpus if self.by_gpus else 1
            if self.published_jumps:
                return self._now + floor((limit - job.ran_s) / gpus)
            return self._now + max(limit - self.attained(job), 0.0) / gpus
        if not job.running and job.queue > 0 and self.promote is not None and job.ran_s > 0:
            left = self.promote * job.ran_s - job.waited_s
            return self._now + left if left > 0 else None
        return None
