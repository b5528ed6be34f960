"""The cluster as the core knows it, read off Slurm's nodes and partitions.

A partition is a virtual cluster; the profiling partition's nodes are lent by the one they are in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.backends.base import Purpose
from scheduler.backends.slurm.client import SlurmError, word
from scheduler.backends.slurm.parse import Node
from scheduler.core.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes in the core's order.

    Attributes:
        names: Slurm's names of the nodes.
        lent: nodes of each virtual cluster that are in the profiling partition.
        profiling: name of that partition; "" = none.
    """

    spec: ClusterSpec
    names: tuple[str, ...]
    lent: Mapping[str, int]
    profiling: str = ""

    def node(self, name: str) -> int | None:
        """The core's number of a node; None: it is not one of ours."""
        return self.names.index(name) if name in self.names else None

    def vc(self, node: int) -> str:
        for name, count in self.spec.vcs.items():
            if node < count:
                return name
            node -= count
        raise SlurmError(f"there is no node {node}")

    def partition(self, node: int, purpose: Purpose) -> str:
        """The partition that a job of ours is submitted to."""
        return self.profiling if purpose is Purpose.PROFILE else self.vc(node)

    @classmethod
    def of(
        cls,
        nodes: Sequence[Node],
        *,
        partitions: Sequence[str] = (),
        profiling: str = "",
        slots: bool = True,
        gpu_memory_mib: float = 24_576.0,
    ) -> Shape:
        """The shape of a cluster.

        Args:
            partitions: the virtual clusters; all with GPUs when empty. They share no node.
            profiling: partition whose nodes are lent to look at jobs.
            slots: count GPUs that have slots, as `place` needs; otherwise all of gres/gpu.

        Raises SlurmError naming what does not fit.
        """
        counted = [(node, len(node.slots) if slots else node.gpus) for node in nodes]
        having = [(node, gpus) for node, gpus in counted if gpus]
        wanted = list(partitions) or sorted(
            {name for node, _ in having for name in node.partitions} - {profiling}
        )
        vcs: dict[str, list[Node]] = {name: [] for name in wanted}
        sizes: dict[int, str] = {}
        for node, gpus in having:
            mine = [name for name in node.partitions if name in vcs]
            if len(mine) > 1:
                raise SlurmError(
                    f"node {node.name} is in partitions {', '.join(mine)}: name those that are to "
                    "be governed (slurm_partitions), none sharing a node with another"
                )
            if mine:
                vcs[mine[0]].append(node)
                sizes.setdefault(gpus, node.name)
        if not sizes:
            what = "slots (see deploy/slurm/gres.conf.pellucid)" if slots else "GPUs (gres/gpu)"
            raise SlurmError(f"no node of {', '.join(wanted) or 'any partition'} has {what}")
        if len(sizes) > 1:
            shown = ", ".join(f"{name} has {gpus}" for gpus, name in sizes.items())
            raise SlurmError(f"nodes differ in GPUs ({shown}): govern partitions that do not")
        (per_node,) = sizes
        lent = {vc: sum(profiling in n.partitions for n in ns) for vc, ns in vcs.items() if ns}
        ordered = [
            node
            for ns in vcs.values()
            for node in sorted(ns, key=lambda node: profiling in node.partitions)  # lent ones last
        ]
        types = {node.gpu_type for node in ordered}
        spec = ClusterSpec(
            {word(vc): len(ns) for vc, ns in vcs.items() if ns},
            per_node,
            gpu_memory_mib,
            types.pop() if len(types) == 1 else "",
            "slurm",
        )
        names = tuple(word(node.name) for node in ordered)
        return cls(spec, names, {vc: count for vc, count in lent.items() if count}, profiling)
