"""The shape of a cluster (its nodes by partition): as written by a person, as listed by Slurm, or
inferred from the jobs of a dump."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from features.given import LARGE, read_text
from pipeline.errors import UserError
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.inferred import Floats, Ran, expanded, nodes_of, peak_of
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.plural import count
from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import Node, ParseError
from scheduler.slurm.read.tres import gpu_types

Hide = Callable[[str], str]
PER_NODE = 8  # where a dump tells neither nodes nor their number
USUAL = {1, 2, 3, 4, 6, 8, 16}  # GPUs of a node
LOAD = 0.9
SHOWN = 8  # virtual clusters named in a sentence
PLENTY = 1_000_000  # CPUs, and GiB, of a node that nobody described


@dataclass(frozen=True)
class Shape:
    """The shape of a cluster.

    Attributes:
        spec: the nodes of each pool. A pool is a partition, or several partitions that share nodes.
        pools: partition -> its pool.
        nodes: the nodes, in the order of `spec`, each with its partitions.
        source: a sentence that says where the shape comes from.
        notes: sentences that a reader must know.
    """

    spec: ClusterSpec
    pools: dict[str, str]
    nodes: tuple[Node, ...]
    source: str
    notes: list[str] = field(default_factory=list)


def from_cluster_file(path: Path, hide: Hide) -> Shape:
    """Return the shape in a cluster file. Its virtual clusters are the partitions. `hide` replaces
    their names."""
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
        name=name,
        gpus=sum(types.values()),
        gpu_type=[*types, ""][0],
        partitions=tuple(partitions),
        open=True,
        state="IDLE",
        types=tuple(types.items()),
        cpus=PLENTY,
        memory_mib=float(PLENTY) * 1024,
    )


def nodes_listed(path: Path) -> list[Node]:
    """Return the nodes in the output of `scontrol show nodes` or of `sinfo -N -o "%N %P %G"`.

    Lines of a listing of `sinfo` that are not of this form are left out. Raises UserError if
    the file cannot be read, if it names no node, or if a value that is needed is not as Slurm
    prints it."""
    try:
        text = read_text(path, LARGE, errors="replace")
    except OSError as error:
        raise UserError(f"--nodes {path}: {error.strerror}") from None
    try:
        if "NodeName=" in text:
            blocks = re.split(r"(?=^NodeName=)", text, flags=re.MULTILINE)
            found = parse.nodes("\n".join(" ".join(one.split()) for one in blocks))
        else:
            found = list(_of_sinfo(text))
    except (ParseError, ValueError) as error:
        raise UserError(f"--nodes {path}: not as Slurm prints it ({error})") from None
    if not found:
        raise UserError(
            f"--nodes {path}: names no node; give the output of scontrol show nodes, or of "
            "sinfo -N -o '%N %P %G'"
        )
    return found


def _is_gres(text: str) -> bool:
    """Return whether sinfo prints such a text as a node's generic resources."""
    number = text.partition(":")[2].rpartition(":")[2]
    return text in ("(null)", "N/A") or "gpu" in text or number[:1].isdecimal()


