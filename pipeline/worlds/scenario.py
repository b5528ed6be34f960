"""A scenario: everything a run needs besides the policy, so that policies meet the same world."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler.core.arrivals import Forecast
from scheduler.core.cluster import Cluster
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator, GpuCountEstimator, TableEstimator
from scheduler.core.pairs import Judge
from scheduler.core.policy import Policy
from scheduler.core.profiling import Scaling, Stage
from scheduler.core.quirks import NONE, Quirks
from scheduler.policies import build, policy_named
from scheduler.simulation.engine import Engine, JobResult, Outcome
from scheduler.simulation.work import SpeedModel, Workload

Sink = Callable[[list[Decision]], None]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ProfilingSettings:
    """The profiling partition of a cluster.

    Attributes:
        nodes: nodes each virtual cluster lends for good. None: nobody is looked at, but profiles of
            runs that are watched are still carried over (`known_s`).
        limit_s, max_gpus: longest look, largest job looked at.
        scaling: one more node while many wait; None for a fixed partition.
        known_s: a job like one that was looked at less than so many seconds ago takes over its
            profile; 0: every job is looked at.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    limit_s: float = 200.0
    max_gpus: int = 8
    scaling: Scaling | None = None
    known_s: float = 0.0


@dataclass
class Scenario:
    """The world policies are compared in.

    Attributes:
        name: track or trace name.
        workload: jobs, truth, cluster.
        speed: nature's rule for rates.
        estimators: makes the estimator a policy uses; called once per run.
        judge: makes the beliefs about pairs; None = nobody packs.
        forecast: makes the arrivals forecast.
        profiling: the partition; None = nobody profiles.
        quirks: departures for fidelity.
        seed: of the workload's permutation and jitter.
        walls: every virtual cluster keeps to itself; without them the policies that can may
            use idle GPUs of another, where nobody waits.
        settings: arguments of the policy `pellucid` that are not its defaults.
    """

    name: str
    workload: Workload
    speed: SpeedModel
    estimators: Callable[[Policy], Estimator]
    judge: Callable[[], Judge] | None = None
    forecast: Callable[[], Forecast] | None = None
    profiling: ProfilingSettings | None = None
    quirks: Quirks = NONE
    seed: int = 0
    walls: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)

    def cluster_gpus(self) -> int:
        """GPUs in the whole cluster."""
        return self.workload.cluster.gpus

    def layout(self) -> dict[str, Any]:
        """The cluster, for the summary of a run."""
        cluster = self.workload.cluster
        return {"cluster": dict(cluster.vcs), "gpus_per_node": cluster.gpus_per_node}

    def policy(self, name: str) -> Policy:
        """A policy, with the beliefs this world grants it."""
        kind = policy_named(name)
        return build(
            name,
            judge=self.judge() if self.judge and kind.packs else None,
            forecast=self.forecast() if self.forecast and kind.packs else None,
            quirks=self.quirks,
            gpu_memory_mib=self.workload.cluster.gpu_memory_mib,
            borrows=not self.walls,
            settings=self.settings,
        )

    def cluster(self, policy: Policy) -> Cluster:
        lent = self.profiling.nodes if policy.profiles and self.profiling else None
        return Cluster(self.workload.cluster, lent)

    def stage(self, policy: Policy) -> Stage | None:
        """The profiling stage in front of a policy's queues."""
        from scheduler.core.profiling import ProfilingStage, WaitingStage

        settings = self.profiling
        if not policy.profiles or settings is None:
            return None
        if not (settings.nodes or settings.scaling or policy.profiles_waiting):
            return None  # every job would wait for a look for ever
        kind = WaitingStage if policy.profiles_waiting else ProfilingStage
        return kind(
            limit_s=settings.limit_s,
            max_gpus=settings.max_gpus,
            scaling=settings.scaling,
            forecast=self.forecast() if self.forecast else None,
            known_s=settings.known_s,
        )

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Run one policy, by name, over the workload."""
        return self.play(self.policy(name), sink=sink, progress=progress)

    def play(
        self, policy: Policy, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Run a policy, built by the caller, over the workload."""
        estimator = self.estimators(policy)
        core = Core(self.cluster(policy), policy, estimator, profiling=self.stage(policy))
        engine = Engine(
            core,
            self.workload.jobs,
            self.workload.work,
            self.speed,
            sink=sink,
            quirks=self.quirks,
            progress=progress,
        )
        return engine.run(), estimator


def oracle(workload: Workload) -> TableEstimator:
    """The truth as an estimator."""
    return TableEstimator("oracle", {i: w.duration_s for i, w in workload.work.items()})


def by_gpu_count() -> GpuCountEstimator:
    return GpuCountEstimator()


@dataclass(slots=True)
class Cost:
    """What a run cost this process."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


class Meter:
    """Measures wall time, CPU time (user + system, all threads) and peak memory."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Cost:
        return Cost(
            time.perf_counter() - self._wall,
            time.process_time() - self._cpu,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )


@dataclass(slots=True)
class Run:
    """A finished run of one policy in one scenario."""

    policy: str
    outcome: Outcome
    figures: dict[str, float | int]
    cost: Cost
    folder: Path | None = None
    results: list[JobResult] = field(default_factory=list)
