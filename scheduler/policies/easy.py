"""EASY backfill, as batch systems run it: arrival order, a reservation for the head of the line.

Jobs behind the head may start when they do not delay it by what their time limits promise
(Lifka, JSSPP 1995; Mu'alem and Feitelson, TPDS 2001). This is how Slurm's backfill treats the
first job it cannot start; a job without a limit is taken to run for `default_limit_s`.
"""

from __future__ import annotations

from scheduler.core.cluster import Placement, Run
from scheduler.core.core import QueuedJob, Turn
from scheduler.core.decisions import Reason
from scheduler.core.policy import Policy
from scheduler.policies.pellucid.reservation import choose

DAY_S = 86_400.0


class Easy(Policy):
    """EASY backfill by time limits.

    Args:
        default_limit_s: limit of a job that has none, seconds.
    """

    name = "easy"

    def __init__(self, default_limit_s: float = 7 * DAY_S):
        self.default_limit_s = default_limit_s

    def serve(self, turn: Turn) -> None:
        held: Placement | None = None
        head, shadow_s = "", 0.0  # the job the reservation is for, and when it may start
        for queued in list(turn.queue):
            job = queued.job
            placement = turn.pool.place(job.gpus)
            if held is not None and placement is None and self._limit(queued) <= shadow_s:
                # it is over before the head could start anyway: held GPUs will do
                turn.pool.let_go(held)
                placement = turn.pool.place(job.gpus)
                if placement is not None:
                    turn.start(queued, placement)
                turn.pool.hold(held)
                if placement is not None:
                    continue
            if placement is not None:
                turn.start(queued, placement)
            elif held is None:
                turn.wait(queued, turn.capacity_reason(queued))
                runs = turn.runs()
                chosen = choose(turn.pool, job.gpus, runs, lambda run: self._left(run, turn.now))
                if chosen is None:
                    continue  # it will not fit however long it waits for those that run
                shadow_s = self._free_in(chosen, runs, turn.now)
                held, head = self._spared(turn, chosen, runs, shadow_s), job.job_id
                turn.pool.hold(held)
            else:
                turn.wait(queued, self._reason(turn, queued), blocker=head)
        if held is not None:
            turn.pool.let_go(held)

    def _limit(self, queued: QueuedJob) -> float:
        return queued.job.time_limit_s or self.default_limit_s

    def _left(self, run: Run, now: float) -> float:
        limit = run.job.time_limit_s or self.default_limit_s
        return max(0.0, run.start_time + limit - now)

    def _free_in(self, placement: Placement, runs: list[Run], now: float) -> float:
        """Seconds until the runs on a placement are over, by their limits."""
        wanted = dict(placement)
        return max(
            (
                self._left(run, now)
                for run in runs
                for node, mask in zip(run.nodes, run.gpus, strict=True)
                if wanted.get(node, 0) & mask
            ),
            default=0.0,
        )

    def _spared(
        self, turn: Turn, placement: Placement, runs: list[Run], shadow_s: float
    ) -> Placement:
        """As many GPUs of the same nodes, but of those free in time the ones that are free last.

        What is free now is then left to those behind.
        """
        spared: Placement = []
        for node, mask in placement:
            parts = [(0.0, turn.pool.open_on(node))]
            parts += [
                (self._left(run, turn.now), gpus)
                for run in runs
                for where, gpus in zip(run.nodes, run.gpus, strict=True)
                if where == node
            ]
            left, taken = mask.bit_count(), 0
            for _, gpus in sorted((p for p in parts if p[0] <= shadow_s), reverse=True):
                free = gpus & ~taken
                while free and left:
                    low = free & -free
                    taken, free, left = taken | low, free ^ low, left - 1
            spared.append((node, taken))
        return spared

    def _reason(self, turn: Turn, queued: QueuedJob) -> Reason:
        fits = turn.capacity_reason(queued) is Reason.GPUS_FRAGMENTED
        return Reason.WOULD_DELAY_FIRST if fits else Reason.GPUS_BUSY
