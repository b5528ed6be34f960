"""How many GPUs one waiting job may count on, counted in one place.

The start that a job is promised, the forecast of its start, the reason why it waits, and the
sentences about these all derive from this count, so that they cannot contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from features.job import Job
from scheduler.core.cluster import Cluster, Placement, Pool, suiting, suits
from scheduler.core.findings import NodesLookedAt
from scheduler.core.obstacles import Obstacle
from scheduler.core.queue import QueuedJob

ALL = -1  # every node, as a bit mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """GPUs of a virtual cluster (or of the profiling partition) for one job, at one moment.

    Every GPU is counted once: owned = lent + unsuited + closed + used + free.

    Attributes:
        need: GPUs that the job asks for.
        owned: GPUs of the nodes of the virtual cluster.
        lent: owned GPUs on nodes that are in the profiling partition now.
        unsuited: GPUs of another type than the job asks for.
        closed: GPUs of the type asked for on which no job may start, busy or not: all GPUs of
            drained nodes, and GPUs that were closed one by one.
        used: open GPUs on which one or two jobs run.
        shared: GPUs on which two jobs run, closed and unsuited GPUs included.
        free: open GPUs on which no job runs, including GPUs that are kept for a job.
        kept: free GPUs that are kept for another waiting job.
        holds: whether the job would fit on the open GPUs if no other job were there.
        holds_opened: whether the job would fit if the closed GPUs were open as well.
    """

    need: int
    owned: int
    lent: int = 0
    unsuited: int = 0
    closed: int = 0
    used: int = 0
    shared: int = 0
    free: int = 0
    kept: int = 0
    holds: bool = True
    holds_opened: bool = True

    @property
    def limit(self) -> int:
        """GPUs of the asked type in the virtual cluster that are not lent, closed GPUs included."""
        return self.owned - self.lent - self.unsuited

    @property
    def open(self) -> int:
        """GPUs that the job may get once no other job runs on them: `limit` without the closed
        ones."""
        return self.limit - self.closed

    @property
    def obstacle(self) -> Obstacle:
        """The obstacle because of which the job could not be placed: `CLOSED` if only closed GPUs
        would hold it, `SCATTERED` if enough GPUs are free, but on too many nodes, otherwise `BUSY`.
        """
        if self.holds_opened and not self.holds:
            return Obstacle.CLOSED
        return Obstacle.SCATTERED if self.need <= self.free else Obstacle.BUSY


def capacity(
    cluster: Cluster, pool: Pool, job: Job, kept_for_it: Iterable[tuple[int, int]] = ()
) -> Capacity:
    """Return how many GPUs a job may count on in a pool of nodes.

    Args:
        pool: the pool of the job's virtual cluster, or the profiling partition.
        kept_for_it: GPUs that are kept for this job, as (node, bit mask) pairs.
    """
    nodes = suiting(cluster, pool, job)
    fits = None if nodes == ALL else [node for node in pool.nodes() if nodes >> node & 1]
    unsuited = 0 if fits is None else pool.gpus - sum(map(pool.gpus_of, fits))
    closed = sum(
        pool.closed_on(node).bit_count() for node in pool.closed_nodes if nodes >> node & 1
    )
    free = (
        pool.free
        if fits is None
        else sum((pool.free_on(node) & ~pool.closed_on(node)).bit_count() for node in fits)
    )
    own = dict(kept_for_it)
    kept = sum(
        (pool.free_on(node) & mask & ~own.get(node, 0) & ~pool.closed_on(node)).bit_count()
        for node, mask in pool.kept()
        if nodes >> node & 1
    )
    lent = 0 if pool is cluster.profiling else cluster.lent_by(pool.name)
    holds = pool.holds(job.gpus, among=nodes)
    return Capacity(
        need=job.gpus,
        owned=pool.gpus + lent,
        lent=lent,
        unsuited=unsuited,
        closed=closed,
        used=pool.gpus - unsuited - closed - free,
        shared=pool.shared,
        free=free,
        kept=kept,
        holds=holds,
        holds_opened=holds or pool.holds(job.gpus, among=nodes, closed_too=True),
    )


def nodes_looked_at(
    cluster: Cluster, pool: Pool, job: Job, kept_for_it: Iterable[tuple[int, int]] = ()
) -> NodesLookedAt:
    """Count the nodes of a pool: those on which a job could go now, and the others by what keeps
    the job from them. Return the counts, and the most GPUs that the job could get on one node. The
    arguments are those of `capacity`."""
    suits_it, own, held = suiting(cluster, pool, job), dict(kept_for_it), dict(pool.kept())
    found, most_free = Counter[str](), 0
    for node in pool.nodes():
        if not suits_it >> node & 1:
            found["other_type"] += 1
            continue
        need, there = min(job.gpus, pool.gpus_of(node)), ~pool.closed_on(node)
        free = pool.free_on(node) & there
        own_free = free & ~(held.get(node, 0) & ~own.get(node, 0))
        most_free = max(most_free, own_free.bit_count())
        if (((1 << pool.gpus_of(node)) - 1) & there).bit_count() < need:
            found["closed"] += 1
        elif free.bit_count() < need:
            found["busy"] += 1
        else:
            found["free" if own_free.bit_count() >= need else "kept"] += 1
    return NodesLookedAt(looked_at=found.total(), most_free=most_free, **found)


class Keeps(Protocol):
    """The part of a policy that `capacity_of` needs: which GPUs of a virtual cluster are kept, and
    for which job."""

    def reservation(self, vc: str) -> tuple[str, Placement] | None: ...


class Has(Protocol):
    """The part of a core, or of a turn, that `capacity_of` needs."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def policy(self) -> Keeps: ...


