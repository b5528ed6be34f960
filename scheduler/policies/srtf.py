"""Shortest remaining time first, preemptive, by true remaining work: a yardstick."""

from __future__ import annotations

from heapq import merge

from scheduler.cluster import Run
from scheduler.core import QueuedJob, Turn
from scheduler.decisions import Reason
from scheduler.policies.base import Policy, skipping
from scheduler.work import preemption_cost_s


class Srtf(Policy):
    """Jobs ranked by remaining work fill the virtual cluster's GPUs as a quota.

    Running jobs outside the quota are stopped; waiting ones inside start if they can be placed.
    Between two events running jobs only move up the ranking, so nothing needs doing then.
    """

    name = "srtf"
    preemptive = True
    oracle = True
    estimates = True

    def __init__(self, *, ties_preempt: bool = False):
        self.ties_preempt = ties_preempt

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.estimate_s is not None
        return queued.estimate_s

    def serve(self, turn: Turn) -> None:
        queue, quota = turn.queue, turn.pool.gpus
        runs = turn.runs()
        if sum(q.job.gpus for q in queue) + sum(r.job.gpus for r in runs) <= quota:
            skipping(turn)
            return
        remaining, now = turn.oracle.remaining_s, turn.now
        running: list[tuple[float, int, Run | QueuedJob]] = sorted(
            ((remaining(r.job.job_id, now), r.order, r) for r in runs), key=_rank
        )
        waiting: list[tuple[float, int, Run | QueuedJob]] = [(q.key, q.seq, q) for q in queue]
        inside: list[QueuedJob] = []
        outside: list[tuple[Run, float]] = []
        ahead: str | None = None  # the last job the quota went to
        first, second = (waiting, running) if self.ties_preempt else (running, waiting)
        for left, _, item in merge(first, second, key=_rank):
            fits = item.job.gpus <= quota
            if fits:
                quota -= item.job.gpus
                ahead = item.job.job_id
            if isinstance(item, QueuedJob):
                if fits:
                    inside.append(item)
                else:
                    turn.wait(item, Reason.BEHIND_HIGHER_PRIORITY, blocker=ahead)
            elif not fits:
                outside.append((item, left))
        blocker = inside[0].job.job_id if inside else None
        for run, left in outside:
            turn.preempt(run, left + preemption_cost_s(run.job.gpus), blocker=blocker)
        for queued in inside:
            placement = turn.pool.place(queued.job.gpus)
            if placement is None:
                turn.wait(queued, turn.capacity_reason(queued))
            else:
                turn.start(queued, placement)


def _rank(item: tuple[float, int, Run | QueuedJob]) -> float:
    return item[0]
