"""What a job that waits in a followed Slurm lacks on each node, and the same in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.core.plural import count
from scheduler.explain.words import clock_time

GPU, CPU, MEMORY, WHOLE = "GPU", "CPU", "memory", "whole node"
SHOWN = 4  # nodes that a sentence names
KEPT = 8  # nodes of each kind that are kept with a job


@dataclass(frozen=True, slots=True)
class Lack:
    """A resource of which a node has too little: the job asks for `asked` there, `free` is free,
    and the node has `there` in all. Memory is in MiB.

    Attributes:
        what: GPU, CPU, memory, whole node, or the name of another GRES (generic resource).
        type: GPU type; "" for any.
    """

    what: str
    asked: float
    free: float
    there: float
    type: str = ""

    def __str__(self) -> str:
        return f"{self.what} {self.type}".strip()


@dataclass(frozen=True, slots=True)
class NodeShort:
    """A node that could run a job, or the job's part on one node, and what prevents it now.

    Attributes:
        gpus, gpus_there: free GPUs and all GPUs of the types that the job asks for.
        lacks: resources of which too little is free; empty: none.
        shut: "closed" or "reservation"; "": the node is open to the job.
        why: the node's state with the administrator's text, or the reservation's name.
        until: when the reservation ends, otherwise the latest time when the node could take the
            job, by time limits (seconds since the epoch); None: unknown.
    """

    name: str
    gpus: int = 0
    gpus_there: int = 0
    lacks: tuple[Lack, ...] = ()
    shut: str = ""
    why: str = ""
    until: float | None = None

    @property
    def ready(self) -> bool:
        return not (self.lacks or self.shut)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a job does not start on the nodes of a partition.

    Attributes:
        nodes, gpus: nodes that the job asks for, and GPUs in all or on each node.
        short, shorts: nodes that lack something, the first few of those that lack least, and their
            number.
        shut, shuts: nodes that are closed to the job or kept from it, the first few, and their
            number.
        ready, readies: nodes that lack nothing, the first few, and their number.
        unsuited: nodes of the partition that could never run the job.
        parts: number of the other parts of its heterogeneous job, with which it starts together.
        free_gpus: free GPUs of the types that it asks for, on all nodes that are not shut.
    """

    partition: str
    nodes: int = 1
    gpus: int = 0
    short: tuple[NodeShort, ...] = ()
    shut: tuple[NodeShort, ...] = ()
    ready: tuple[NodeShort, ...] = ()
    shorts: int = 0
    shuts: int = 0
    readies: int = 0
    unsuited: int = 0
    parts: int = 0
    free_gpus: int = 0

    @classmethod
    def of(
        cls,
        partition: str,
        nodes: int,
        gpus: int,
        found: Sequence[NodeShort],
        unsuited: int,
        parts: int = 0,
    ) -> Shortage:
        short = sorted((n for n in found if n.lacks and not n.shut), key=_least)
        shut = [n for n in found if n.shut]
        ready = [n for n in found if n.ready]
        free = sum(n.gpus for n in found if not n.shut)
        return cls(
            partition,
            nodes,
            gpus,
            short=tuple(short[:KEPT]),
            shut=tuple(shut[:KEPT]),
            ready=tuple(ready[:KEPT]),
            shorts=len(short),
            shuts=len(shut),
            readies=len(ready),
            unsuited=unsuited,
            parts=parts,
            free_gpus=free,
        )


def _least(node: NodeShort) -> tuple[bool, int, float, int, str]:
    """Return the sort key of a node. Nodes with enough free GPUs come first; among these and among
    the others, those that lack fewer resources; then those that lack smaller shares of what is
    asked for.
    """
    lack = sum(1 - one.free / one.asked for one in node.lacks if one.asked)
    no_gpu = any(one.what == GPU for one in node.lacks)
    return no_gpu, len(node.lacks), lack, -node.gpus, node.name


# --- in words -------------------------------------------------------------------------------------


def clauses(one: Shortage, now: float) -> list[str]:
    """Return as clauses which resources the nodes of a partition lack for a job, which nodes are
    shut, and until when. For a part of a heterogeneous job that has room, say that it starts with
    the other parts. Return [] if nothing is known to be lacking.
    """
    if one.parts and one.readies >= one.nodes:
        has = f"{_has(one.readies)} enough free for this part"
        text = f"{_names(one.ready, one.readies)} {has}"
        return [text, f"it starts together with {count(one.parts, 'other part')} of its job"]
    if ready_clauses(one):
        return []
    first = [_one_node(one)] if one.short else []
    if one.nodes > 1:
        first = [_some_nodes(one)]
    until = [_until(one, now)] if one.short else []
    found = [*first, *_shut(one, now), *until]
    if not one.short and not one.shut:
        return [f"no node of partition {one.partition} could ever run it"] if one.unsuited else []
    if not one.short and one.nodes == 1:
        found = [f"no node of partition {one.partition} that suits it is open to it", *found]
    return [clause for clause in found if clause]


