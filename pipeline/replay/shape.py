"""The shape of a cluster: as a person or Slurm tells it, or as a dump lets it be inferred."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.errors import UserError
from pipeline.worlds.cluster_file import read_cluster
from scheduler.core.cluster import ClusterSpec

_HOSTS = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)?")
_RANGES = re.compile(r"([\w.-]*)\[([\d,-]+)\]([\w.-]*)")
_GPUS = re.compile(r"\bgpu(?::[^:(),\s]+)?:(\d+)")
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|FUTURE|INVAL|UNKNOWN")
MOST_HOSTS = 100_000
# A partition that ran less of a node's jobs than this does not share the node.
LEAST_SHARE = 0.01

Hide = Callable[[str], str]


@dataclass(frozen=True)
class Shape:
    """A cluster.

    Attributes:
        spec: nodes by pool. A pool is a partition, or several that share nodes.
        pools: the pool of each partition.
        said: where it comes from, a sentence.
        notes: what a reader must know, sentences.
    """

    spec: ClusterSpec
    pools: dict[str, str]
    said: str
    notes: list[str] = field(default_factory=list)


def from_cluster_file(path: Path, hide: Hide) -> Shape:
    """The shape a person wrote down; its virtual clusters are the partitions."""
    spec = read_cluster(path).cluster
    vcs = {hide(name): count for name, count in spec.vcs.items()}
    said = "from the cluster file given"
    kept = ClusterSpec(
        vcs, spec.gpus_per_node, spec.gpu_memory_mib, spec.gpu_type, name="as written down"
    )
    return Shape(kept, {name: name for name in vcs}, said)


def from_nodes(path: Path, used: Iterable[str], hide: Hide) -> Shape:
    """The shape in the output of `scontrol show nodes` or `sinfo -N -o "%N %P %G"`.

    Args:
        path: the file.
        used: partitions of the dump; others do not tie nodes together.
        hide: how partitions are called from here on.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"--nodes {path}: {error.strerror}") from None
    found: dict[str, tuple[list[str], int]] = {}
    down: set[str] = set()
    for name, partitions, gres, state in _nodes(text):
        gpus = sum(int(n) for n in _GPUS.findall(gres))
        if gpus and partitions:
            known, _ = found.get(name, ([], 0))
            found[name] = [*known, *(p for p in partitions if p not in known)], gpus
            if _DOWN.search(state):
                down.add(name)
    if not found:
        raise UserError(
            f"--nodes {path}: no node with GPUs and a partition in it; give the output of "
            "scontrol show nodes, or of sinfo -N -o '%N %P %G'"
        )
    per_node = max(gpus for _, gpus in found.values())
    wanted = set(used)
    homes = {
        name: [p for p in map(hide, partitions) if p in wanted] or [hide(partitions[0])]
        for name, (partitions, _) in found.items()
    }
    vcs, pools, notes = _pooled(homes)
    mixed = sum(gpus != per_node for _, gpus in found.values())
    if mixed:
        notes.append(
            f"{mixed:,} nodes have fewer than {per_node} GPUs and are counted as whole nodes."
        )
    if down:
        notes.append(
            f"{len(down):,} nodes were down or drained when the list was made; they are counted."
        )
    return Shape(ClusterSpec(vcs, per_node, name="as listed"), pools, "from the nodes given", notes)


