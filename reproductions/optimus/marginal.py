"""Decides which job gets the next GPU: the marginal gains of Optimus (EuroSys'18).

Every job starts with the least it can run on; then one GPU at a time goes where it shortens a
job's completion the most. The paper's workers and parameter servers are GPUs of a ring here.
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
    """A job of all-reduce training, which can use any number of GPUs.

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
    """Return the GPUs of every job.

    Args:
        jobs: in order of submission, which also breaks ties.
        gpus: GPUs of the cluster.
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
