"""What is free on which node, now and later, and where a job would be put (select/cons_tres)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from scheduler.policies.slurm.site import Ask, Share, Site, SiteNode


@dataclass(slots=True)
class Free:
    """What is free on a node. `jobs`: how many run there."""

    cpus: int
    memory_mib: float
    gpus: dict[str, int]
    jobs: int = 0

    @classmethod
    def of(cls, node: SiteNode) -> Free:
        return cls(node.cpus, node.memory_mib, dict(node.gpus))

    def take(self, share: Share, sign: int = 1) -> None:
        """A job has a share; `sign` -1: no longer."""
        self.cpus -= sign * share.cpus
        self.memory_mib -= sign * share.memory_mib
        self.jobs += sign
        for kind, count in share.gpus:
            self.gpus[kind] = self.gpus.get(kind, 0) - sign * count

    def copy(self) -> Free:
        return Free(self.cpus, self.memory_mib, dict(self.gpus), self.jobs)


class Capacity:
    """Nodes by name with what is free on them."""

    def __init__(self, free: dict[str, Free]) -> None:
        self.free = free

    @classmethod
    def of(cls, site: Site) -> Capacity:
        """All of it free."""
        return cls({name: Free.of(node) for name, node in site.nodes.items()})

    def take(self, shares: Iterable[Share], sign: int = 1) -> None:
        for share in shares:
            if share.node in self.free:
                self.free[share.node].take(share, sign)

    def later(self) -> Capacity:
        """A copy, to take runs off."""
        return Capacity({name: free.copy() for name, free in self.free.items()})


def suits(ask: Ask, node: SiteNode) -> bool:
    """Whether a job may run on a node at all: features, names."""
    if node.name in ask.exc_nodes:
        return False
    return not ask.features or _has(node.features, ask.features)


def _has(features: frozenset[str], wanted: str) -> bool:
    """``a&b``, ``a,b``, ``a|b``; brackets and counts (``[a*2&b]``) are taken as either."""
    plain = re.sub(r"[\[\]()]|\*\d+", "", wanted)
    if "[" in wanted:
        plain = plain.replace("&", "|")
    return any(
        all(one in features for one in re.split(r"[&,]", either) if one)
        for either in plain.split("|")
    )


def choose(
    ask: Ask, capacity: Capacity, names: Sequence[str], site: Site
) -> tuple[Share, ...] | None:
    """Where a job is put, of these nodes (in order of weight); None: it does not fit.

    One node where one will do, the first of the lowest weight; more where it asks for more, or
    where its GPUs or CPUs are not on one.
    """
    if ask.req_nodes and not ask.req_nodes <= set(names):
        return None
    rest = [name for name in names if name not in ask.req_nodes]
    names = [*(name for name in names if name in ask.req_nodes), *rest]
    least = max(1, ask.nodes, len(ask.req_nodes))
    if least == 1:
        for name in names:
            share = _on(ask, capacity.free[name], site.nodes[name], ask.cpus, _per_node(ask, 1))
            if share is not None:
                return (share,)
        if ask.max_nodes == 1 or (ask.gpus_per_node and ask.gpus) or not spreads(ask):
            return None
    return _over(ask, capacity, names, site, least)


def spreads(ask: Ask) -> bool:
    """Whether it may be on more nodes than it asks for."""
    return ask.max_nodes == 0 or ask.max_nodes > ask.nodes


def _over(
    ask: Ask, capacity: Capacity, names: Sequence[str], site: Site, least: int
) -> tuple[Share, ...] | None:
    """Over several nodes."""
    most = ask.max_nodes or (len(names) if spreads(ask) else least)
    chosen: list[Share] = []
    cpus, gpus = ask.cpus, dict(ask.gpus)
    each = _per_node(ask, least)
    for name in names:
        left = least - len(chosen)
        if left <= 0 and cpus <= 0 and not any(gpus.values()):
            break
        if len(chosen) >= most:
            return None
        free, node = capacity.free[name], site.nodes[name]
        want = max(ask.min_cpus, ceil(max(0, cpus) / max(1, left)))
        want = want if left == 1 else min(want, free.cpus)
        share = _on(ask, free, node, max(1, want), each if ask.gpus_per_node else ())
        if share is None:
            continue
        if not ask.gpus_per_node and any(gpus.values()):
            share = _with_some(share, free, gpus)
            if share is None:
                continue
        chosen.append(share)
        cpus -= share.cpus
    if len(chosen) < least or cpus > 0 or (not ask.gpus_per_node and any(gpus.values())):
        return None
    return tuple(chosen)


def _with_some(share: Share, free: Free, gpus: dict[str, int]) -> Share | None:
    """A share with as many of the GPUs still wanted as there are; at least one."""
    got: list[tuple[str, int]] = []
    there = dict(free.gpus)
    for kind, wanted in gpus.items():
        for has in [kind] if kind else list(there):
            count = min(wanted, there.get(has, 0))
            if count > 0:
                got.append((has, count))
                there[has] -= count
                wanted -= count
        gpus[kind] = wanted
    return Share(share.node, share.cpus, share.memory_mib, tuple(got)) if got else None


def _per_node(ask: Ask, nodes: int) -> tuple[tuple[str, int], ...]:
    """GPUs wanted on each of so many nodes."""
    if ask.gpus_per_node or nodes == 1:
        return ask.gpus
    return tuple((kind, ceil(count / nodes)) for kind, count in ask.gpus)


def _on(
    ask: Ask, free: Free, node: SiteNode, cpus: int, gpus: Sequence[tuple[str, int]]
) -> Share | None:
    """A job's share of a node; None: it does not fit there."""
    if ask.exclusive:
        if free.jobs:
            return None
        cpus = node.cpus
    cpus = max(cpus, ask.min_cpus)
    got = _gpus(free.gpus, gpus)
    if got is None or cpus > free.cpus:
        return None
    if ask.exclusive:
        got = tuple(node.gpus)
    memory = ask.memory_mib
    if ask.per_cpu:
        memory *= cpus
    elif ask.per_gpu:
        memory *= sum(count for _, count in got)
    if memory > free.memory_mib:
        return None
    return Share(node.name, cpus, memory, got)


def _gpus(
    free: Mapping[str, int], wanted: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...] | None:
    got: dict[str, int] = {}
    for kind, count in wanted:
        for has in [kind] if kind else list(free):
            some = min(count, free.get(has, 0) - got.get(has, 0))
            if some > 0:
                got[has] = got.get(has, 0) + some
                count -= some
        if count > 0:
            return None
    return tuple(got.items())
