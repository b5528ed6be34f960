"""EASY backfill, as batch systems run it: arrival order, with a reservation for the head of the
queue.

Jobs behind the head may start if, by their time limits, they do not delay it (Lifka, JSSPP 1995;
Mu'alem and Feitelson, TPDS 2001). Slurm's backfill treats the first job that it cannot start in
this way.

Backfill needs a latest end for each job. A job without a limit is expected to run for
`default_limit_s`, where that is set. Otherwise it is expected to run for the mean of its user's
last two durations and, once it has run longer, for twice as long as it has run (Tsafrir, Etsion and
Feitelson, "Backfilling using system-generated predictions rather than user runtime estimates", TPDS
2007). A fixed bound that most jobs keep would be days long, and with it no job is backfilled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from features.job import Job
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import ClusterSpec, Placement, Run
from scheduler.core.decisions import Reason
from scheduler.core.obstacles import Obstacle
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Learned, Policy, Predictors
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import PolicySettings, setting
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.reservation import choose

FIRST_S = 86_400.0  # of a user of whom no job has ended


class EasySettings(PolicySettings):
    """Settings of the policy `easy`."""

    default_limit_s: float | None = setting(
        None,
        "time limit assumed for a job that has none; null: predicted from how long its user's last "
        "two jobs ran",
        unit="s",
        gt=0,
    )


@dataclass(slots=True, kw_only=True)
class EasyMemory:
    """A plain record of how long the last two jobs of each user ran, seconds."""

    last_two: dict[str, tuple[float, float]]


class EasyLearned(Learned):
    """What the policy `easy` remembers between turns (rounds of decisions on a queue): its
    `EasyMemory`."""

    Memory = EasyMemory

    def __init__(self, policy: Easy):
        self._policy = policy

    def remember(self) -> EasyMemory:
        return EasyMemory(last_two=dict(self._policy.last_two))

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        assert isinstance(memory, EasyMemory)
        self._policy.last_two = dict(memory.last_two)


class Easy(Policy):
    """The policy `easy`: EASY backfill by time limits."""

    Settings = EasySettings
    name = "easy"
    capabilities = Capabilities(keeps_priorities=True, by_limits=True)

    def __init__(
        self,
        settings: EasySettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = settings or EasySettings()
        self.default_limit_s = self.settings.default_limit_s
        self.last_two: dict[str, tuple[float, float]] = {}  # seconds, by user
        self.learned = EasyLearned(self)

    def ended(self, run: Run, now: float) -> None:
        if not run.profiling:
            ran = now - run.start_time
            before = self.last_two.get(run.job.user)
            self.last_two[run.job.user] = (before[1] if before else ran, ran)

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        if isinstance(before, Easy):
            self.last_two = before.last_two
        return True

    def serve(self, turn: Turn) -> None:
        held: Placement | None = None
        head, shadow_s = "", 0.0  # the job the reservation is for, and when it may start
        for queued in list(turn.queue):
            job = queued.job
            placement = turn.pool.place(job.gpus)
            if held is not None and placement is None and self._limit(job) <= shadow_s:
                # it is over before the head could start anyway: held GPUs will do
                turn.pool.unreserve(held)
                placement = turn.pool.place(job.gpus)
                if placement is not None:
                    turn.start(queued, placement)
                turn.pool.reserve(held)
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
                turn.pool.reserve(held)
            else:
                turn.wait(queued, self._reason(turn, queued), blocker=head)
        if held is not None:
            turn.pool.unreserve(held)

    def _limit(self, job: Job) -> float:
        """Return the seconds that a job is expected to run: its time limit, else the default limit,
        else the mean of its user's last two durations, else a day."""
        stated = job.time_limit_s or self.default_limit_s
        return stated or sum(self.last_two.get(job.user, (FIRST_S, FIRST_S))) / 2

    def _left(self, run: Run, now: float) -> float:
        elapsed = now - run.start_time
        left = self._limit(run.job) - elapsed
        if left > 0:
            return left
        return 0.0 if run.job.time_limit_s or self.default_limit_s else elapsed

    def _free_in(self, placement: Placement, runs: list[Run], now: float) -> float:
        """Return the seconds until all runs on the GPUs of a placement have ended, as `_limit`
        expects; 0 where no job runs on them."""
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
        """Return a placement with as many GPUs on the same nodes as `placement`, chosen among those
        free within `shadow_s` seconds so that the last to become free are taken. GPUs that are free
        now are then left to the jobs behind."""
        spared: Placement = []
        for node, mask in placement:
            parts = [(0.0, turn.pool.open_on(node))]
            parts += [
                (self._left(run, turn.now), gpus)
                for run in runs
                for where, gpus in zip(run.nodes, run.gpus, strict=True)
                if where == node
            ]
            left, taken = mask.bit_count(), turn.pool.closed_on(node)
            for _, gpus in sorted((p for p in parts if p[0] <= shadow_s), reverse=True):
                free = gpus & ~taken
                while free and left:
                    low = free & -free
                    taken, free, left = taken | low, free ^ low, left - 1
            spared.append((node, taken & ~turn.pool.closed_on(node)))
        return spared

    def _reason(self, turn: Turn, queued: QueuedJob) -> Reason:
        obstacle = turn.obstacle(queued)
        return Reason.WOULD_DELAY_FIRST if obstacle is Obstacle.SCATTERED else obstacle.reason
