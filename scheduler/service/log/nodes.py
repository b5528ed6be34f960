"""The nodes as the log describes them: virtual cluster, GPUs, and who drained them and why.

Like the ledger of jobs, this applies events and recorded decisions, and never decides. A change
that waits for a node to be idle takes effect with the core's decision `Action.CHANGE_NODE`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from scheduler.backends.events import ABOUT_NODES, Event, Kind, canonical
from scheduler.core.cluster import MOST_GPUS, MOST_MIB, ClusterSpec, Node, same_type
from scheduler.core.request import is_change
from scheduler.service.log.store.tables import Columns


@dataclass(frozen=True, slots=True)
class ClosedGpu:
    """A GPU that does not answer: its index on the node, since when (seconds since the epoch), and
    why.
    """

    gpu: int
    since: float
    why: str


def closed_gpus_of(column: str | None) -> tuple[ClosedGpu, ...]:
    """Return the GPUs that do not answer, from the column `closed_gpus` of the table `nodes`."""
    return tuple(ClosedGpu(*one) for one in json.loads(column or "[]"))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node.

    Attributes:
        node: its number, which no other node is ever given.
        profiling: whether it is lent to the profiling partition for good.
        open: False: drained, nothing new starts there.
        leaves: whether the node is removed once nothing runs there.
        becomes: the node's virtual cluster and GPUs once nothing runs there. opens: whether it is
            open then.
        reason, actor, since: why, by whom and since when (seconds since the epoch) the node is
            drained.
        closed_gpus: its GPUs that do not answer, in order; nothing new starts on them.
    """

    node: int
    name: str
    has: Node
    profiling: bool = False
    open: bool = True
    leaves: bool = False
    becomes: Node | None = None
    opens: bool = True
    reason: str = ""
    actor: str = ""
    since: float | None = None
    closed_gpus: tuple[ClosedGpu, ...] = ()

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> NodeRecord:
        """Return a record from a row of the table `nodes`. That table has no column for `opens`,
        which keeps its default.
        """
        to = json.loads(row["change"]) if row["change"] else None
        columns = {
            n: row[n] for n in ("node", "name", "profiling", "open", "reason", "actor", "since")
        }
        becomes = node_of(to) if to else None
        return cls(
            has=node_of(row),
            leaves=to == {},
            becomes=becomes,
            closed_gpus=closed_gpus_of(row["closed_gpus"]),
            **columns,
        )

    @property
    def intended(self) -> Node | None:
        """Return what the node will have once its pending change is made; None: it will be
        removed.
        """
        return None if self.leaves else self.becomes or self.has

    @property
    def closed_since(self) -> float | None:
        """Return when the node was drained or one of its GPUs closed, whichever came last, in
        seconds since the epoch. Return None where neither is so.
        """
        drained = [self.since] if not self.open and self.since is not None else []
        return max([*drained, *(one.since for one in self.closed_gpus)], default=None)

    @property
    def vcs(self) -> tuple[str, ...]:
        """Return the virtual cluster of the node, and also the one to which it is to move, if
        any.
        """
        return (self.has.vc, *((self.becomes.vc,) if self.becomes is not None else ()))

    def row(self) -> Columns:
        """Return the record as a row of the table `nodes`."""
        change = "{}" if self.leaves else "" if self.becomes is None else shape(self.becomes)
        return {
            "node": self.node,
            "name": self.name,
            **asdict(self.has),
            "profiling": self.profiling,
            "open": self.open,
            "change": change,
            "reason": self.reason,
            "actor": self.actor,
            "since": self.since,
            "closed_gpus": canonical([[one.gpu, one.since, one.why] for one in self.closed_gpus])
            if self.closed_gpus
            else None,
        }


def shape(has: Node) -> str:
    """Return what a node has (virtual cluster and GPUs) as canonical JSON."""
    return canonical(asdict(has))


