"""What a waiting job lacks on each node of its partitions, by the resources in use at the last
poll."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from scheduler.explain.effect import ByNode, OnNode
from scheduler.explain.shortage import (
    CPU,
    GPU,
    MEMORY,
    WHOLE,
    Lack,
    NodeShort,
    Shortage,
    lacks_of,
    shut_of,
)
from scheduler.slurm.twin.capacity import Books, Capacity, Free, choose, suits
from scheduler.slurm.twin.passes import het_job
from scheduler.slurm.twin.site import Ask, Partition, Running, SiteNode
from scheduler.slurm.twin.twin import MOST_COMPONENTS, SlurmTwin

UNKNOWN = "it does not wait, or is not planned here"


@dataclass(slots=True)
class Accounts:
    """Explains what keeps jobs from nodes, for all jobs of one poll. Data that several jobs need is
    computed once."""

    twin: SlurmTwin
    now: float
    books: Books = field(init=False)
    _runs: dict[str, list[Running]] = field(init=False)  # by node, those that end first
    _empty: Capacity = field(init=False)

    def __post_init__(self) -> None:
        self.books, self._runs = self.twin.books(), {}
        self._empty = Capacity.of(self.twin.site)
        for run in sorted(self.books.running.values(), key=lambda run: run.until):
            for share in run.ask.shares:
                self._runs.setdefault(share.node, []).append(run)

    def shortage(self, ask: Ask, part: Partition) -> Shortage:
        """Return what keeps a job from the nodes of a partition, in total and for the first few
        nodes."""
        found, unsuited = self.nodes(ask, part)
        each = sum(n for _, n in ask.gpus)
        parts = 0
        if head := het_job(ask):
            names = (f"{head}+{n}" for n in range(MOST_COMPONENTS))
            parts = sum(self.twin.asked(name) is not None for name in names) - 1
        return Shortage.of(
            partition=part.name,
            nodes=max(1, ask.nodes),
            gpus=each,
            found=found,
            unsuited=unsuited,
            parts=max(0, parts),
        )

    def by_node(self, job_id: str) -> ByNode:
        """Return what keeps a job from each node of its partitions, in a form that every user may
        read. `unavailable` says so where the job is not known here."""
        ask = self.twin.asked(job_id)
        found, unsuited = list[OnNode](), 0
        for name in ask.partitions if ask is not None else ():
            if ask is None or name not in self.twin.site.partitions:
                continue
            nodes, never = self.nodes(ask, self.twin.site.partitions[name])
            unsuited += never
            found += [
                OnNode(
                    partition=name,
                    node=one.name,
                    lacks=lacks_of(one),
                    shut=shut_of(one),
                    gpus_free=one.gpus,
                    gpus=one.gpus_there,
                    until=one.until,
                )
                for one in nodes
            ]
        return ByNode(job_id, found, unsuited, "" if ask is not None else UNKNOWN)

    def nodes(self, ask: Ask, part: Partition) -> tuple[list[NodeShort], int]:
        """Return, for each node of a partition that could run the job (or its part) if it were
        empty, what the job lacks there. Also return the number of the other nodes."""
        site = self.twin.site
        there = [site.nodes[name] for name in sorted(part.nodes) if name in site.nodes]
        each = self._part(ask, there)
        able = [node for node in there if self._could(each, ask, node)]
        return [self._node(each, ask, part, node) for node in able], len(there) - len(able)

    def _part(self, ask: Ask, there: list[SiteNode]) -> Ask:
        """Return the request that one node must satisfy: the whole job if a node can hold it,
        otherwise the smallest part.
        """
        alone = replace(
            ask,
            nodes=1,
            max_nodes=1,
            req_nodes=frozenset(),
            features="",
            gpus_per_node=False,
            cpus=max(ask.cpus, ask.min_cpus),
        )
        if ask.nodes <= 1 and any(self._holds(alone, node) for node in there):
            return alone
        least = ask.gpus if ask.gpus_per_node else tuple((kind, 1) for kind, n in ask.gpus if n)
        return replace(alone, gpus=least, cpus=ask.min_cpus)

    def _could(self, each: Ask, ask: Ask, node: SiteNode) -> bool:
        named = not ask.req_nodes or ask.nodes > len(ask.req_nodes) or node.name in ask.req_nodes
        return named and suits(ask, node) and self._holds(each, node)

    def _holds(self, each: Ask, node: SiteNode) -> bool:
        return choose(each, self._empty, [node.name], self.twin.site) is not None

    def _node(self, each: Ask, ask: Ask, part: Partition, node: SiteNode) -> NodeShort:
        free = self.books.capacity.free[node.name]
        kinds = {kind for kind, _ in each.gpus}
        mine = [kind for kind, _ in node.gpus if not kinds or "" in kinds or kind in kinds]
        gpus = sum(max(0, free.gpus.get(kind, 0)) for kind in mine)
        made = NodeShort(node.name, gpus, sum(n for kind, n in node.gpus if kind in mine))
        lacks = (*lacking(each, free, node), *self._of_partition(each, part, node))
        shut, why, until = self._shut(ask, part, node)
        if lacks and until is None and shut != "closed":
            until = self._freed(each, free, node, part)
        return replace(made, lacks=lacks, shut=shut, why=why, until=until)

    def _of_partition(self, each: Ask, part: Partition, node: SiteNode) -> Iterator[Lack]:
        """Yield the CPUs that a job lacks on a node because its partition may not give more
        there (`MaxCPUsPerNode`)."""
        most = part.cpus_per_node
        if most is None or most >= node.cpus:
            return
        runs = (run for run in self._runs.get(node.name, ()) if part.name in run.ask.partitions)
        used = sum(s.cpus for run in runs for s in run.ask.shares if s.node == node.name)
        if most - used < each.cpus:
            what = f"{CPU}s that partition {part.name} gives of a node (MaxCPUsPerNode)"
            yield Lack(what, each.cpus, max(0, most - used), most)

    def _shut(self, ask: Ask, part: Partition, node: SiteNode) -> tuple[str, str, float | None]:
        """Return (kind, text, until) of what closes a node to a job however much is free: "closed"
        or "reservation", and the end of a reservation in seconds since the epoch. Return ("", "",
        None) for an open node.
        """
        if not node.open:
            words = f' ("{node.reason}")' if node.reason else ""
            return "closed", f"{state_word(node.state)}{words}", None
        until = self.now + ask.limit_s(part)
        for one in self.twin.site.reservations:
            if one.name == ask.reservation or node.name not in one.nodes:
                continue
            if one.start < until and self.now < one.end:
                return "reservation", one.name, one.end
        return "", "", None

    def _freed(self, each: Ask, free: Free, node: SiteNode, part: Partition) -> float | None:
        """Return the time when enough of a node is free, if runs end at their time limits, seconds
        since the epoch. Return None if it never is, a run has no limit, or a limit of the partition
        forbids it.
        """
        if any(self._of_partition(each, part, node)):
            return None
        left = free.copy()
        for run in self._runs.get(node.name, ()):
            for share in run.ask.shares:
                if share.node == node.name:
                    left.take(share, -1)
            if not any(lacking(each, left, node)):
                return run.until if run.until < inf else None
        return None


def lacking(each: Ask, free: Free, node: SiteNode) -> Iterator[Lack]:
    """Yield the resources that a node lacks for a request, with the amounts asked for, free and
    installed.
    """
    if each.exclusive and free.jobs:
        yield Lack(WHOLE, 1, 0, free.jobs)
        return
    gpus = {kind: max(0, n) for kind, n in free.gpus.items()}
    has = dict(node.gpus)
    for kind, asked in each.gpus:
        there, left = _of_kind(has, kind), _of_kind(gpus, kind)
        if left < asked:
            yield Lack(what=GPU, asked=asked, free=left, there=there, type=kind)
    if free.cpus < each.cpus:
        yield Lack(CPU, each.cpus, max(0, free.cpus), node.cpus)
    memory = each.memory_mib
    if each.per_cpu:
        memory *= each.cpus
    elif each.per_gpu:
        memory *= sum(n for _, n in each.gpus)
    if free.memory_mib < memory:
        yield Lack(MEMORY, memory, max(0.0, free.memory_mib), node.memory_mib)
    full = Free.of(node)
    for name, asked in each.gres:
        if free.left_of(name) < asked:
            yield Lack(name, asked, max(0, free.left_of(name)), full.left_of(name))


def _of_kind(gpus: Mapping[str, int], kind: str) -> int:
    return sum(n for has, n in gpus.items() if kind in ("", has))


_STATES = ("DRAIN", "drained"), ("FAIL", "failing"), ("DOWN", "down"), ("MAINT", "in maintenance")


def state_word(state: str) -> str:
    """Return a node's state in words: "drained" for ``IDLE+DRAIN``. Return an unknown one in small
    letters."""
    found = next((word for mark, word in _STATES if mark in state.upper()), None)
    return found or state.lower().rstrip("*")
