"""Nodes that the profiling partition spares while the first in line elsewhere lacks them.

A node that a virtual cluster lends for good is worth what is profiled on it, and costs the virtual
cluster what waits for it. The dearest case is a job of several whole nodes that lacks no more than
those: it waits, and with it all that is behind it, until other jobs end. The node goes back where
that wait is predicted to be longer than what those who wait to be profiled lose by it, to this job
alone: once it is idle again it is lent before anybody else can have it, unless the next in line
lacks it at such a price. One node always stays: without any, nobody who waits is profiled.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.turn import Host


class SparedNodes:
    """Which nodes are spared now.

    Attributes:
        nodes: in the order in which they went.
    """

    def __init__(self, nodes: list[int]):
        self.nodes = nodes

    def changed(self, cluster: Cluster) -> None:
        """Called when nodes came, went or changed: forget the spared nodes that are gone, or
        lent again."""
        away = [n for n in self.nodes if n in cluster.nodes and n not in cluster.profiling]
        self.nodes = away

    def is_lent_again(self, d: Decision) -> bool:
        """Return whether a decision lends a spared node again. One with a position is another
        lending: of the extra node, while many jobs wait to be profiled."""
        return d.action is Action.LEND and d.nodes[0] in self.nodes and not d.position

    def follow(self, core: Host, d: Decision) -> bool:
        """Carry out what a log says of a spared node. Return whether it was about one."""
        [node] = d.nodes
        if d.action is Action.RETURN and d.job_id:
            self._give_back(core, node)
        elif self.is_lent_again(d):
            self._lend(core, node)
        else:
            return False
        return True

    def lend_again(self, core: Host, now: float, loses_s: Callable[[], float]) -> None:
        """Lend idle nodes to profiling again, except those that the first job in line lacks. Called
        before jobs are served.
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
        """Give back what is lacked, where that pays. Return whether such a node is in use.

        Args:
            loses_s: what those who wait to be profiled lose by a node less: waiting, in sum.
            keep: a node that is lent by another rule.
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