def change_words(change: str) -> str:
    """Return the column `change` of a node (its pending change) in words; "" where nothing is
    pending.
    """
    if not change:
        return ""
    to = json.loads(change)
    if not to:
        return "leaves"
    return f"becomes {to['gpus']} x {to['gpu_type'] or 'GPU'} in {to['vc']}"


def node_of(body: Mapping[str, Any]) -> Node:
    """Return what a node has (virtual cluster and GPUs), from the body of an event."""
    return Node(body["vc"], body["gpus"], body["gpu_type"], body["gpu_memory_mib"])


def well_formed(event: Event) -> bool:
    """Return whether the body of an event has the form of its kind. Only events about nodes,
    settings, holds and changes of jobs are checked; any other counts as well formed. A malformed
    event must not keep the service from reading the rest of the log.
    """
    body, kind = event.body, event.kind
    if kind is Kind.SETTINGS_SET:
        return isinstance(body.get("settings"), Mapping)
    if kind in (Kind.HELD, Kind.RELEASED):
        return isinstance(body.get("operator"), bool)
    if kind is Kind.CHANGED:
        return is_change(body)
    if kind not in ABOUT_NODES:
        return True
    named = "name" if kind is Kind.NODE_ADDED else "node"
    if type(body.get(named)) is not (str if named == "name" else int):
        return False
    if not isinstance(body.get("reason", ""), str):
        return False
    if kind is Kind.NODE_SET:
        return isinstance(body.get("open"), bool)
    if kind is Kind.GPUS_CLOSED:
        closed = body.get("closed")
        return isinstance(closed, Mapping) and all(
            gpu.isdecimal() and int(gpu) < MOST_GPUS and isinstance(why, str)
            for gpu, why in closed.items()
        )
    return kind is Kind.NODE_REMOVED or _describes_node(body)


def _describes_node(body: Mapping[str, Any]) -> bool:
    gpus, memory = body.get("gpus"), body.get("gpu_memory_mib")
    return (
        all(isinstance(body.get(name), str) for name in ("vc", "gpu_type"))
        and type(gpus) is int
        and 1 <= gpus <= MOST_GPUS
        and isinstance(memory, int | float)
        and not isinstance(memory, bool)
        and 0 < memory <= MOST_MIB
    )


