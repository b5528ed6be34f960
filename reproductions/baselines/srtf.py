"""Shortest remaining time first, preemptive, by true remaining work. It is only for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge

from reproductions.baselines.quota import by_quota
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import Run
from scheduler.core.policy import (
    Policy,
    preemption_cost_s,
    skipping,
)
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn


class Srtf(Policy):
    """A policy that ranks jobs by remaining work; the first in rank get the virtual cluster's GPUs.

    A running job that gets none is stopped; a waiting job that gets some starts if it can be
    placed. Between two events running jobs only rise in rank, so no wake-up is needed.
    """

    name = "srtf"
    capabilities = Capabilities(preemptive=True, oracle=True, estimates=True)

    ties_preempt = False  # a defect of the published one: equals displace those that run

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.predicted_s is not None
        return queued.predicted_s

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        return True  # keys stay: of a job that was stopped, what was left of it then

    def serve(self, turn: Turn) -> None:
        queue, runs = turn.queue, turn.runs()
        if sum(q.job.gpus for q in queue) + sum(r.job.gpus for r in runs) <= turn.pool.gpus:
            skipping(turn)
            return
        remaining, now = turn.oracle.remaining_s, turn.now
        running: list[tuple[float, int, Run | QueuedJob]] = sorted(
            ((remaining(r.job.job_id, now), r.order, r) for r in runs), key=_rank
        )
        waiting: list[tuple[float, int, Run | QueuedJob]] = [(q.key, q.seq, q) for q in queue]
        first, second = (waiting, running) if self.ties_preempt else (running, waiting)
        line = (item for _, _, item in merge(first, second, key=_rank))

        def stop(run: Run, blocker: str | None) -> None:
            left = remaining(run.job.job_id, now)
            turn.preempt(run, left + preemption_cost_s(run.job.gpus), blocker=blocker)

        by_quota(turn, line, stop)


def _rank(item: tuple[float, int, Run | QueuedJob]) -> float:
    return item[0]