def ready_clauses(one: Shortage) -> list[str]:
    """Return as clauses which nodes lack nothing for a job that waits all the same. Return [] where
    they are too few.
    """
    if one.readies < max(1, one.nodes):
        return []
    text = f"{_names(one.ready, one.readies)} {_has(one.readies)} enough free for it"
    return [text, "its turn has not come, or it would delay jobs that Slurm has planned there"]


def _some_nodes(one: Shortage) -> str:
    names = f" ({_names(one.ready, one.readies)})" if one.readies else ""
    have = _has(one.readies or 1)
    text = f"it asks for {one.nodes} nodes, and {one.readies or 'none'}{names} {have} enough free"
    return text + (f": on {one.short[0].name} {_lacking(one.short[0])}" if one.short else "")


def _one_node(one: Shortage) -> str:
    best = one.short[0]
    of_gpus = next((lack for lack in best.lacks if lack.what == GPU), None)
    if one.gpus and of_gpus is None and best.gpus >= one.gpus:
        others = [node for node in one.short if not any(n.what == GPU for n in node.lacks)]
        where = ", ".join(f"{n.gpus} of {n.gpus_there} on {n.name}" for n in others[:2])
        more = f" and {len(others) - 2} more nodes" if len(others) > 2 else ""
        return f"GPUs are free ({where}{more}), {_lacking(best, 'not')}"
    with_some = [node for node in one.short if node.gpus]
    if of_gpus is not None and one.free_gpus >= one.gpus > 0 and len(with_some) > 1:
        parts = [f"{n.gpus} on {n.name}" for n in with_some[:SHOWN]]
        rest = one.free_gpus - sum(n.gpus for n in with_some[:SHOWN])
        parts += [f"{rest} elsewhere"] * (rest > 0)
        there = ", ".join(parts[:-1]) + f" and {parts[-1]}"
        kind = f" of type {of_gpus.type}" if of_gpus.type else ""
        free = count(one.free_gpus, "GPU")
        return f"{free}{kind} are free, {there}, and it asks for {one.gpus} on one node"
    return f"on {best.name} {_lacking(best)}"


def lacks_of(node: NodeShort) -> list[str]:
    """Return what a node lacks for a job, as a list of short texts."""
    return [_lack(lack, "short").replace("it asks for ", "asked for ") for lack in node.lacks]


def shut_of(node: NodeShort) -> str:
    """Return as text the state or reservation that closes a node to a job, however much is free on
    it. Return "" for an open node.
    """
    return f"reservation {node.why}" if node.shut == "reservation" else node.why


def _lacking(node: NodeShort, short: str = "short") -> str:
    return ", and ".join(_lack(lack, short) for lack in node.lacks)


def _lack(lack: Lack, short: str) -> str:
    if lack.what == WHOLE:
        jobs = int(lack.there - lack.free)
        does = "runs" if jobs == 1 else "run"
        return f"it asks for a whole node, and {count(jobs, 'job')} {does} there"
    name = {GPU: "GPUs", CPU: "CPUs"}.get(lack.what, lack.what)
    kind = f" of type {lack.type}" if lack.type else ""
    verb = "are" if lack.what.startswith((GPU, CPU)) else "is"
    size = _gib if lack.what == MEMORY else "{:g}".format
    free, there, asked = map(size, (lack.free, lack.there, lack.asked))
    return f"{name}{kind} {verb} {short}: {free} of {there} free, it asks for {asked}"


def _shut(one: Shortage, now: float) -> list[str]:
    found = []
    for node in one.shut[:SHOWN]:
        if node.shut == "closed":
            found.append(f"{node.name} is {node.why}")
        else:
            until = f" until {clock_time(node.until, now)}" if node.until is not None else ""
            found.append(f"reservation {node.why} has {node.name}{until}")
    more = one.shuts - len(found)
    return [*found, *([f"{count(more, 'more node')} likewise"] if more else [])]


def _until(one: Shortage, now: float) -> str:
    times = sorted((n.until, n.name) for n in one.short if n.until is not None)
    if not times or len(times) + one.readies < one.nodes:
        return ""
    at, name = times[max(0, one.nodes - one.readies - 1)]
    where = name if one.nodes == 1 else f"{one.nodes} nodes"
    by = f"could run it by {clock_time(at, now)}"
    return f"{where} {by}, if the jobs there take all of their time limits"


def _names(nodes: Sequence[NodeShort], all_of_them: int) -> str:
    names = ", ".join(node.name for node in nodes[:SHOWN])
    more = all_of_them - min(SHOWN, len(nodes))
    return f"{names} and {count(more, 'more node')}" if more else names


def _has(nodes: int) -> str:
    return "has" if nodes == 1 else "have"


def _gib(mib: float) -> str:
    return f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
