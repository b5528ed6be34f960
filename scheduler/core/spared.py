"""Nodes that the profiling partition spares: it gives them back while the first job in line of
their virtual cluster needs them.

A node that a virtual cluster lends for good helps the jobs that are profiled on it, and delays the
jobs of that virtual cluster. The most expensive case is a job of several whole nodes that needs
just the lent ones: it waits, and all jobs behind it wait, until other jobs end. The node is given
back where that wait is predicted to be longer than what the jobs to be profiled lose, and only to
this job. Once the node is idle again, it is lent before any other job can start on it, unless the
next in line needs it as badly. One node always stays in the partition: without any, no waiting job
is profiled.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.turn import Host


class SparedNodes:
    """The nodes that the profiling partition has given back for a while.

    Attributes:
        nodes: numbers of these nodes, in the order in which they were given back.
    """

    def __init__(self, nodes: list[int]):
        self.nodes = nodes

    def changed(self, cluster: Cluster) -> None:
        """Drop from the spared nodes (nodes given back by the profiling partition for a while)
        those that were removed, or that are lent again. Called when nodes were added, removed or
        changed."""
        away = [n for n in self.nodes if n in cluster.nodes and n not in cluster.profiling]
        self.nodes = away

    def is_lent_again(self, d: Decision) -> bool:
        """Return whether a recorded decision lends a spared node (one that the profiling partition
        had given back) again. A decision with a position lends the extra node instead, because many
        jobs wait to be profiled."""
        return d.action is Action.LEND and d.nodes[0] in self.nodes and not d.position

    def follow(self, core: Host, d: Decision) -> bool:
        """Carry out a recorded decision that lends or returns a node, if it is about a spared node
        (one that the profiling partition gives back for a while). Return whether it was."""
        [node] = d.nodes
        if d.action is Action.RETURN and d.job_id:
            self._give_back(core, node)
        elif self.is_lent_again(d):
            self._lend(core, node)
        else:
            return False
        return True

    def lend_again(self, core: Host, now: float, loses_s: Callable[[], float]) -> None:
        """Lend idle spared nodes to profiling again, except those that the first job in line needs
        more. Called before queues are served.

        Args:
            loses_s: function that returns the seconds of waiting, in total, that jobs to be
                profiled lose with one node less.
        """
        cluster = core.cluster
        self.changed(cluster)
        for node in list(self.nodes):
            vc = cluster.node_vc[node]
            if not cluster.pools[vc].is_idle(node):
                continue
            place = self.nodes.index(node)
            self._lend(core, node)
            lack = core.lacks_nodes(vc, 1, now)
            if lack is not None and lack.pays(loses_s()):
                self._give_back(core, node, place)  # undecided: nothing has changed
                continue
            core.record(
                now=now,
                action=Action.LEND,
                reason=Reason.NODE_SPARED,
                job_id="",
                vc=vc,
                nodes=(node,),
            )

    def spare(self, core: Host, now: float, loses_s: Callable[[], float], keep: int | None) -> bool:
        """Give back the lent nodes that the first job in line of a virtual cluster needs, where
        that saves waiting in total. Return whether a node that should go back is still in use.

        Args:
            loses_s: function that returns the seconds of waiting, in total, that jobs to be
                profiled lose with one node less.
            keep: number of a node that is not given back here, since `Scaling` lent it; None: there
                is none.
        """
        cluster, here, in_use = core.cluster, core.cluster.profiling, False
        usable = [node for node in sorted(here.nodes()) if not here.closed_on(node)]
        if len(usable) < 2:
            return False
        by_vc: dict[str, list[int]] = {}
        for node in usable:
            if node != keep:
                by_vc.setdefault(cluster.node_vc[node], []).append(node)
        for vc in filter(by_vc.__contains__, core.queues):
            lent = by_vc[vc]
            lack = core.lacks_nodes(vc, min(len(lent), len(usable) - 1), now)
            if lack is None or not lack.pays(costs_s := loses_s()):
                continue
            idle = [node for node in lent if here.is_idle(node)][: lack.nodes]
            if len(idle) < lack.nodes:
                in_use = True
                continue
            for node in idle:
                self._give_back(core, node)
                core.record(
                    now=now,
                    action=Action.RETURN,
                    reason=Reason.NODE_MISSED,
                    job_id=lack.job_id,
                    vc=vc,
                    nodes=(node,),
                    need=lack.gpus,
                    evidence=(*lack.evidence, ("profiled_later_s", costs_s)),
                )
        return in_use

    def _give_back(self, core: Host, node: int, place: int | None = None) -> None:
        core.cluster.give_back(node)
        core.touch(core.cluster.node_vc[node])
        self.nodes.insert(len(self.nodes) if place is None else place, node)

    def _lend(self, core: Host, node: int) -> None:
        core.cluster.lend(node)
        self.nodes.remove(node)
