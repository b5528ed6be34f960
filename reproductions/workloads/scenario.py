"""A scenario for `pellucid compare` with policies that assign allocations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.worlds.policy_options import over
from pipeline.worlds.scenario import Progress, Sink
from reproductions.allocation.core import UnmetNeeds, check_needs
from reproductions.allocation.policy import AllocationPolicy, Capability
from reproductions.allocation.workload import AllocationWorkload
from reproductions.registry import ALLOCATING, build
from reproductions.workloads import open_workload
from scheduler.core.estimates import Estimator
from scheduler.simulation.loop import Outcome


@dataclass
class AllocationScenario:
    """A workload, a seed for the policies that draw random numbers, and settings by policy."""

    workload: AllocationWorkload
    seed: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    loop: str = "open"

    @property
    def name(self) -> str:
        return self.workload.name

    def notes_on(self, policy: str) -> list[str]:
        """Return no notes."""
        return []

    def cluster_gpus(self) -> int:
        return self.workload.gpus

    def layout(self) -> dict[str, Any]:
        """Return the cluster, for the summary of a run."""
        nodes = self.workload.nodes
        types = dict.fromkeys(node.gpu_type for node in nodes)
        return {
            "cluster": {t: sum(node.gpu_type == t for node in nodes) for t in types},
            "gpus_by_vc": {t: sum(n.gpus for n in nodes if n.gpu_type == t) for t in types},
            "gpus_per_node": max(node.gpus for node in nodes),
        }

    def traits(self, policy: str) -> dict[str, bool]:
        """Return what a policy knows and may do, for the summary of a run."""
        made = self._policy(policy)
        preemptive = Capability.PREEMPT in made.changes
        return {"oracle": made.oracle, "preemptive": preemptive, "estimates": False}

    def check(self, name: str) -> None:
        """Raise UnmetNeeds if a policy needs a statistic that this workload lacks. Also raise it if
        the cluster has several GPU types and the policy does not choose among them: it would spread
        a gang over several.
        """
        policy = self._policy(name)
        types = sorted({node.gpu_type for node in self.workload.nodes})
        if len(types) > 1 and Capability.TYPE not in policy.changes:
            raise UnmetNeeds(f"{name} needs GPUs of one type; this workload has {', '.join(types)}")
        check_needs(policy, self.workload.ground_truth(policy))

    def runnable(self) -> list[str]:
        """Return the names of the policies that this workload can run (see `check`), in the order
        of the registry.
        """
        names = []
        for name in ALLOCATING:
            try:
                self.check(name)
            except UnmetNeeds:
                continue
            names.append(name)
        return names

    def _policy(self, name: str) -> AllocationPolicy:
        values = over(self.workload.settings.get(name, {}), self.settings.get(name, {}))
        return build(name, values, seed=self.seed)

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]:
        """Run one policy. Return its results, and an estimator that predicts nothing: the policy
        uses statistics of running jobs.
        """
        return self.workload.simulate(self._policy(name), sink=sink, progress=progress), Estimator()


def open_scenario(
    named: str, seed: int, *, settings: Mapping[str, Mapping[str, Any]] | None = None
) -> AllocationScenario:
    """Return the scenario of `--workload KIND:PATH`. `settings` of policies override those of the
    workload.
    """
    return AllocationScenario(open_workload(named), seed, settings or {})
