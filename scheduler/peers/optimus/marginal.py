"""Who gets the next worker, server or GPU: the marginal gains of Optimus (EuroSys'18).

Every job starts with the least it can run on; then one task at a time goes where it shortens a
job's completion the most, per unit of the resource it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

# Gain of a job whose forecast cannot be trusted yet, as a share of what it claims.
UNSURE = 0.95

Objective = Literal["seconds", "relative"]


@dataclass(frozen=True, slots=True)
class PsJob:
    """A job of workers and parameter servers.

    Attributes:
        job_id: unique.
        remaining: steps still to do.
        steps_per_s: speed by (workers, servers).
        worker, server: what one of each takes, by resource, in the order of the capacity.
        sure: its forecast can be trusted.
    """

    job_id: str
    remaining: float
    steps_per_s: Callable[[int, int], float]
    worker: tuple[float, ...]
    server: tuple[float, ...]
    sure: bool = True

    def left_s(self, workers: int, servers: int) -> float:
        """Seconds to completion."""
        return self.remaining / self.steps_per_s(workers, servers)


@dataclass(slots=True)
class PsGrant:
    """Tasks given to a job, and the gain of the last one (seconds per share of the cluster)."""

    workers: int = 0
    servers: int = 0
    gain: float = 0.0


def allocate_tasks(jobs: Sequence[PsJob], capacity: Sequence[float]) -> dict[str, PsGrant]:
    """Workers and servers of every job, in shares of one cluster.

    Args:
        jobs: in order of submission; a job whose first worker and server do not fit gets none.
        capacity: of the cluster, by resource.

    A gain is the saved time over the share that the task takes of its dominant resource. A job
    whose best task fits no more is left; the others go on.
    """
    free = [float(c) for c in capacity]
    grants = {job.job_id: PsGrant() for job in jobs}
    heap: list[tuple[float, int, int]] = []
    for order, job in enumerate(jobs):
        first = tuple(w + s for w, s in zip(job.worker, job.server, strict=True))
        if _take(free, first):
            grants[job.job_id] = PsGrant(1, 1)
            _offer(heap, order, job, grants[job.job_id], capacity)
    while heap:
        gain, order, servers = heappop(heap)
        job = jobs[order]
        grant = grants[job.job_id]
        if not _take(free, job.server if servers else job.worker):
            continue
        grant.workers += 1 - servers
        grant.servers += servers
        grant.gain = -gain
        _offer(heap, order, job, grant, capacity)
    return grants


def _offer(
    heap: list[tuple[float, int, int]],
    order: int,
    job: PsJob,
    grant: PsGrant,
    capacity: Sequence[float],
) -> None:
    """Enter the better of one more worker and one more server, if it helps at all."""
    now_s = job.left_s(grant.workers, grant.servers)
    trust = 1.0 if job.sure else UNSURE
    gains = []
    for servers, task in ((0, job.worker), (1, job.server)):
        saved = now_s - job.left_s(grant.workers + 1 - servers, grant.servers + servers)
        share = max(t / c for t, c in zip(task, capacity, strict=True) if c > 0)
        gains.append((trust * saved / share, -servers))
    gain, servers = max(gains)
    if gain > 0:
        heappush(heap, (-gain, order, -servers))


def _take(free: list[float], task: Sequence[float]) -> bool:
    if any(t > f for t, f in zip(task, free, strict=True)):
        return False
    for i, t in enumerate(task):
        free[i] -= t
    return True


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A job of all-reduce training, of any number of GPUs.

    Attributes:
        job_id: unique.
        left_s: seconds to completion on so many GPUs.
        most: GPUs beyond which it cannot use more.
        group: GPUs come in multiples of this (of a model-parallel group).
        sure: its forecast can be trusted.
    """

    job_id: str
    left_s: Callable[[int], float]
    most: int
    group: int = 1
    sure: bool = True


@dataclass(slots=True)
class GpuGrant:
    """GPUs given to a job, and the gain of the last move (per GPU)."""

    gpus: int = 0
    gain: float = 0.0


def allocate_gpus(
    jobs: Sequence[GpuJob],
    gpus: int,
    *,
    node_gpus: int | None = None,
    objective: Objective = "seconds",
) -> dict[str, GpuGrant]:
    """GPUs of every job.

    Args:
        jobs: in order of submission, which also breaks ties.
        gpus: of the cluster.
        node_gpus: beyond a node, look also for the gain of a whole node more, so that a dip of
            the speed at the edge of a node is passed; None tries one GPU more only, as published.
        objective: "seconds" saved, as published, which serves long jobs best; or seconds saved
            "relative" to those left, which does not.
    """
    grants = {job.job_id: GpuGrant() for job in jobs}
    free = gpus
    heap: list[tuple[float, int, int]] = []
    for order, job in enumerate(jobs):
        if job.group <= min(free, job.most):
            free -= job.group
            grants[job.job_id] = GpuGrant(job.group)
            _offer_gpus(heap, order, job, job.group, free, node_gpus, objective)
    while heap and free > 0:
        gain, order, more = heappop(heap)
        job = jobs[order]
        grant = grants[job.job_id]
        if more <= free:
            free -= more
            grant.gpus += more
            grant.gain = -gain
        elif more <= job.group:
            continue  # not even the smallest move fits
        _offer_gpus(heap, order, job, grant.gpus, free, node_gpus, objective)
    return grants


def _offer_gpus(
    heap: list[tuple[float, int, int]],
    order: int,
    job: GpuJob,
    held: int,
    free: int,
    node_gpus: int | None,
    objective: Objective,
) -> None:
    """Enter the best move of a job, if it helps at all."""
    moves = {job.group}
    if node_gpus is not None and held + job.group > node_gpus:
        moves.add(max(node_gpus // job.group, 1) * job.group)
    now_s = job.left_s(held)
    best: tuple[float, int] | None = None
    for more in sorted(moves):
        if held + more > job.most or more > max(free, job.group):
            continue
        saved = (now_s - job.left_s(held + more)) * (1.0 if job.sure else UNSURE) / more
        gain = saved / now_s if objective == "relative" and now_s > 0 else saved
        if gain > 0 and (best is None or gain > best[0]):
            best = gain, more
    if best is not None:
        heappush(heap, (-best[0], order, best[1]))
