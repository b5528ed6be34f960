"""What a job is given: GPUs on nodes and, where a policy sets it, a batch size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with GPUs. `index` is its place in the cluster's list of nodes."""

    index: int
    gpus: int
    gpu_type: str = ""


class Batch(NamedTuple):
    """How many samples make one update of a job.

    Attributes:
        per_gpu: samples each GPU takes in one pass.
        accumulation: passes whose gradients are added up before the one that updates (0 = none).
    """

    per_gpu: int
    accumulation: int = 0

    def total(self, gpus: int) -> int:
        """Return the number of samples behind one update on `gpus` GPUs."""
        return gpus * self.per_gpu * (self.accumulation + 1)


@dataclass(frozen=True, slots=True)
class Allocation:
    """The GPUs that one job gets.

    Attributes:
        nodes: node indices, none twice, in the order in which the job counts its workers.
        gpus: GPUs on each of them, at least one.
        batch: set by policies that choose it; None leaves the job's own batch size.
        partner: the job on the very same GPUs, for policies that share them.
    """

    nodes: tuple[int, ...]
    gpus: tuple[int, ...]
    batch: Batch | None = None
    partner: str | None = None

    @property
    def count(self) -> int:
        """Return the number of GPUs in all."""
        return sum(self.gpus)

    def same_gpus(self, other: Allocation | None) -> bool:
        """Return whether moving from `other` to this needs no restart of the job's workers."""
        return other is not None and self.nodes == other.nodes and self.gpus == other.gpus


def total_gpus(nodes: Iterable[Node]) -> int:
    """Return the number of GPUs of a cluster."""
    return sum(node.gpus for node in nodes)


def free_gpus(nodes: Iterable[Node], taken: Iterable[Allocation]) -> list[int]:
    """Return the GPUs left on each node besides `taken`. Of two jobs that share GPUs, pass one."""
    free = [node.gpus for node in nodes]
    for allocation in taken:
        for node, gpus in zip(allocation.nodes, allocation.gpus, strict=True):
            free[node] -= gpus
    return free


def on_freest(free: list[int], gpus: int) -> Allocation | None:
    """Return an allocation on the node with most free GPUs, then the next (the lowest index on
    ties).

    Takes what it gives out of `free`. Returns None, and leaves `free` as it was, when there is not
    enough or `gpus` is below 1.
    """
    if gpus > sum(free) or gpus < 1:
        return None
    nodes, counts = [], []
    while gpus:
        node = max(range(len(free)), key=free.__getitem__)
        count = min(free[node], gpus)
        nodes.append(node)
        counts.append(count)
        free[node] -= count
        gpus -= count
    return Allocation(tuple(nodes), tuple(counts))


class Overcommitted(ValueError):
    """Raised when more GPUs of a node are assigned than it has."""


class Inventory:
    """Records which GPUs of which node each job holds, as a bit mask per node."""

    def __init__(self, nodes: Iterable[Node]):
        self._nodes = tuple(nodes)
        self.held: dict[str, dict[int, int]] = {}  # job -> node -> GPUs
        self.in_use = 0  # GPUs that hold a job

    def assign(self, assignment: Mapping[str, Allocation]) -> None:
        """Give every job GPUs of its own, or those of its partner. A job that stays on a node keeps
        its GPUs there.

        Raises Overcommitted: a node has fewer GPUs than are assigned.
        """
        free = [(1 << node.gpus) - 1 for node in self._nodes]
        given: dict[str, dict[int, int]] = {}
        for job_id, allocation in assignment.items():
            if allocation.partner in given:
                given[job_id] = given[allocation.partner]
                continue
            held = self.held.get(job_id, {})
            given[job_id] = {}
            for node, count in zip(allocation.nodes, allocation.gpus, strict=True):
                kept = given[job_id][node] = _lowest(held.get(node, 0) & free[node], count)
                free[node] &= ~kept
        for job_id, allocation in assignment.items():
            masks = given[job_id]
            for node, count in zip(allocation.nodes, allocation.gpus, strict=True):
                more = _lowest(free[node], count - masks[node].bit_count())
                masks[node] |= more
                free[node] &= ~more
                if masks[node].bit_count() != count:
                    raise Overcommitted(f"node {node} has no {count} GPUs free for job {job_id}")
        self.held = given
        self.in_use = total_gpus(self._nodes) - sum(mask.bit_count() for mask in free)


def _lowest(mask: int, count: int) -> int:
    """Return a mask of the `count` lowest set bits of `mask`, or of all if it has fewer."""
    taken = 0
    while mask and count > 0:
        low = mask & -mask
        taken |= low
        mask ^= low
        count -= 1
    return taken
