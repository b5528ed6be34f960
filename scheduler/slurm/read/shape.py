"""The cluster's shape as the core knows it, made from Slurm's nodes and partitions.

Partitions that share a node, or that a job names together, become one virtual cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.slurm.read.client import SlurmError, word
from scheduler.slurm.read.parse import Node


@dataclass(frozen=True, slots=True)
class Shape:
    """Slurm's nodes in the order of the core's numbers, and the cluster's shape.

    Attributes:
        names: Slurm's names of the nodes.
        vcs: maps each partition to its virtual cluster.
    """

    spec: ClusterSpec
    names: tuple[str, ...]
    vcs: Mapping[str, str] = field(default_factory=dict)

    def vc_of(self, partitions: str) -> str:
        """Return the virtual cluster of a job that names these partitions (``a`` or ``a,b``), or ""
        where none of them is followed."""
        if only := self.vcs.get(partitions):
            return only
        found = (self.vcs.get(name, "") for name in partitions.split(","))
        return next(filter(None, found), "")

    def gpus_in(self, vc: str) -> int:
        """Return the number of GPUs of a virtual cluster."""
        return sum(group.nodes * group.gpus_per_node for group in self.spec.groups_of(vc))

    def node(self, name: str) -> int | None:
        """Return the core's number of a node, or None where the core does not have it."""
        return self.names.index(name) if name in self.names else None

    @classmethod
    def followed(
        cls,
        nodes: Sequence[Node],
        *,
        partitions: Collection[str] = (),
        together: Collection[str] = (),
        gpu_memory_mib: float = 24_576.0,
    ) -> Shape:
        """Return the shape of a cluster that Slurm schedules. Raise SlurmError where a partition
        does not exist, or there is no node.

        Args:
            partitions: partitions to follow; all when empty.
            together: lists of partitions (``a,b``) that jobs name; each list becomes one virtual
                cluster.
        """
        seen = {name for node in nodes for name in node.partitions}
        if missing := sorted(set(partitions) - seen):
            raise SlurmError(f"no node is in partition {missing[0]}; there are {_some(seen)}")
        wanted = set(partitions) or seen
        mine = [node for node in nodes if wanted & set(node.partitions)]
        if not mine:
            raise SlurmError("no node is in any partition")
        sets = [node.partitions for node in mine] + [names.split(",") for names in together]
        vcs = _joined([name for name in names if name in wanted] for names in sets)
        members: dict[str, list[Node]] = {}
        for node in mine:
            first = next(name for name in node.partitions if name in wanted)
            members.setdefault(vcs[first], []).append(node)
        groups = {
            word(vc): tuple(
                NodeGroup(
                    gpu_type=_types(node),
                    nodes=1,
                    gpus_per_node=node.gpus,
                    gpu_memory_mib=None,
                    names=(word(node.name),),
                )
                for node in ns
            )
            for vc, ns in members.items()
        }
        spec = ClusterSpec.mixed(groups, gpu_memory_mib=gpu_memory_mib, name="slurm")
        names = tuple(node.name for ns in members.values() for node in ns)
        return cls(spec, names, vcs)


def _types(node: Node) -> str:
    """Return the GPU types of a node, joined by ``+``."""
    return "+".join(kind for kind, _ in node.types) or node.gpu_type


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:8]) or "none"


def _joined(sets: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return the virtual cluster of each partition. Partitions that are named together, directly or
    through other lists, get the same one."""
    found: dict[str, list[str]] = {}
    for names in sets:
        whole = list(dict.fromkeys(p for name in names for p in found.get(name, [name])))
        for name in whole:
            found[name] = whole
    return {name: _vc_name(whole) for name, whole in found.items()}


def _vc_name(partitions: Sequence[str]) -> str:
    first, more = sorted(partitions)[:3], len(partitions) - 3
    return "+".join(first) + (f"+{more}-more" if more > 0 else "")
