"""Idle GPUs of other virtual clusters: who may have them, and what their owners can rely on.

Nothing is taken back from a job that runs, so an owner can be promised this much (`docs/policy.md`
says which rests on what):

* Order, whatever happens: while a job waits in the queue of a virtual cluster, nobody else's job
  is started on its GPUs. An owner's job waits for borrowers only that were there before it.
* `reserve_nodes`, whatever happens: no borrower starts that would leave fewer wholly idle nodes
  there. The next job of the owner, up to that many nodes, starts at once.
* `lend_s`, as sure as predictions: a borrower is let in only if a quantile of its predicted
  duration, or the time limit its owner set and the cluster enforces, is within the bound. Where
  it was the time limit, the bound is certain.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.cluster import Placement, Pool
from scheduler.core.durations import DurationDistribution
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.settings import Borrowing


class Lending:
    """Lends idle GPUs of virtual clusters on `terms`."""

    def __init__(self, terms: Borrowing):
        self.terms = terms

    def admits(self, queued: QueuedJob, distribution: DurationDistribution) -> bool:
        """Return whether a job may borrow at all."""
        lend_s = self.terms.lend_s
        if lend_s is None:
            return True
        limit = queued.job.time_limit_s
        if limit is not None and limit <= lend_s:
            return True
        assert queued.estimate_s is not None
        level, outlived_s = self.terms.quantile, queued.outlived_s
        return distribution.quantile_s(queued.estimate_s, level, outlived_s) <= lend_s

    def span(self, own: Pool, lenders: Iterable[Pool], gpus: int) -> Placement | None:
        """Return GPUs for a job for which its own virtual cluster has no room, or None when there
        are too few.

        Up to a node's worth comes from the first lender that has a node for it. A larger job takes
        wholly idle nodes, its own first, wherever they are.
        """
        if gpus <= own.per_node:
            for pool in lenders:
                placement = pool.place(gpus)
                if placement is not None and self._leaves_enough(pool, placement):
                    return placement
            return None
        placement, left = [], gpus
        for pool in [own, *lenders]:
            spare = pool.size if pool is own else self._spare(pool)
            for node in pool.nodes():
                if spare > 0 and pool.is_idle(node):
                    spare -= 1
                    take = min(left, pool.gpus_of(node))
                    placement.append((node, (1 << take) - 1))
                    left -= take
                    if not left:
                        return placement
        return None

    def _spare(self, pool: Pool) -> int:
        """Return how many of a pool's idle nodes may be lent; 0 or less where none may."""
        return pool.idle_nodes - self.terms.reserve_nodes

    def _leaves_enough(self, pool: Pool, placement: Placement) -> bool:
        return self._spare(pool) > 0 or not any(pool.is_idle(node) for node, _ in placement)
