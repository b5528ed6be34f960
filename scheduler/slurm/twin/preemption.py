"""Which running jobs make way for a job (preemption).

After preempt/partition_prio, preempt/qos and select/cons_tres of Slurm 22.05. Runs that may be
preempted are removed one by one until the job fits: those of the lowest partition tier (QOS
priority, with preempt/qos) first, among these those on the fewest nodes; with youngest_order the
latest started first instead. Then this is done once more, beginning with the run whose removal made
the job fit, so that few runs make way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from scheduler.slurm.twin.capacity import Capacity, choose
from scheduler.slurm.twin.priority import duration_s
from scheduler.slurm.twin.site import Ask, Partition, Running, Share, Site

REQUEUE, CANCEL = "REQUEUE", "CANCEL"
_CREDENTIAL_S = 120  # AuthInfo's cred_expire, by default


class Preemption:
    """The site's rules of preemption: which running jobs make way for which others, and how."""

    def __init__(self, site: Site) -> None:
        self.site = site
        kind = site.config.get("PreemptType", "")
        self._by_tier, self.by_qos = kind.endswith("partition_prio"), kind.endswith("qos")
        order = site.config.get("PreemptParameters", "")
        self._youngest, self._strict = "youngest_order" in order, "strict_order" in order

    def mode(self, qos: str, partition: str) -> str:
        """Return how jobs of a QOS in a partition make way, such as ``REQUEUE``; "" where they are
        not preempted."""
        site, of = self.site, self.site.partitions.get(partition)
        if self._by_tier and of is not None:
            above = (one for one in site.partitions.values() if one.tier > of.tier)
            return of.preempted if any(one.nodes & of.nodes for one in above) else ""
        if self.by_qos and any(qos in one.preempts for one in site.qos.values()):
            own = site.qos[qos].preempted if qos in site.qos else ""
            mode = own or site.config.get("PreemptMode", "OFF")
            return "" if mode == "OFF" else mode
        return ""

    def exempt_s(self, name: str) -> float:
        """Return for how many seconds a job of the QOS `name` runs before it may be preempted."""
        qos = self.site.qos.get(name)
        if qos is not None and qos.exempt_s is not None:
            return qos.exempt_s
        return duration_s(self.site.config.get("PreemptExemptTime", "")) or 0.0

    def makes_way(self, ran: Ask, ask: Ask, part: Partition) -> str:
        """Return how a running job would make way for a job in a partition, such as ``REQUEUE``; ""
        where it would not."""
        here = self.site.partitions.get(next(iter(ran.partitions), ""))
        if not any(share.node in part.nodes for share in ran.shares):
            return ""
        if self.by_qos:
            qos = self.site.qos.get(ask.qos)
            goes_first = qos is not None and ran.qos in qos.preempts
        else:
            goes_first = self._by_tier and here is not None and here.tier < part.tier
        return self.mode(ran.qos, here.name if here is not None else "") if goes_first else ""

    def candidates(
        self, ask: Ask, part: Partition, running: Iterable[Running], now: float
    ) -> list[Running]:
        """Return the runs that may be preempted for a job, in the order in which they would be."""
        if not (self._by_tier or self.by_qos):
            return []
        found = [
            run
            for run in running
            if self.makes_way(run.ask, ask, part) in (REQUEUE, CANCEL)
            and now - run.start >= self.exempt_s(run.ask.qos)
        ]
        return sorted(found, key=self._first_to_go)

    def _first_to_go(self, run: Running) -> tuple[float, ...]:
        if self._youngest:
            return (-run.start,)
        part = self.site.partitions.get(run.ask.partitions[0])
        qos = self.site.qos.get(run.ask.qos)
        rank = (qos.priority if qos else 0) if self.by_qos else (part.tier if part else 0)
        return rank, len(run.ask.shares)

    def room(
        self, ask: Ask, candidates: Sequence[Running], capacity: Capacity, names: Sequence[str]
    ) -> tuple[tuple[Share, ...], list[Running]] | None:
        """Return the shares of nodes on which a job fits after some of the candidate runs are
        preempted, and those runs. Return None if it does not fit even without all candidates.
        """
        found = self._first_fit(ask, candidates, capacity, names)
        if found is None or len(candidates) == 1:
            return found
        placed, gone = found
        nodes, last = {share.node for share in placed}, gone[-1]
        rest = [run for run in candidates if run is not last]
        if not self._strict:
            after = candidates[candidates.index(last) + 1 :]
            shared = {run.ask.job_id: -_nodes_among(run, nodes) for run in after}
            rest.sort(key=lambda run: shared.get(run.ask.job_id, 0))
        placed, gone = self._first_fit(ask, [last, *rest], capacity, names) or found
        nodes = {share.node for share in placed}
        return placed, [run for run in gone if _nodes_among(run, nodes)]

    def _first_fit(
        self, ask: Ask, candidates: Sequence[Running], capacity: Capacity, names: Sequence[str]
    ) -> tuple[tuple[Share, ...], list[Running]] | None:
        later = capacity.later(names)
        for place, run in enumerate(candidates):
            later.take(run.ask.shares, -1)
            placed = choose(ask, later, names, self.site)
            if placed is not None:
                return placed, list(candidates[: place + 1])
        return None

    def requeued_at(self, now: float) -> float:
        """Return the time when a preempted job may begin again: once the credential of its former
        run has expired."""
        given = re.search(r"cred_expire=(\d+)", self.site.config.get("AuthInfo", ""))
        return now + (int(given[1]) if given else _CREDENTIAL_S) + 1


def _nodes_among(run: Running, nodes: set[str]) -> int:
    return sum(share.node in nodes for share in run.ask.shares)
