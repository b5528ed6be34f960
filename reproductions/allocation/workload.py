"""Jobs, nodes and a ground truth: what allocation policies are simulated on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from features.job import Job
from reproductions.allocation.allocation import Node, total_gpus
from reproductions.allocation.core import AllocationCore
from reproductions.allocation.engine import AllocationEngine
from reproductions.allocation.nature import GroundTruth
from reproductions.allocation.policy import AllocationPolicy
from scheduler.core.decisions import Decision
from scheduler.simulation.loop import Outcome


@dataclass(slots=True)
class AllocationWorkload:
    """A workload for allocation policies.

    Attributes:
        name: name shown to users.
        jobs: jobs in order of submission.
        nodes: nodes of the cluster.
        ground_truth: function that makes a fresh truth for a run under a policy.
        left_out: number of rows of the source that were malformed and left out.
        settings: maps a policy to the settings with which the source ran it.
    """

    name: str
    jobs: list[Job]
    nodes: tuple[Node, ...]
    ground_truth: Callable[[AllocationPolicy], GroundTruth]
    left_out: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return total_gpus(self.nodes)

    def simulate(
        self,
        policy: AllocationPolicy,
        *,
        sink: Callable[[list[Decision]], None] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Run one policy, and return the results. Raises UnmetNeeds if the policy needs a
        statistic that the workload lacks.
        """
        ground_truth = self.ground_truth(policy)
        core = AllocationCore(self.nodes, policy, ground_truth)
        engine = AllocationEngine(core, self.jobs, ground_truth, sink=sink, progress=progress)
        return engine.run()
