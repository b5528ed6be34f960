"""Lucid (ASPLOS'23): profile first, order by predicted GPU-time, pack indolently by sharing score.

Known defects of its artifact are not copied; those its published figures need are `Quirks`.
"""

from __future__ import annotations

from math import floor

from models.bundle import Bundle
from scheduler.core.arrivals import BIN_S, Forecast
from scheduler.core.cluster import GPU_SHARING_CAPACITY, Run
from scheduler.core.core import QueuedJob, Turn
from scheduler.core.decisions import Reason
from scheduler.core.estimates import Estimator
from scheduler.core.pairs import Judge, Verdict, judge_of
from scheduler.core.policy import Policy, in_order


class Lucid(Policy):
    """Lucid.

    Args:
        judge: beliefs about pairs; None never packs.
        forecast: arrivals; packing is off while few are expected. None packs always.
        quiet_jobs: packing is off at or below this many jobs per ten minutes.
        sharing_limit: two jobs may share when their sharing scores sum to at most this.
        priority_factor: a newcomer's priority may be at most this times its partner's.
        gpu_memory_mib: the members' memory must sum to less than this (a rule, not a prediction).
        max_gpus: larger jobs never share.
        first_partner: take the oldest acceptable partner instead of the fastest pair.
    """

    name = "lucid"
    profiles = True
    packs = True
    estimates = True

    def __init__(
        self,
        judge: Judge | None = None,
        forecast: Forecast | None = None,
        *,
        quiet_jobs: float = 2.0,
        sharing_limit: int = 2,
        priority_factor: float = 2.0,
        gpu_memory_mib: float = 24_576.0,
        max_gpus: int = 8,
        first_partner: bool = False,
    ):
        self.judge = judge
        self.forecast = forecast
        self.quiet_jobs = quiet_jobs
        self.sharing_limit = sharing_limit
        self.priority_factor = priority_factor
        self.gpu_memory_mib = gpu_memory_mib
        self.max_gpus = max_gpus
        self.first_partner = first_partner

    def prepare(self, queued: QueuedJob, now: float, estimator: Estimator) -> None:
        super().prepare(queued, now, estimator)
        if self.forecast is not None:
            self.forecast.submitted(queued.job.gpus, now)

    def key(self, queued: QueuedJob, now: float) -> float:
        assert queued.estimate_s is not None
        return queued.estimate_s * queued.job.gpus

    def use(self, bundle: Bundle) -> None:
        self.judge = judge_of(bundle)

    def next_wake(self, now: float) -> float | None:
        """The mode can change at the next bin of the forecast."""
        return None if self.forecast is None else (floor(now / BIN_S) + 1) * BIN_S

    def packing_on(self, now: float) -> bool:
        """Throughput-driven mode: pack only when arrivals are expected."""
        return self.forecast is None or self.forecast.jobs(now) > self.quiet_jobs

    def serve(self, turn: Turn) -> None:
        if self.judge is None or not self.packing_on(turn.now):
            in_order(turn)
            return
        too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed during a turn
        for queued in list(turn.queue):
            gpus = queued.job.gpus
            guard: Reason | None = None
            if gpus <= self.max_gpus and not queued.job.share:
                guard = Reason.SHARING_OPTED_OUT if turn.alone(gpus) else None
            elif gpus <= self.max_gpus and queued.profile is not None:
                partner, guard = self._partner(turn, queued)
                if partner is not None:
                    turn.pack(queued, partner)
                    continue
            placement = None if gpus in too_many else turn.pool.place(gpus)
            if placement is not None:
                turn.start(queued, placement)
            else:
                too_many.add(gpus)
                turn.wait(queued, guard or turn.capacity_reason(queued))

    def _partner(self, turn: Turn, queued: QueuedJob) -> tuple[Run | None, Reason | None]:
        """The partner for a job, or the guard that stood in the way of every candidate."""
        best: tuple[float, Run, Verdict] | None = None
        guard: Reason | None = None
        assert self.judge is not None
        assert queued.profile is not None
        for run in turn.alone(queued.job.gpus):
            other = turn.known(run)
            if other.profile is None or queued.key > self.priority_factor * other.key:
                continue
            memory = queued.profile.gpu_mem_mib + other.profile.gpu_mem_mib
            if memory >= self.gpu_memory_mib:
                guard = Reason.MEMORY_GUARD
                continue
            verdict = self.judge.verdict(queued, other)
            if verdict is None or sum(verdict.scores) > self.sharing_limit:
                guard = guard or Reason.INTERFERENCE_GUARD
                continue
            speed = sum(verdict.speeds) if verdict.speeds else float(GPU_SHARING_CAPACITY)
            if best is None or speed > best[0]:
                best = speed, run, verdict
                if self.first_partner:
                    break
        if best is None:
            return None, guard
        queued.verdict = best[2]
        return best[1], None
