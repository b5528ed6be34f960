"""Decides which job gets the next GPU, by the marginal gains of Optimus (EuroSys'18).

Every job starts with the fewest GPUs that it can run on. Then one GPU at a time goes to the job
whose completion it brings forward most. The paper's workers and parameter servers are replaced by
GPUs of a ring.
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
class GpuJob:
    """A job of all-reduce training, which can use different numbers of GPUs.

    Attributes:
        job_id: unique id.
        left_s: function that returns the seconds to completion on a given number of GPUs.
        most: largest number of GPUs that the job can use.
        group: the number of GPUs must be a multiple of this (of a model-parallel group).
        sure: whether `left_s` can be trusted.
    """

    job_id: str
    left_s: Callable[[int], float]
    most: int
    group: int = 1
    sure: bool = True


@dataclass(slots=True)
class GpuGrant:
    """The number of GPUs that a job gets, and the gain per GPU of the last addition."""

    gpus: int = 0
    gain: float = 0.0


def allocate_gpus(
    jobs: Sequence[GpuJob],
    gpus: int,
    *,
    node_gpus: int | None = None,
    objective: Objective = "seconds",
) -> dict[str, GpuGrant]:
    """Return the number of GPUs that every job gets, by job id.

    Args:
        jobs: in order of submission, which also breaks ties.
        gpus: GPUs of the cluster.
        node_gpus: GPUs of a node. A job that has a whole node is also offered another whole node at
            once, so that a dip in speed just beyond a node is passed. None: only one more GPU is
            offered, as published.
        objective: "seconds": gains are seconds saved, as published, which favours long jobs;
            "relative": gains are seconds saved divided by those left.
    """
    grants = {job.job_id: GpuGrant() for job in jobs}
    free = gpus
    heap: list[tuple[float, int, int]] = []
    for order, job in enumerate(jobs):
        if job.group <= min(free, job.most):
            free -= job.group
            grants[job.job_id] = GpuGrant(job.group)
            _offer_gpus(
                heap,
                order,
                job,
                held=job.group,
                free=free,
                node_gpus=node_gpus,
                objective=objective,
            )
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
        _offer_gpus(
            heap, order, job, held=grant.gpus, free=free, node_gpus=node_gpus, objective=objective
        )
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
    """Push a job's best addition of GPUs onto the heap, if one brings its completion forward."""
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
