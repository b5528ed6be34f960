"""One stop for jobs that can bear it: checkpointed, put back in the queue, started again later.

Optional and off by default. A prediction is least sure of what matters most, whether a job is one
of the few that run for days; letting it run for a while tells. A job whose owner declared it
resumable may be stopped once in its life: when it has run `after_s`, holds its GPUs alone, and a
waiting job that has less left to do would start in its place. It pays what its owner said that a
checkpoint costs. Nobody else is ever stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from scheduler.core.cluster import Pool, Run
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn


@dataclass(slots=True)
class Swap:
    """A run to stop, what it is expected to have left (s), and the job to start in its place."""

    run: Run
    left_s: float
    queued: QueuedJob


class CheckpointPreemption:
    """Runs that may be stopped, from when on, and what stopped jobs ran before.

    Args:
        after_s: seconds a job runs undisturbed first.
    """

    def __init__(self, after_s: float):
        self.after_s = after_s
        self._running: dict[str, tuple[Run, float]] = {}
        self._times: list[tuple[float, int]] = []
        self._ran: dict[str, float] = {}

    def began(self, run: Run, now: float) -> None:
        """A job has GPUs. One that was stopped before runs to its end."""
        job = run.job
        if job.resumable and job.job_id not in self._ran:
            self._running[job.job_id] = run, now + self.after_s
            heappush(self._times, (now + self.after_s, run.order))

    def stopped(self, run: Run, now: float) -> None:
        """A run was stopped."""
        del self._running[run.job.job_id]
        self._ran[run.job.job_id] = now - run.start_time

    def over(self, job_id: str) -> float:
        """A job is over. Returns what it ran before it was stopped, seconds."""
        self._running.pop(job_id, None)
        return self._ran.pop(job_id, 0.0)

    def next(self, now: float) -> float | None:
        """When the next run may first be stopped; those of jobs that ended are included."""
        while self._times and self._times[0][0] <= now:
            heappop(self._times)
        return self._times[0][0] if self._times else None

    def swap(
        self,
        turn: Turn,
        runs: Iterable[Run],
        left_s: Callable[[Run], float],
        key: Callable[[QueuedJob, float, float], float],
    ) -> Swap | None:
        """The first waiting job that a run should make room for, and that run.

        A run goes when its key, were it waiting, would be the highest of those that hold no more
        GPUs than the waiting job needs, and above that of the waiting job by its checkpoint.

        Args:
            left_s: expected seconds left of a run.
            key: of a job by what it has left and what it has run, both in seconds.
        """
        standing = []
        for run in self._stoppable(turn, runs):
            left = left_s(run)
            ran = turn.now - run.start_time
            standing.append((key(turn.known(run), left, ran), -run.order, left, run))
        standing.sort(key=lambda item: item[:2], reverse=True)
        tried: set[int] = set()  # GPU counts: what one job cannot have, a later one cannot
        for queued in turn.queue if standing else ():
            gpus = queued.job.gpus
            if gpus in tried:
                continue
            tried.add(gpus)
            for other, _, left, run in standing:
                if queued.key + run.job.checkpoint_s >= other:
                    break
                if run.job.gpus <= gpus and _makes_room(turn.pool, run, gpus):
                    return Swap(run, left, queued)
        return None

    def _stoppable(self, turn: Turn, runs: Iterable[Run]) -> list[Run]:
        """Runs that may be stopped now, wholly on GPUs of this virtual cluster."""
        found = []
        for run in runs:
            known = self._running.get(run.job.job_id)
            if (
                known is not None
                and known[1] <= turn.now
                and run.partner is None
                and all(node in turn.pool for node in run.nodes)
                and not turn.is_held(run)
            ):
                found.append(run)
        return found


def _makes_room(pool: Pool, run: Run, gpus: int) -> bool:
    """Whether a job would find room if a run, all of it in this pool, gave up its GPUs."""
    pool.give(run.nodes, run.gpus)
    found = pool.place(gpus) is not None
    pool.take(list(zip(run.nodes, run.gpus, strict=True)))
    return found
