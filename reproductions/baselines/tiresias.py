"""Tiresias (NSDI'19), discretised two-dimensional least attained service: a preemptive policy for
comparison.

It needs no prediction. Jobs that have had little GPU-time go first. A job that has had more than
the threshold loses its GPUs when others wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Annotated, Any

from pydantic import Field

from reproductions.baselines.quota import by_quota
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import ClusterSpec, Run
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, Learned, Policy, Predictors
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import PolicySettings, setting
from scheduler.core.turn import Turn


class TiresiasSettings(PolicySettings):
    """Settings of `tiresias`."""

    round_s: float = setting(
        60.0,
        "time between two rounds of decisions; in between, no job is started or stopped",
        unit="s",
        gt=0,
    )
    thresholds: Annotated[tuple[float, ...], Field(strict=False)] = setting(
        (18_000.0,),
        "GPU-time used, at which a job falls from each queue to the next lower one",
        unit="GPU-s",
    )


@dataclass(slots=True, kw_only=True)
class TiresiasMemory:
    """The state of the policy `tiresias` for saving: the GPU-seconds that each job had before it
    was last stopped.
    """

    attained: dict[str, float]


class TiresiasLearned(Learned):
    """What `tiresias` keeps between its turns (calls of the policy for one virtual cluster)."""

    Memory = TiresiasMemory

    def __init__(self, policy: Tiresias):
        self._policy = policy

    def follow(self, turn: Turn, d: Decision) -> None:
        run = turn.cluster.runs.get(d.job_id)
        if d.action is Action.PREEMPT and run is not None:
            self._policy.attained[d.job_id] = self._policy.had(run, turn.now)

    def remember(self) -> TiresiasMemory:
        return TiresiasMemory(attained=dict(self._policy.attained))

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        assert isinstance(memory, TiresiasMemory)
        self._policy.attained = dict(memory.attained)


class Tiresias(Policy):
    """A policy with queues by attained GPU-time, first come, first served within each queue. It
    decides in rounds.
    """

    Settings = TiresiasSettings
    settings: TiresiasSettings
    name = "tiresias"
    capabilities = Capabilities(preemptive=True)

    def __init__(
        self,
        settings: TiresiasSettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = settings or TiresiasSettings()
        self.round_s = self.settings.round_s
        self.thresholds = self.settings.thresholds
        self.learned = TiresiasLearned(self)
        self.attained: dict[str, float] = {}  # GPU-seconds of earlier stints, by job

    def key(self, queued: QueuedJob, now: float) -> float:
        return self._rank(self.attained.get(queued.job.job_id, 0.0), queued)

    def ended(self, run: Run, now: float) -> None:
        self.attained.pop(run.job.job_id, None)

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        if isinstance(before, Tiresias):
            self.attained = before.attained
        for queued in jobs:
            queued.key = self.key(queued, now)
        return True

    def next_wake(self, now: float) -> float | None:
        return (floor(now / self.round_s) + 1) * self.round_s

    def serve(self, turn: Turn) -> None:
        if turn.now % self.round_s:
            for queued in turn.queue.fresh:
                turn.wait(queued, Reason.NEXT_ROUND)
            return
        # everybody in one line; a running job keeps its place among those that came later
        line: list[tuple[float, int, Run | QueuedJob]] = [(q.key, q.seq, q) for q in turn.queue]
        for run in turn.runs():
            queued = turn.known(run)
            line.append((self._rank(self.had(run, turn.now), queued), queued.seq, run))
        line.sort(key=lambda item: item[:2])

        def stop(run: Run, blocker: str | None) -> None:
            self.attained[run.job.job_id] = had = self.had(run, turn.now)
            key = self._rank(had, turn.known(run))
            turn.preempt(run, key, blocker=blocker, reason=Reason.MORE_SERVICE_ATTAINED)

        by_quota(turn, (item for _, _, item in line), stop)

    def had(self, run: Run, now: float) -> float:
        """Return the GPU-seconds that a running job has received so far."""
        return self.attained.get(run.job.job_id, 0.0) + run.job.gpus * (now - run.start_time)

    def _rank(self, attained: float, queued: QueuedJob) -> float:
        """Return a number to sort by: the queue that `attained` GPU-seconds lead to, then the time
        of submission.
        """
        return bisect_left(self.thresholds, attained) * FAR + queued.submit_time


FAR = 1e11  # seconds; further apart than any two submissions
