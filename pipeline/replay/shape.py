"""The shape of a cluster: as a person or Slurm tells it, or as a dump lets it be inferred."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.errors import UserError
from pipeline.replay.inferred import Ran, expanded, gpus_of, nodes_of, peak_of
from pipeline.replay.told import Told
from pipeline.worlds.cluster_file import read_cluster
from scheduler.backends.slurm import parse
from scheduler.backends.slurm.parse import Node, ParseError
from scheduler.backends.slurm.tres import gpu_types
from scheduler.core.cluster import ClusterSpec, NodeGroup

Hide = Callable[[str], str]
PER_NODE = 8  # where a dump tells neither nodes nor their number
PLENTY = 1_000_000  # CPUs, and MiB, of a node that nobody described


@dataclass(frozen=True)
class Shape:
    """A cluster.

    Attributes:
        spec: nodes by pool. A pool is a partition, or several that share nodes.
        pools: the pool of each partition.
        nodes: in the order of `spec`, with the partitions each is in.
        said: where it comes from, a sentence.
        notes: what a reader must know, sentences.
    """

    spec: ClusterSpec
    pools: dict[str, str]
    nodes: tuple[Node, ...]
    said: str
    notes: list[str] = field(default_factory=list)


def from_cluster_file(path: Path, hide: Hide) -> Shape:
    """The shape a person wrote down; its virtual clusters are the partitions."""
    written = read_cluster(path).cluster
    vcs = {hide(name): count for name, count in written.vcs.items()}
    groups = {hide(name): has for name, has in written.groups.items()}
    spec = replace(written, vcs=vcs, groups=groups)
    nodes = [
        _node(str(number), [has.vc], {has.gpu_type: has.gpus})
        for number, has in enumerate(spec.nodes())
        if has.gpus
    ]
    found = _shape(nodes, "from the cluster file given", "as written down")
    spec = replace(found.spec, gpu_memory_mib=written.gpu_memory_mib)
    return replace(found, spec=spec)


def _node(name: str, partitions: Sequence[str], types: Mapping[str, int]) -> Node:
    return Node(
        name,
        sum(types.values()),
        [*types, ""][0],
        tuple(partitions),
        True,
        "IDLE",
        tuple(types.items()),
        PLENTY,
        float(PLENTY) * 1024,
    )


def nodes_listed(path: Path) -> list[Node]:
    """Nodes in the output of `scontrol show nodes` or of `sinfo -N -o "%N %P %G"`."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"--nodes {path}: {error.strerror}") from None
    try:
        if "NodeName=" in text:
            blocks = re.split(r"(?=^NodeName=)", text, flags=re.MULTILINE)
            return parse.nodes("\n".join(" ".join(one.split()) for one in blocks))
        return list(_of_sinfo(text))
    except (ParseError, ValueError) as error:
        raise UserError(f"--nodes {path}: not as Slurm prints it ({error})") from None


def _of_sinfo(text: str) -> Iterator[Node]:
    found: dict[str, Node] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 3 or fields[0] == "NODELIST":
            continue
        gres = re.sub(r"\([^)]*\)", "", fields[2])
        for name in expanded(fields[0]):
            partition = fields[1].rstrip("*")
            known = found.get(name)
            if known is None:
                found[name] = _node(name, [partition], gpu_types(gres) or {})
            elif partition not in known.partitions:
                found[name] = replace(known, partitions=(*known.partitions, partition))
    yield from found.values()


def from_nodes(
    listed: Sequence[Node], given: str, used: Iterable[str], hide: Hide, *, bare: bool = False
) -> Shape:
    """The shape of nodes as they are.

    Args:
        listed: all of them; those without GPUs are left out unless `bare`.
        given: what they were given as, for a refusal.
        used: partitions of the dump; others do not tie nodes together.
        hide: how partitions are called from here on.
    """
    having = [node for node in listed if (node.gpus or bare) and node.partitions]
    if not any(node.gpus for node in having):
        raise UserError(
            f"{given}: no node with GPUs and a partition in it; give the output of "
            "scontrol show nodes, or of sinfo -N -o '%N %P %G'"
        )
    wanted = set(used)
    called = [
        replace(node, partitions=tuple(p for p in map(hide, node.partitions) if p in wanted))
        if wanted & set(map(hide, node.partitions))
        else replace(node, partitions=(hide(node.partitions[0]),))
        for node in having
    ]
    found = _shape(called, "from the nodes given", "as listed")
    down = sum(not node.open for node in having)
    if down:
        found.notes.append(
            f"{down:,} nodes were down or drained when the list was made; they are counted."
        )
    return found


