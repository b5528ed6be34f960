"""Borrowing: which jobs may use idle GPUs of other virtual clusters, and what the owners can rely
on.

A running job is never stopped for an owner, so an owner can be promised this much (`docs/policy.md`
says on what each rests):

* Order, always: while a job waits in the queue of a virtual cluster, no job of another starts on
  its GPUs. An owner's job waits only for borrowers that ran before it was submitted.
* `reserve_nodes`, always: no borrower starts that would leave fewer wholly idle nodes than this.
  The owner's next job starts at once if it needs no more nodes.
* `lend_s`, as sure as predictions: a job may borrow only if a quantile of its predicted duration,
  or the time limit that its owner set and the cluster enforces, is within this bound. With a
  time limit, the bound is certain.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.cluster import Placement, Pool
from scheduler.core.durations import DurationDistribution
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.settings import Borrowing


class Lending:
    """Lends idle GPUs of virtual clusters to jobs of others, on `terms`."""

    def __init__(self, terms: Borrowing):
        self.terms = terms

    def admits(self, queued: QueuedJob, distribution: DurationDistribution) -> bool:
        """Return whether a job is predicted, or limited, to end within `lend_s`, so that it may
        borrow GPUs."""
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
        """Return GPUs for a job for which its own virtual cluster has no room. Return None when
        there are too few.

        A job of up to one node's GPUs gets them from the first lender that has room on a node. A
        larger job takes wholly idle nodes, first those of its own virtual cluster, then those of
        the lenders.
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
        """Return how many wholly idle nodes a pool may lend; 0 or less where it may lend none."""
        return pool.idle_nodes - self.terms.reserve_nodes

    def _leaves_enough(self, pool: Pool, placement: Placement) -> bool:
        return self._spare(pool) > 0 or not any(pool.is_idle(node) for node, _ in placement)
