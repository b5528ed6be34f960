"""Infers the smallest cluster that could have run the jobs of a dump: nodes by the column NodeList,
GPUs by the jobs on each node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.slurm.read import parse
from scheduler.slurm.read.parse import ParseError
from scheduler.slurm.read.tres import gpu_types

Floats = NDArray[np.float64]
# A partition that ran less of a node's jobs than this does not share the node.
LEAST_SHARE = 0.01
# So many of the nodes that look alike have to have a size before one that never used as many is
# taken to have it too.
LIKELY = 0.1


@dataclass(frozen=True)
class Ran:
    """The resources that a job ran on: nodes, number of GPUs by type, and start and end (seconds
    since the epoch)."""

    partition: str
    nodes: tuple[str, ...]
    start: float
    end: float
    gpus: Mapping[str, int]


@dataclass
class Seen:
    """A node inferred from the jobs that ran on it: its partitions, the most used first, and its
    number of GPUs by type."""

    partitions: list[str]
    gpus: dict[str, int] = field(default_factory=dict)


def expanded(names: str) -> tuple[str, ...]:
    """Return the node names in a Slurm host list; () if the text is no host list."""
    try:
        found = parse.hosts(names)
    except ParseError:
        return ()
    return tuple(name for name in found if re.fullmatch(r"[\w.-]+", name) and name != "None")


def gpus_of(tres: str, gpus: int) -> dict[str, int]:
    """Return the number of GPUs by type in an AllocTRES text; GPUs without a type have the type "".
    If the text does not account for `gpus` GPUs, return that number without a type."""
    try:
        found = gpu_types(tres)
    except ValueError:
        found = None
    return found if found and sum(found.values()) == gpus else {"": gpus}


def nodes_of(jobs: Sequence[Ran]) -> dict[str, Seen]:
    """Return the nodes that the jobs ran on, by name, with partitions and GPUs inferred from the
    jobs."""
    by_node: dict[str, Counter[str]] = {}
    for job in jobs:
        for name in job.nodes:
            by_node.setdefault(name, Counter())[job.partition] += 1
    seen = {
        name: Seen([p for p, n in count.most_common() if n >= LEAST_SHARE * count.total()])
        for name, count in sorted(by_node.items())
    }
    for name, gpus in _peaks(job for job in jobs if len(job.nodes) == 1).items():
        seen[name].gpus = gpus
    _spread([job for job in jobs if len(job.nodes) > 1], seen)
    _alike(seen)
    return seen


def _peaks(jobs: Iterable[Ran]) -> dict[str, dict[str, int]]:
    """Return the most GPUs in use at once: {node: {type: number}}. Each of the jobs ran on one
    node."""
    moments: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for job in jobs:
        for kind, count in job.gpus.items():
            if job.end > job.start:
                moments.setdefault((job.nodes[0], kind), []).extend(
                    [(job.start, count), (job.end, -count)]
                )
    found: dict[str, dict[str, int]] = {}
    for (name, kind), changes in moments.items():
        changes.sort()  # at one moment the ends, which are negative, come first
        held = peak = 0
        for _, count in changes:
            held += count
            peak = max(peak, held)
        found.setdefault(name, {})[kind] = peak
    return {name: _untyped(kinds) for name, kinds in found.items()}


def _untyped(kinds: dict[str, int]) -> dict[str, int]:
    """Return the number of GPUs by type, with GPUs of no type assigned to the type of the others if
    they have only one."""
    typed = {kind: count for kind, count in kinds.items() if kind}
    if len(typed) != 1 or "" not in kinds:
        return typed or kinds
    ((kind, count),) = typed.items()
    return {kind: max(count, kinds[""])}


def _spread(jobs: Sequence[Ran], seen: Mapping[str, Seen]) -> None:
    """Raise the numbers of GPUs in `seen`, in place, so that jobs over several nodes fit. Each node
    gets a share of the job's GPUs, as evenly as possible."""
    for job in jobs:
        for kind, count in job.gpus.items():
            here = [seen[name].gpus for name in job.nodes]
            for gpus in here:
                if kind not in gpus and count % len(here) == 0:
                    gpus[kind] = count // len(here)
            even = -(-count // len(here))
            for gpus in here:
                if sum(has.get(kind, 0) for has in here) >= count:
                    break
                gpus[kind] = max(gpus.get(kind, 0), even)


def _alike(seen: Mapping[str, Seen]) -> None:
    """Raise the number of GPUs of a node that was never full, in place, to the next common number
    among nodes with a similar name, the same partitions and the same GPU type."""
    groups: dict[tuple[Any, ...], list[dict[str, int]]] = {}
    for name, node in seen.items():
        for kind in node.gpus:
            stem = re.sub(r"\d+.*", "", name)
            key = frozenset(node.partitions), stem, kind
            groups.setdefault(key, []).append(node.gpus)
    for (_, _, kind), members in groups.items():
        sizes = Counter(gpus[kind] for gpus in members)
        usual = [n for n, count in sizes.items() if count >= max(2, LIKELY * len(members))]
        for gpus in members:
            gpus[kind] = _full(gpus[kind], sorted(sizes), sorted(usual))


def _full(size: int, seen: Sequence[int], usual: Sequence[int]) -> int:
    """Return the number of GPUs that a node probably has, if its jobs never used more than `size`
    GPUs at once. Most nodes have 1, 2, 4 or 8.

    Args:
        seen: numbers that were seen on similar nodes.
        usual: those of them that are common.
    """
    even = [n for n in seen if n >= size and not n & (n - 1)]
    if size in usual and (size in even or not even):
        return size
    larger = [n for n in usual if n >= size] if size in even else even
    return next(iter(larger), size)


def peak_of(start: NDArray[Any], end: NDArray[Any], gpus: NDArray[Any]) -> int:
    """Return the most GPUs in use at once, by the start, end and GPUs of each job."""
    moments, change = np.concatenate([start, end]), np.concatenate([gpus, -gpus])
    order = np.lexsort((change, moments))  # at one moment the ends come first
    return int(np.max(np.cumsum(change[order]), initial=0))