def _shape(nodes: Sequence[Node], said: str, name: str) -> Shape:
    """Nodes by pool, as they are."""
    pools, notes = _pooled(node.partitions for node in nodes)
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(pools[node.partitions[0]], []).append(node)
    spec = _spec({pool: [node.gpus for node in has] for pool, has in members.items()}, name)
    ordered = tuple(node for has in members.values() for node in has)
    return Shape(spec, pools, ordered, said, notes)


def _spec(sizes: Mapping[str, Sequence[int]], name: str) -> ClusterSpec:
    """Nodes of so many GPUs in each virtual cluster, in this order. No types: of those a site's
    own Slurm knows, and the other policies have a virtual cluster for each (`by_kind`)."""
    kinds = {gpus for has in sizes.values() for gpus in has}
    if len(kinds) == 1:
        return ClusterSpec({vc: len(has) for vc, has in sizes.items()}, kinds.pop(), name=name)
    groups = {
        vc: tuple(NodeGroup("", len(list(like)), gpus) for gpus, like in groupby(has))
        for vc, has in sizes.items()
    }
    return ClusterSpec.mixed(groups, name=name)


@dataclass(frozen=True)
class Kinds:
    """The virtual clusters of policies that take all GPUs of one as alike.

    Attributes:
        spec: each pool, or a part of it for each kind of node, by the types of its GPUs.
        pools: the pool of each of these.
    """

    spec: ClusterSpec
    pools: dict[str, str]
    _shape: Shape
    _kind: dict[str, str]  # of each node
    _of: dict[tuple[str, str], str]  # virtual cluster by pool and kind

    def vc_of(self, partition: str, gpus: Mapping[str, int], nodes: Sequence[str]) -> str | None:
        """Where a job goes: by the types that it had, the nodes that it was on, else where most
        GPUs of its partition are. None: there is no such partition."""
        pool = self._shape.pools.get(partition)
        if pool is None:
            return None
        kinds = [kind for where, kind in self._of if where == pool]
        had = {kind for kind in gpus if kind}
        by_type = (kind for kind in kinds if had and had <= set(kind.split("+")))
        by_node = (self._kind[name] for name in nodes if self._kind.get(name) in kinds)
        return self._of[pool, next(by_type, None) or next(by_node, None) or kinds[0]]


def by_kind(shape: Shape) -> Kinds:
    """Pools whose nodes differ in the types of their GPUs, a virtual cluster for each kind."""
    kinds = {n.name: "+".join(sorted(kind for kind, _ in n.types if kind)) for n in shape.nodes}
    sizes: dict[str, dict[str, list[int]]] = {}
    for node in shape.nodes:
        pool = shape.pools[node.partitions[0]]
        sizes.setdefault(pool, {}).setdefault(kinds[node.name], []).append(node.gpus)
    of: dict[tuple[str, str], str] = {}
    split: dict[str, list[int]] = {}
    for pool, parts in sizes.items():
        for kind, has in sorted(parts.items(), key=lambda part: -sum(part[1])):
            vc = of[pool, kind] = f"{pool}/{kind}" if len(parts) > 1 else pool
            split[vc] = has
    spec = replace(_spec(split, shape.spec.name), gpu_memory_mib=shape.spec.gpu_memory_mib)
    return Kinds(spec, {vc: pool for (pool, _), vc in of.items()}, shape, kinds, of)


