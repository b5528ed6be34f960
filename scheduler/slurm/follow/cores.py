"""Makes the cores of a service in front of a Slurm: with the policy that its log names, and with
Pellucid's own policy."""

from __future__ import annotations

from dataclasses import replace

from scheduler.assembly import CoreSpec, assemble
from scheduler.core.cluster import ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import Estimator
from scheduler.slurm.read.client import SlurmError


class Assembled:
    """Makes cores with any policy.

    Args:
        spec: names the policy and its settings; the cluster in it is replaced.
    """

    def __init__(self, spec: CoreSpec) -> None:
        self._spec = spec

    @property
    def by_slurm(self) -> bool:
        return self._spec.kind.capabilities.keeps_priorities

    def following(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core with the policy of the spec. Raise SlurmError where it cannot be built."""
        try:
            return assemble(replace(self._spec, cluster=cluster), estimator)
        except ValueError as error:  # a node of another type of GPU came
            raise SlurmError(f"{error}: use policy slurm or pellucid") from None

    def own(self, cluster: ClusterSpec, estimator: Estimator) -> Core:
        """Return a core with Pellucid's own policy."""
        return assemble(CoreSpec.of(cluster), estimator)