def _pooled(homes: Mapping[str, list[str]]) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Nodes by pool, the pool of each partition, notes. `homes`: partitions of each node."""
    together: dict[str, set[str]] = {}
    for partitions in homes.values():
        group = set(partitions).union(*(together.get(p, ()) for p in partitions))
        for partition in group:
            together[partition] = group
    pools = {partition: "+".join(sorted(group)) for partition, group in together.items()}
    vcs = Counter(pools[partitions[0]] for partitions in homes.values())
    notes = [
        f"Partitions {' and '.join(sorted(group))} share nodes and are replayed as one."
        for group in {pools[p]: g for p, g in together.items()}.values()
        if len(group) > 1
    ]
    return dict(vcs), pools, notes


def inferred(table: pa.Table, dump: Path, since: str, hide: Hide) -> Shape:
    """The least cluster that carried the jobs.

    Per partition, the nodes the dump names (column NodeList), else the GPUs in use at the busiest
    time.

    Args:
        table: the jobs, partitions already called as they shall be.
        dump: where they come from.
        since: clock time (ISO); what was submitted before does not count.
        hide: how partitions are called from here on.
    """
    gpus = table.column("gpus").to_numpy()
    counted = table.column("nodes").to_numpy(zero_copy_only=False).astype(float)
    per_node = 8
    known = np.isfinite(counted) & (counted > 0)
    if known.any():
        per_node = int(max(1, np.max(np.ceil(gpus[known] / counted[known]))))
    vc = np.array([name or "" for name in table.column("vc").cast(pa.string()).to_pylist()])
    names = sorted(set(vc.tolist()))
    homes = {
        node: [hide(p) for p in partitions if hide(p) in names]
        for node, partitions in nodes_seen(dump, since).items()
    }
    homes = {node: partitions for node, partitions in homes.items() if partitions}
    seen, pools, notes = _pooled(homes)
    pools |= {name: name for name in names if name not in pools}
    pool = np.array([pools[name] for name in vc.tolist()])
    start, end = (
        table.column(n).cast(pa.int64()).to_numpy() / 1000 for n in ("start_time", "end_time")
    )
    vcs: dict[str, int] = {}
    for name in sorted(set(pool.tolist())):
        mine = pool == name
        moments = np.concatenate([start[mine], end[mine]])
        change = np.concatenate([gpus[mine], -gpus[mine]])
        order = np.lexsort((change, moments))  # at one moment the ends come first
        peak = int(np.max(np.cumsum(change[order])))
        least = max(1, -(-peak // per_node), -(-int(gpus[mine].max()) // per_node))
        vcs[name] = max(least, seen.get(name, 0))
    how = "those it names" if seen else "as many as were ever in use at once"
    said = (
        f"inferred from the dump: {sum(vcs.values())} nodes of {per_node} GPUs, per partition {how}"
    )
    rest = (
        ". Give --nodes or --cluster to be sure."
        if seen
        else ", and without node names (column NodeList) it is the least that could have "
        "carried these jobs: waiting is overstated throughout. Give --nodes or --cluster."
    )
    notes.append(
        "The cluster's shape is inferred. Nodes that never ran a GPU job are not in it" + rest
    )
    return Shape(ClusterSpec(vcs, per_node, name="inferred"), pools, said, notes)


def nodes_seen(dump: Path, since: str = "") -> dict[str, list[str]]:
    """Nodes that ran GPU jobs, each with its partitions, where the dump names them (NodeList).

    Partitions with most jobs come first; one that ran next to nothing there is left out. Empty
    when there is no such column.
    """
    lists: Counter[tuple[str, str]] = Counter()
    with dump.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        header = next((line for line in lines if line.strip()), "").strip().split("|")
        if not {"NodeList", "Partition", "Submit"} <= set(header):
            return {}
        at, where, submitted = (header.index(n) for n in ("NodeList", "Partition", "Submit"))
        gres = [i for i, name in enumerate(header) if name in ("AllocTRES", "AllocGRES")]
        for line in lines:
            fields = line.rstrip("\r\n").split("|")
            if len(fields) != len(header) or fields[submitted] < since:
                continue
            if any("gpu" in fields[i] for i in gres):
                lists[fields[at], fields[where]] += 1
    jobs: dict[str, Counter[str]] = {}
    for (names, partition), count in lists.items():
        for name in expanded(names):
            jobs.setdefault(name, Counter())[partition] += count
    return {
        name: [p for p, count in found.most_common() if count >= LEAST_SHARE * found.total()]
        for name, found in jobs.items()
    }


def expanded(names: str) -> list[str]:
    """Node names of a Slurm host list: ``n[01-03,7],login`` is n01, n02, n03, n7, login.

    What is no host list, or names more than `MOST_HOSTS` nodes, is no node.
    """
    found: list[str] = []
    for part in _HOSTS.findall(names):
        match = _RANGES.fullmatch(part)
        if match is None:
            if re.fullmatch(r"[\w.-]+", part) and part != "None":
                found.append(part)
            continue
        for item in match[2].split(","):
            first, _, last = item.partition("-")
            if not (first.isdigit() and (not last or last.isdigit())):
                continue
            if int(last or first) - int(first) + len(found) > MOST_HOSTS:
                return []
            found += [
                f"{match[1]}{number:0{len(first)}d}{match[3]}"
                for number in range(int(first), int(last or first) + 1)
            ]
    return found


def _nodes(text: str) -> Iterator[tuple[str, list[str], str, str]]:
    """(node, partitions, GRES, state) of every node described."""
    if "NodeName=" in text:
        for block in re.split(r"(?=^NodeName=)", text, flags=re.MULTILINE):
            said = dict(re.findall(r"\b(NodeName|Partitions|Gres|State)=(\S+)", block))
            if {"NodeName", "Partitions", "Gres"} <= said.keys():
                partitions = said["Partitions"].split(",")
                yield said["NodeName"], partitions, said["Gres"], said.get("State", "")
        return
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and fields[0] != "NODELIST":
            for name in expanded(fields[0]):
                yield name, [fields[1].rstrip("*")], fields[2], ""