def _pooled(homes: Iterable[Sequence[str]]) -> tuple[dict[str, str], list[str]]:
    """The pool of each partition, and notes. `homes`: partitions of each node."""
    together: dict[str, set[str]] = {}
    for partitions in homes:
        group = set(partitions).union(*(together.get(p, ()) for p in partitions))
        for partition in group:
            together[partition] = group
    pools = {partition: "+".join(sorted(group)) for partition, group in together.items()}
    notes = [
        f"Partitions {' and '.join(sorted(group))} share nodes. Slurm's own schedule is replayed "
        "with each on its nodes; the other policies take them as one."
        for group in {pools[p]: g for p, g in together.items()}.values()
        if len(group) > 1
    ]
    return pools, notes


def inferred(table: pa.Table, told: Told) -> Shape:
    """The least cluster that carried the jobs.

    The nodes the dump names (NodeList), each with the GPUs of each type (AllocTRES) that were in
    use on it at once; per partition without named nodes, the GPUs in use at the busiest time.

    Args:
        table: the jobs, partitions already called as they shall be.
        told: what the dump tells of them beside.
    """
    ran = _ran(table, told)
    seen = nodes_of([job for job in ran if job.nodes])
    nodes = [_node(name, has.partitions, has.gpus) for name, has in seen.items() if has.gpus]
    named = {partition for node in nodes for partition in node.partitions}
    unnamed = sorted({job.partition for job in ran} - named)
    nodes += [node for partition in unnamed for node in _unnamed(table, partition)]
    shape = _shape(nodes, "", "inferred")
    kinds = Counter(g.gpus_per_node for p in shape.spec.vcs for g in _each(shape.spec, p))
    listed = " and ".join(f"{count} of {gpus}" for gpus, count in sorted(kinds.items()))
    how = "those it names" if seen else "as many as were ever in use at once"
    said = f"inferred from the dump: {len(nodes)} nodes ({listed} GPUs), per partition {how}"
    rest = (
        ", and neither are GPUs that were never in use. Give --nodes or --site to be sure."
        if seen
        else ", and without node names (column NodeList) it is the least that could have "
        "carried these jobs: waiting is overstated throughout. Give --nodes or --cluster."
    )
    note = "The cluster's shape is inferred. Nodes that never ran a GPU job are not in it" + rest
    return replace(shape, said=said, notes=[*shape.notes, note])


def _each(spec: ClusterSpec, vc: str) -> Iterator[NodeGroup]:
    return (group for group in spec.groups_of(vc) for _ in range(group.nodes))


def _ran(table: pa.Table, told: Told) -> list[Ran]:
    gpus = table.column("gpus").to_pylist()
    names = [name or "" for name in table.column("vc").cast(pa.string()).to_pylist()]
    start, end = (
        (table.column(n).cast(pa.int64()).to_numpy() / 1000).tolist()
        for n in ("start_time", "end_time")
    )
    lists = {text: expanded(text) for text in set(told.of("NodeList"))}
    tres = {key: gpus_of(*key) for key in set(zip(told.of("AllocTRES"), gpus, strict=True))}
    return [
        Ran(names[i], lists[where], start[i], end[i], tres[alloc, gpus[i]])
        for i, (where, alloc) in enumerate(
            zip(told.of("NodeList"), told.of("AllocTRES"), strict=True)
        )
    ]


def _unnamed(table: pa.Table, partition: str) -> list[Node]:
    """Nodes of a partition of which only the jobs are known."""
    gpus = table.column("gpus").to_numpy()
    counted = table.column("nodes").to_numpy(zero_copy_only=False).astype(float)
    known = np.isfinite(counted) & (counted > 0)
    each = np.ceil(gpus[known] / counted[known])
    per_node = int(max(1, each.max())) if known.any() else PER_NODE
    names = table.column("vc").cast(pa.string()).to_pylist()
    mine = np.array([(name or "") == partition for name in names])
    start, end = (table.column(n).cast(pa.int64()).to_numpy() for n in ("start_time", "end_time"))
    most = max(peak_of(start[mine], end[mine], gpus[mine]), int(gpus[mine].max()), 1)
    count = -(-most // per_node)
    return [_node(f"{partition}{i}", [partition], {"": per_node}) for i in range(count)]