def _of_sinfo(text: str) -> Iterator[Node]:
    found: dict[str, Node] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 3 or not _is_gres(fields[2]):  # a header, or another text
            continue
        gres = re.sub(r"\([^)]*+\)?+", "", fields[2])
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
    """Return the shape of a cluster with the given nodes. Raises UserError if no node has both
    GPUs and a partition.

    Args:
        listed: all nodes; those without GPUs are left out unless `bare`.
        given: option and file that the nodes come from, for messages.
        used: partitions that occur in the dump. Others are ignored, except that a node in none
            of them stays in its first partition.
        hide: returns the name that replaces the name of a partition.
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


def _shape(nodes: Sequence[Node], source: str, name: str) -> Shape:
    """Return the shape of a cluster with these nodes, grouped by pool."""
    pools, notes = _pooled(node.partitions for node in nodes)
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(pools[node.partitions[0]], []).append(node)
    spec = _spec({pool: [node.gpus for node in has] for pool, has in members.items()}, name)
    ordered = tuple(node for has in members.values() for node in has)
    return Shape(spec=spec, pools=pools, nodes=ordered, source=source, notes=notes)


def _spec(sizes: Mapping[str, Sequence[int]], name: str) -> ClusterSpec:
    """Return a cluster without GPU types, given the GPUs of each node in order: {virtual cluster:
    [GPUs]}. Slurm's own schedule needs no types here, and for other policies each type has a
    virtual cluster of its own (`by_kind`)."""
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
    """The virtual clusters for policies that make no difference between the GPUs of a virtual
    cluster: pools are split by GPU type.

    Attributes:
        spec: the cluster: a virtual cluster is a pool, or the nodes of a pool with the same GPU
            types.
        pools: virtual cluster -> its pool.
    """

    spec: ClusterSpec
    pools: dict[str, str]
    _shape: Shape
    _kind: dict[str, str]  # of each node
    _of: dict[tuple[str, str], str]  # virtual cluster by pool and kind

    def vc_of(self, partition: str, gpus: Mapping[str, int], nodes: Sequence[str]) -> str | None:
        """Return the virtual cluster of a job: the one in its partition with its GPU types, else
        with its nodes, else the one with most GPUs. Return None for an unknown partition."""
        pool = self._shape.pools.get(partition)
        if pool is None:
            return None
        kinds = [kind for where, kind in self._of if where == pool]
        had = {kind for kind in gpus if kind}
        by_type = (kind for kind in kinds if had and had <= set(kind.split("+")))
        by_node = (self._kind[name] for name in nodes if self._kind.get(name) in kinds)
        return self._of[pool, next(by_type, None) or next(by_node, None) or kinds[0]]


def by_kind(shape: Shape) -> Kinds:
    """Return the virtual clusters that a cluster has if its pools are split by the GPU types of
    their nodes."""
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
    return Kinds(
        spec=spec,
        pools={vc: pool for (pool, _), vc in of.items()},
        _shape=shape,
        _kind=kinds,
        _of=of,
    )


def _pooled(homes: Iterable[Sequence[str]]) -> tuple[dict[str, str], list[str]]:
    """Return (pool of each partition, notes on partitions that share nodes).

    Args:
        homes: the partitions of each node.
    """
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


@dataclass(frozen=True)
class _Jobs:
    """The resources that the jobs of a trace had, as far as is known: one entry per job; NaN and ""
    mean unknown."""

    vc: list[str]
    kind: list[str]
    where: list[tuple[str, ...]]
    gpus: Floats
    nodes: Floats
    start: Floats
    end: Floats

    @classmethod
    def of(cls, table: pa.Table) -> _Jobs:
        lists = [names or "" for names in _texts(table, "node_list")]
        hosts = {names: expanded(names) for names in set(lists)}
        start, end = (_floats(pc.cast(table[f"{n}_time"], pa.int64())) / 1000 for n in TIMES)
        return cls(
            vc=[name or "" for name in _texts(table, "vc")],
            kind=[kind or "" for kind in _texts(table, "gpu_type")],
            where=[hosts[names] for names in lists],
            gpus=_floats(table["gpus"]),
            nodes=_floats(table["nodes"]),
            start=start,
            end=end,
        )

    @property
    def ran(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.start + self.end) & (self.gpus > 0))

    def on_nodes(self) -> list[Ran]:
        """Return a `Ran` for each job with GPUs whose start, end and nodes are known."""
        return [
            Ran(
                partition=self.vc[i],
                nodes=self.where[i],
                start=float(self.start[i]),
                end=float(self.end[i]),
                gpus={"" if "|" in self.kind[i] else self.kind[i]: int(self.gpus[i])},
            )
            for i in np.flatnonzero(self.ran)
            if self.where[i]
        ]


TIMES = ("start", "end")


def inferred(table: pa.Table, instead: str = "--nodes or --site") -> Shape:
    """Return the smallest cluster that could have run the jobs.

    It has the nodes that the trace names, each with the most GPUs of each type that were in use on
    it at once. A partition without named nodes has the most GPUs of each type that were in use at
    once. If starts and ends are not recorded, it has so many GPUs that a tenth of their time stays
    idle over the span of the trace, but no more than all its jobs together ask for.

    Args:
        table: the jobs in TRACE_SCHEMA; `vc` is the partition, under its final name.
        instead: options with which the user can state the nodes, for the note.
    """
    jobs = _Jobs.of(table)
    recorded = bool(len(jobs.vc) and np.isfinite(jobs.start + jobs.end).mean() > 0.5)
    seen = nodes_of(jobs.on_nodes()) if recorded else {}
    nodes = [_node(name, has.partitions, has.gpus) for name, has in seen.items() if has.gpus]
    named = {partition for node in nodes for partition in node.partitions}
    load = None if recorded else _load(table)
    for partition in sorted(set(jobs.vc) - named):
        nodes += _unnamed(jobs, partition, load)
    shape = _shape(nodes, "", "inferred")
    kinds = sorted(Counter(node.gpus for node in nodes).items())
    listed = " and ".join(f"{count:,} of {gpus}" for gpus, count in kinds)
    how = (
        "per partition those it names"
        if seen
        else "per partition as many as were ever in use at once"
        if recorded
        else f"by a load of {LOAD:.0%}"
    )
    source = f"inferred from the dump: {count(len(nodes), 'node')} ({listed} GPUs), {how}"
    rest = (
        f", and neither are GPUs that were never in use. Give {instead} to be sure."
        if seen
        else ", and without node names (column NodeList) it is the least that could have "
        f"carried these jobs: waiting is overstated throughout. Give {instead}."
    )
    notes = []
    if recorded:
        least = "The cluster's shape is inferred. Nodes that never ran a GPU job are not in it"
        notes.append(least + rest)
    odd = [f"{count:,} of {gpus} GPUs" for gpus, count in kinds if gpus not in USUAL]
    if odd:
        notes.append(
            f"So many GPUs, or slices of GPUs, were in use at once on some nodes, which may have "
            f"more: {', '.join(odd)}. Give {instead}."
        )
    return replace(shape, source=source, notes=[*shape.notes, *notes])


def _load(table: pa.Table) -> Floats:
    """Return, for each job, the number of GPUs that it kept busy on average over the whole
    trace, divided by `LOAD`."""
    submit = _floats(pc.cast(table["submit_time"], pa.int64())) / 1000
    took = np.nan_to_num(_floats(table["duration_s"]))
    span = max(float(np.ptp(submit)) if len(submit) else 0.0, float(took.max(initial=0.0)), 1.0)
    load: Floats = _floats(table["gpus"]) * took / span / LOAD
    return load


def _unnamed(jobs: _Jobs, partition: str, load: Floats | None) -> list[Node]:
    """Return the inferred nodes of a partition without named nodes: for each GPU type, as many
    nodes as its jobs need.

    Args:
        load: see `_load`; None: starts and ends of the jobs are recorded.
    """
    known = np.isfinite(jobs.nodes) & (jobs.nodes > 0)
    most = np.ceil(jobs.gpus[known] / jobs.nodes[known]).max() if known.any() else PER_NODE
    per_node = max(1, int(most))
    mine = np.array([vc == partition for vc in jobs.vc])
    kinds = np.array(jobs.kind, dtype=object)

    def need(which: NDArray[np.bool_]) -> int:
        had, gpus = which & jobs.ran, jobs.gpus[which]
        at_once = (
            peak_of(jobs.start[had], jobs.end[had], jobs.gpus[had])
            if load is None
            else min(load[which].sum(), gpus.sum())
        )
        most = max(float(at_once), float(gpus.max(initial=0.0)))
        return max(1, ceil(most / per_node - 1e-9))

    asked = {kind: need(mine & (kinds == kind)) for kind in sorted(set(kinds[mine]) - {""})}
    if len(asked) < 2:
        asked = {"": need(mine)}
    else:  # those that ask for none go where most are
        usual = max(asked, key=lambda kind: asked[kind])
        asked[usual] = need(mine & ((kinds == usual) | (kinds == "")))
    return [
        _node(f"{partition}{kind}{i}", [partition], {kind: per_node})
        for kind, count in asked.items()
        for i in range(count)
    ]


def vcs_of(table: pa.Table, kinds: Kinds) -> list[str | None]:
    """Return, for each job of a trace, the virtual cluster in `kinds` that it is replayed in; None
    if there is none."""
    jobs = _Jobs.of(table)
    each = list(zip(jobs.vc, jobs.kind, jobs.where, strict=True))
    known = {job: kinds.vc_of(job[0], {job[1]: 1}, job[2]) for job in set(each)}
    return [known[job] for job in each]


def in_vcs(table: pa.Table, kinds: Kinds) -> pa.Table:
    """Return the table with the column `vc` set to each job's virtual cluster in `kinds`."""
    place, kind = table.schema.get_field_index("vc"), table.schema.field("vc")
    return table.set_column(
        place, kind, pa.array(vcs_of(table, kinds), pa.string()).cast(kind.type)
    )


def cluster_of(table: pa.Table) -> tuple[pa.Table, ClusterSpec, list[str]]:
    """Infer the cluster that a trace ran on, for when the user does not state it.

    Returns (the jobs, each in its virtual cluster; the cluster; sentences about how it was
    inferred).
    """
    shape = inferred(table, "--cluster")
    kinds = by_kind(shape)
    largest = sorted(kinds.spec.vcs.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name or '(no name)'} {nodes}" for name, nodes in largest[:SHOWN])
    more = f" and {len(largest) - SHOWN} more" if len(largest) > SHOWN else ""
    source = f"No --cluster: {shape.source} (nodes by virtual cluster: {shown}{more})."
    return in_vcs(table, kinds), kinds.spec, [source, *shape.notes]


def _floats(column: pa.ChunkedArray) -> Floats:
    """Return a column as numbers, NaN for null."""
    values: Floats = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _texts(table: pa.Table, name: str) -> list[str | None]:
    values: list[str | None] = pc.cast(table[name], pa.string()).to_pylist()
    return values
