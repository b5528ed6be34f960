"""What it costs the first job in line that nodes of its virtual cluster are lent for profiling.

If a job of several whole nodes needs just the lent nodes, it waits until as many others are free;
this wait is the cost. Smaller jobs can get other GPUs, so they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.core.cluster import Placement, Pool, Run
from scheduler.core.findings import Hold, Lack
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.reservation import choose


def lacking(
    turn: Turn,
    most: int,
    kept: Placement,
    left_s: Callable[[Run], float],
    price: float,
) -> Lack | None:
    """Return how much the first job in line loses because whole nodes are lent for profiling.
    Return None if the job fits on one node, needs none of the lent nodes or more than `most`, or
    would not wait shorter with them.

    Args:
        kept: GPUs that are reserved for the job.
        left_s: function that returns the predicted seconds until a run's GPUs are free.
        price: factor of the cost; see `Lack`.
    """
    first, pool = turn.queue[0].job, turn.pool
    if first.gpus <= pool.per_node:
        return None
    pool.unreserve(kept)
    missing = -(-first.gpus // pool.per_node) - pool.idle_nodes
    longer_s = _wait_s(turn, pool, first.gpus, left_s) if 0 < missing <= most else None
    pool.reserve(kept)
    if longer_s is None:
        return None
    lacks = missing * pool.per_node
    hold = Hold(longer_s=longer_s, gpus=lacks, of=lacks, kept_out=1)
    return Lack(job_id=first.job_id, gpus=lacks, nodes=missing, hold=hold, price=price)


def _wait_s(turn: Turn, pool: Pool, gpus: int, left_s: Callable[[Run], float]) -> float | None:
    """Return the predicted seconds until `gpus` GPUs of a pool are free if no lent node is given
    back; None if no run that ends would free them."""
    runs = turn.runs()
    chosen = dict(choose(pool, gpus, runs, left_s) or ())
    on = [
        run
        for run in runs
        if any(chosen.get(n, 0) & mask for n, mask in zip(run.nodes, run.gpus, strict=True))
    ]
    return max(map(left_s, on), default=None)
