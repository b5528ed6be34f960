"""Profiling that takes no time from the jobs, as the published settings have it.

First, the profiling stage alone is simulated with all jobs. This shows which jobs end there and
when nodes are lent to it. The other jobs then enter their queues at their original submit time, as
if they had been profiled before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from features.job import Job, Profile
from models.bundle import Bundle
from scheduler.core.cluster import Cluster
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage, StageMemory
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Host, Turn
from scheduler.simulation.engine import Engine, JobResult
from scheduler.simulation.quirks import Quirks
from scheduler.simulation.work import PairTable, Workload


class _Nothing(Policy):
    """A policy that starts no job, and gives no reasons for waiting."""

    name = "nothing"

    def serve(self, turn: Turn) -> None:
        turn.queue.fresh.clear()


@dataclass(slots=True)
class FreeProfiling:
    """The result of simulating the profiling stage alone.

    Attributes:
        ended: results of the jobs that ended while being profiled.
        waited_s: seconds from submission to profiling, by job id.
        loans: when a virtual cluster lent a node for profiling or got it back, in order: (time,
            LEND or RETURN, virtual cluster).
        decisions: decisions that were made in this simulation.
        busy_gpu_s: GPU-seconds that jobs ran in it.
    """

    ended: dict[str, JobResult]
    waited_s: dict[str, float]
    loans: list[tuple[float, Action, str]]
    decisions: list[Decision]
    busy_gpu_s: float


def profile_all(
    workload: Workload, cluster: Callable[[], Cluster], stage: ProfilingStage, quirks: Quirks
) -> FreeProfiling:
    """Simulate the profiling stage alone, with every job of the workload. Return which jobs ended
    in it, how long jobs waited for it, and which nodes were lent.
    """
    decisions: list[Decision] = []
    core = Core(cluster(), _Nothing(), profiling=stage)
    outcome = Engine(
        core, workload.jobs, workload.work, PairTable({}), sink=decisions.extend, quirks=quirks
    ).run()
    submit = {job.job_id: job.submit_time for job in workload.jobs}
    return FreeProfiling(
        ended={r.job.job_id: r for r in outcome.jobs if r.ended_in_profiling},
        waited_s={
            d.job_id: d.time - submit[d.job_id] for d in decisions if d.action is Action.PROFILE
        },
        loans=[
            (d.time, d.action, d.vc) for d in decisions if d.action in (Action.LEND, Action.RETURN)
        ],
        decisions=decisions,
        busy_gpu_s=outcome.busy_gpu_s,
    )


class LoanSchedule:
    """Replaces the profiling stage in the simulation proper: only the stage's recorded loans of
    nodes take place.

    A loan is skipped when the lender has no idle node at that time.
    """

    limit_s = 0.0
    max_gpus = 0
    overlaps_waiting = False

    def __init__(self, loans: list[tuple[float, Action, str]], profiles: Mapping[str, Profile]):
        self._loans = list(reversed(loans))
        self._profiles = profiles
        self._lent: int | None = None

    def has_nodes(self, cluster: Cluster) -> bool:
        return cluster.profiling.gpus > 0

    def reclaim(self, core: Host, now: float) -> None:
        """Do nothing: nodes come back at their recorded times only."""

    def reclaims(self, d: Decision) -> bool:
        return False

    def skips(self, job: Job) -> Reason | None:
        return Reason.SUBMITTED

    def known_profile(self, job: Job) -> Profile | None:
        return self._profiles.get(job.job_id)

    def submitted(self, job: Job, now: float) -> None:
        """Do nothing: a schedule of loans learns nothing from submissions."""

    def learned(self, job: Job, profile: Profile, now: float) -> None:
        """Do nothing: a schedule of loans learns nothing from profiles."""

    def use(self, bundle: Bundle) -> None:
        """Do nothing: a schedule of loans uses no models."""

    def cluster_changed(self, cluster: Cluster) -> None:
        """Do nothing: the nodes of this simulation never change."""

    def add(self, queued: QueuedJob) -> None:
        raise ValueError("no job is profiled here")

    def remove(self, queued: QueuedJob) -> None:
        """Do nothing: no job waits to be profiled."""

    def before(self, queued: QueuedJob) -> list[str]:
        return []

    def restricted_to(self, kept: Collection[str]) -> LoanSchedule:
        return self

    def serve(self, core: Host, now: float) -> None:
        while self._loans and self._loans[-1][0] <= now:
            _, action, vc = self._loans.pop()
            if action is Action.LEND:
                self._lent = core.cluster.pools[vc].idle_node()
                if self._lent is not None:
                    core.cluster.lend(self._lent)
            elif self._lent is not None:
                core.cluster.give_back(self._lent)
                core.touch(vc)
                self._lent = None

    def follow(self, core: Host, d: Decision) -> None:
        """Do nothing: the loans are not among the decisions of a log."""

    def followed(self, core: Host, now: float) -> None:
        self.serve(core, now)

    def remember(self) -> StageMemory:
        """Raise NotImplementedError: the schedule cannot be saved, as it belongs to one
        simulation.
        """
        raise NotImplementedError("a schedule of loans is not kept")

    def restore(self, memory: StageMemory, jobs: Mapping[str, QueuedJob]) -> None:
        raise NotImplementedError("a schedule of loans is not kept")

    def next_wake(self, now: float) -> float | None:
        return self._loans[-1][0] if self._loans else None
