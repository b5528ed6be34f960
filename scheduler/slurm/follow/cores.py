"""The cores of a service in front of a Slurm: of the policy that its log names, and of Pellucid's
own."""

from __future__ import annotations

from dataclasses import replace

from scheduler.assembly import CoreSpec, assemble
from scheduler.core.cluster import ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import Estimator
from scheduler.slurm.read.client import SlurmError


class Assembled:
    """Cores of any policy.

    Args:
        spec: what decides; its cluster gives way to the one given.
    """

    def __init__(self, spec: CoreSpec) -> None:
        self._spec = spec

    @property
    def by_slurm(self) -> bool:
        return self._spec.kind.capabilities.keeps_priorities

    def following(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core as the spec has it. Raises SlurmError."""
        try:
            return assemble(replace(self._spec, cluster=cluster), estimator)
        except ValueError as error:  # a node of another type of GPU came
            raise SlurmError(f"{error}: use policy slurm or pellucid") from None

    def own(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core of Pellucid's own policy."""
        return assemble(CoreSpec.of(cluster), estimator)