class NodeTable:
    """The records of all nodes by number, in order."""

    def __init__(self, records: Iterable[NodeRecord] = ()) -> None:
        self.records = {record.node: record for record in records}
        self.next = 1 + max(self.records, default=-1)
        self._changed: set[int] = set()

    @property
    def closed(self) -> list[int]:
        """Return the numbers of the drained nodes, in order."""
        return [record.node for record in self.records.values() if not record.open]

    def named(self, name: str) -> NodeRecord | None:
        """Return the node with this name, or None."""
        found = (record for record in self.records.values() if record.name == name)
        return next(found, None)

    # --- the log ----------------------------------------------------------------------------

    def matters(self, event: Event) -> bool:
        """Return whether an event about a node changes anything. False where the node was removed,
        or where a node of that name exists already and is to be added.
        """
        if event.kind is Kind.NODE_ADDED:
            return self.named(event.body["name"]) is None
        return event.body["node"] in self.records

    def take(self, event: Event) -> None:
        """Apply an event about a node, for which `matters` is True."""
        body = event.body
        if event.kind is Kind.NODE_ADDED:
            self._put(NodeRecord(self.next, body["name"], node_of(body)))
            self.next += 1
            return
        record = self.records[body["node"]]
        if event.kind is Kind.NODE_SET and body["open"]:
            opened = NodeRecord(record.node, record.name, record.has, record.profiling)
            self._put(replace(opened, closed_gpus=record.closed_gpus))
            return
        if event.kind is Kind.GPUS_CLOSED:
            since = {one.gpu: one.since for one in record.closed_gpus}
            closed = sorted((int(gpu), why) for gpu, why in body["closed"].items())
            closed_gpus = tuple(
                ClosedGpu(gpu, since.get(gpu, event.at), why)
                for gpu, why in closed
                if gpu < record.has.gpus
            )
            self._put(replace(record, closed_gpus=closed_gpus))
            return
        waits = record.leaves or record.becomes is not None
        record = replace(
            record,
            open=False,
            opens=event.kind is not Kind.NODE_SET and (record.opens if waits else record.open),
            reason=body.get("reason", ""),
            actor=event.actor,
            since=record.since if record.since is not None else event.at,
        )
        if event.kind is Kind.NODE_REMOVED:
            record = replace(record, leaves=True, becomes=None)
        elif event.kind is Kind.NODE_CHANGED:
            record = replace(record, leaves=False, becomes=node_of(body))
        self._put(record)

    def settled(self, node: int) -> None:
        """Make the change that waited until `node` was idle: remove the node, or give it what it is
        to have.
        """
        record = self.records[node]
        to = record.becomes
        if to is None:
            del self.records[node]
            self._changed.add(node)
            return
        lent = record.profiling and to.vc == record.has.vc
        done = replace(
            record,
            has=to,
            becomes=None,
            profiling=lent,
            open=record.opens,
            closed_gpus=tuple(one for one in record.closed_gpus if one.gpu < to.gpus),
        )
        self._put(replace(done, reason="", actor="", since=None) if done.open else done)

    def _put(self, record: NodeRecord) -> None:
        self.records[record.node] = record
        self._changed.add(record.node)

    def changes(self) -> list[tuple[int, NodeRecord | None]]:
        """Return the nodes changed since the last call, as (number, node); None stands for one
        that was removed."""
        found = [(node, self.records.get(node)) for node in sorted(self._changed)]
        self._changed = set()
        return found

    # --- what it will be --------------------------------------------------------------------

    def intended(self) -> dict[int, Node]:
        """Return what each node will have once all pending changes are made, by number. Nodes that
        are to be removed are left out.
        """
        found = {node: record.intended for node, record in self.records.items()}
        return {node: has for node, has in found.items() if has is not None}

    def for_jobs(self) -> list[Node]:
        """Return what each node will have once all pending changes are made, without the nodes that
        stay lent to the profiling partition.
        """
        return [
            has
            for node, has in self.intended().items()
            if not (self.records[node].profiling and has.vc == self.records[node].has.vc)
        ]

    def spec(self, *more: Node) -> ClusterSpec:
        """Return a description of the cluster that covers every node as it is and as it will be
        after pending changes, so that a policy can be built for both. `more`: further nodes.
        """
        now = [record.has for record in self.records.values()]
        becomes = [r.becomes for r in self.records.values() if r.becomes is not None]
        return ClusterSpec.of([*now, *becomes, *more])

    def mixed_by(self, event: Event) -> bool:
        """Return whether there will be several types of GPU after an event that adds or changes a
        node.
        """
        nodes, came = self.intended(), node_of(event.body)
        nodes[event.body.get("node", self.next)] = came
        return not all(same_type(came.gpu_type, has.gpu_type) for has in nodes.values())


def as_begun(spec: ClusterSpec, lent: Iterable[int], names: tuple[str, ...]) -> list[NodeRecord]:
    """Return a record of each node of a cluster with which a log begins.

    Args:
        lent: numbers of the nodes that are lent to the profiling partition for good.
        names: names of the nodes, in order; (): those that the cluster's groups state, else
            node000, node001, ...
    """
    given = names_of(spec, names)
    lent = frozenset(lent)
    return [
        NodeRecord(node, name or f"node{node:03d}", has, node in lent)
        for node, (has, name) in enumerate(zip(spec.nodes(), given, strict=True))
    ]


def names_of(spec: ClusterSpec, names: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the name of every node of a cluster, in order; "" for a node without a name. `names`:
    used instead of the names in the cluster's groups, if not empty.
    """
    return names or tuple(
        name
        for vc in spec.vcs
        for group in spec.groups_of(vc)
        for name in group.names or [""] * group.nodes
    )
