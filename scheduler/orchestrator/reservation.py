"""Reservations: a job that has waited too long gets GPUs that nobody else may take.

The promise is about overtaking, and does not rest on any prediction. From the moment GPUs are
reserved for a job, no other job is started on them, alone or packed: the job waits for nothing but
the jobs that were running on them already. Predictions only choose which GPUs those are. A busy
node is exchanged for one that is idle now, never for another busy one, so what a job waits for
only ever shrinks. A virtual cluster keeps one reservation at a time, for the job that was
submitted first among those past their bound: holding GPUs idle for many at once costs everybody
far more than it gives them (`docs/policy.md`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from scheduler.cluster import Placement, Pool, Run
from scheduler.core import QueuedJob
from scheduler.orchestrator.gputypes import PoolView

EndsIn = Callable[[Run], float]  # predicted seconds until a run's GPUs are free


class Late:
    """Which jobs have waited longer than the bound, and when the next one will have."""

    def __init__(self, patience_s: float):
        self.patience_s = patience_s
        self._by_vc: dict[str, list[tuple[float, int, QueuedJob]]] = defaultdict(list)

    def is_late(self, queued: QueuedJob, now: float) -> bool:
        return now >= queued.submit_time + self.patience_s

    def expect(self, queued: QueuedJob, now: float) -> None:
        """A job joins its queue."""
        if not self.is_late(queued, now):
            deadline = queued.submit_time + self.patience_s
            heappush(self._by_vc[queued.job.vc], (deadline, queued.seq, queued))

    def due(self, vc: str, now: float) -> list[QueuedJob]:
        """Jobs of a virtual cluster whose bound has passed since the last call."""
        heap, due = self._by_vc[vc], []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap)[2])
        return due

    def next(self, now: float) -> float | None:
        """When the next bound passes; those of jobs no longer waiting are included."""
        times = [heap[0][0] for heap in self._by_vc.values() if heap and heap[0][0] > now]
        return min(times, default=None)


def choose(
    pool: Pool | PoolView, gpus: int, runs: Iterable[Run], ends_in: EndsIn
) -> Placement | None:
    """The GPUs predicted to be free soonest, among those not held; None when there are too few.

    Up to a node's worth is sought on one node. More takes whole nodes, as many as are needed.
    """
    ready: dict[int, list[tuple[float, int]]] = {}  # node -> (seconds until free, GPUs that are)
    for node in pool.nodes():
        if free := pool.open_on(node):
            ready[node] = [(0.0, free)]
    for run in runs:
        seconds = ends_in(run)
        for node, mask in zip(run.nodes, run.gpus, strict=True):
            if node not in pool:
                continue
            if run.partner is None or run.order > run.partner.order:  # a shared GPU once
                ready.setdefault(node, []).append((seconds, mask))
    if gpus <= pool.per_node:
        best: tuple[float, int, int] | None = None
        for node in sorted(ready):
            found = _soonest(ready[node], gpus, pool.held_on(node))
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], node, found[1]
        return None if best is None else [(best[1], best[2])]
    full = (1 << pool.per_node) - 1
    whole = sorted(
        (max(seconds for seconds, _ in parts), node)
        for node, parts in ready.items()
        if not pool.held_on(node)
    )
    need = -(-gpus // pool.per_node)
    return [(node, full) for _, node in whole[:need]] if len(whole) >= need else None


def exchange(pool: Pool | PoolView, held: Placement) -> Placement:
    """The same hold with busy nodes exchanged for idle ones; whole nodes only. `held` is let go."""
    full = (1 << pool.per_node) - 1
    if any(mask != full for _, mask in held):
        return held
    mine = {node for node, _ in held}
    idle = (n for n in pool.nodes() if n not in mine and pool.is_idle(n))
    out: Placement = []
    for node, mask in held:
        if not pool.is_idle(node):
            node = next(idle, node)
        out.append((node, mask))
    return out


def _soonest(parts: list[tuple[float, int]], gpus: int, taken: int) -> tuple[float, int] | None:
    """(seconds, mask) of the `gpus` GPUs of one node that are free first."""
    mask, seconds = 0, 0.0
    for seconds, more in sorted(parts):
        more &= ~(taken | mask)
        while more and mask.bit_count() < gpus:
            low = more & -more
            mask |= low
            more ^= low
        if mask.bit_count() == gpus:
            return seconds, mask
    return None