def capacity_of(core: Has, queued: QueuedJob, *, profiling: bool = False) -> Capacity:
    """Return how many GPUs a waiting job of a core may count on, now.

    Args:
        profiling: count those of the profiling partition, instead of the job's virtual cluster.
    """
    return capacity(*_where(core, queued, profiling=profiling))


def nodes_of_job(core: Has, queued: QueuedJob, *, profiling: bool = False) -> NodesLookedAt:
    """Count the nodes for a waiting job of a core, and return what `nodes_looked_at` does. The
    arguments are those of `capacity_of`."""
    return nodes_looked_at(*_where(core, queued, profiling=profiling))


def _where(
    core: Has, queued: QueuedJob, *, profiling: bool
) -> tuple[Cluster, Pool, Job, Iterable[tuple[int, int]]]:
    vc, cluster = queued.job.vc, core.cluster
    kept = core.policy.reservation(vc)
    own = kept[1] if kept is not None and kept[0] == queued.job.job_id else ()
    return cluster, cluster.profiling if profiling else cluster.pools[vc], queued.job, own


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNow:
    """The present state of a node, for code that has no `Cluster`.

    Attributes:
        number: the node's number, which no other node has.
        lent: whether the node is in the profiling partition.
        jobs: number of running jobs on each GPU of the node.
        closed: bit mask of the GPUs that were closed one by one, without draining the node.
    """

    number: int
    vc: str
    gpu_type: str
    open: bool
    lent: bool
    jobs: tuple[int, ...]
    closed: int = 0


def counted(
    nodes: Iterable[NodeNow], vc: str, gpus: int, gpu_type: str | None, *, profiling: bool = False
) -> Capacity:
    """Return how many GPUs a job may count on in a virtual cluster, computed from a list of nodes.

    The list does not say which GPUs are kept for waiting jobs, so `kept` is 0.

    Args:
        vc: the job's virtual cluster.
        gpus, gpu_type: how many GPUs the job asks for, and of which type.
        profiling: count the GPUs of the profiling partition instead.
    """
    own = [node for node in nodes if (node.lent if profiling else node.vc == vc)]
    lent = 0 if profiling else sum(len(node.jobs) for node in own if node.lent)
    there = [node for node in own if node.lent is profiling]
    suited = [node for node in there if suits(node.gpu_type, gpu_type)]
    pool, owned = Pool(vc, 1), sum(len(node.jobs) for node in own)
    for node in suited:
        pool.add_node(node.number, len(node.jobs))
        pool.take([(node.number, sum(1 << i for i, jobs in enumerate(node.jobs) if jobs))])
        pool.set_open(node.number, node.open)
        pool.close_alone(node.number, node.closed)
    closed = sum(pool.closed_on(node).bit_count() for node in pool.closed_nodes)
    limit = pool.gpus
    holds = pool.holds(gpus)
    return Capacity(
        need=gpus,
        owned=owned,
        lent=lent,
        unsuited=owned - lent - limit,
        closed=closed,
        used=limit - closed - pool.free,
        shared=sum(jobs > 1 for node in there for jobs in node.jobs),
        free=pool.free,
        holds=holds,
        holds_opened=holds or pool.holds(gpus, closed_too=True),
    )


def nodes_of(cluster: Cluster) -> list[NodeNow]:
    """Return the present state of every node of a cluster."""
    jobs = {node: [0] * has.gpus for node, has in cluster.nodes.items()}
    for run in cluster.runs.values():
        for node, mask in zip(run.nodes, run.gpus, strict=True):
            for gpu in range(mask.bit_length()):
                jobs[node][gpu] += mask >> gpu & 1
    return [
        NodeNow(
            number=node,
            vc=has.vc,
            gpu_type=has.gpu_type,
            open=cluster.pool_of(node).is_open(node),
            lent=cluster.pool_of(node) is cluster.profiling,
            jobs=tuple(jobs[node]),
            closed=cluster.pool_of(node).closed_alone.get(node, 0),
        )
        for node, has in cluster.nodes.items()
    ]
