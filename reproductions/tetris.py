"""Tetris (SIGCOMM'14): packs by how well a demand aligns with the free resources, and favours short
jobs.

    score = demand . free - e * remaining work      e = mean alignment / mean remaining work

Demand and free resources are vectors of shares of a machine; remaining work is demand x time. GPUs
are the only resource here, so alignment prefers large jobs on empty machines. With one resource the
second term dominates, close to shortest-remaining-work first. The alignment of a job on several
machines is the mean over them. The sources feed Tetris their own estimates; here it reads the true
remaining work, so it is only for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.allocation.allocation import Allocation, Node, free_gpus
from reproductions.allocation.placement import place
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
)
from reproductions.allocation.statistics import REMAINING_S
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting


class TetrisSettings(PolicySettings):
    """Settings of `tetris`."""

    shortness: float = setting(
        1.0,
        "weight of short remaining work against a good fit to the free GPUs; 1: as published, 0: "
        "only the fit counts",
        ge=0,
    )


class Tetris(AllocationPolicy):
    """A policy that gives jobs all the GPUs that they ask for, the best score first, until none
    fits.
    """

    Settings = TetrisSettings
    name = "tetris"
    round_s = 60.0
    changes = frozenset({Capability.PREEMPT})
    needs = (REMAINING_S,)

    def __init__(self, settings: TetrisSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        self.shortness = (settings or TetrisSettings()).shortness

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        nodes = snapshot.nodes
        work = {job.id: job.report(REMAINING_S) * job.job.gpus for job in snapshot.jobs}
        free = free_gpus(nodes, ())
        waiting = {job.id: job for job in snapshot.jobs}
        kept = {job.id: job.allocation for job in snapshot.jobs if job.allocation is not None}
        grants: dict[str, Grant] = {}
        weight: float | None = None
        while waiting:
            found = {i: self._placed(job, free, kept, nodes) for i, job in waiting.items()}
            fits = {i: (a, alignment(a, free, nodes)) for i, a in found.items() if a is not None}
            if not fits:
                break
            if weight is None:
                aligned = sum(value for _, value in fits.values()) / len(fits)
                mean = sum(work[i] for i in fits) / len(fits)
                weight = self.shortness * aligned / mean if mean > 0 else 0.0
            score = {i: value - weight * work[i] for i, (_, value) in fits.items()}
            best = max(score, key=score.__getitem__)
            allocation, value = fits[best]
            for node, count in zip(allocation.nodes, allocation.gpus, strict=True):
                free[node] -= count
            evidence = (("alignment", value), ("remaining GPU-s", work[best]))
            grants[best] = Grant(allocation, Reason.PRIORITY, evidence, priority=-score[best])
            del waiting[best]
        last = next(reversed(grants), None)
        for job_id in sorted(waiting, key=work.__getitem__):
            stopped = waiting[job_id].allocation is not None
            reason = Reason.SHORTER_JOB_WAITING if stopped and last else Reason.GPUS_BUSY
            left = (("remaining GPU-s", work[job_id]),)
            grants[job_id] = Grant(None, reason, left, blocker=last)
        return grants

    @staticmethod
    def _placed(
        job: ActiveJob, free: Sequence[int], kept: dict[str, Allocation], nodes: Sequence[Node]
    ) -> Allocation | None:
        """Return the allocation that the job would get: its present GPUs if they are free,
        otherwise free ones. Return None if too few are free.
        """
        held = kept.get(job.id)
        if held is not None and all(
            free[n] >= k for n, k in zip(held.nodes, held.gpus, strict=True)
        ):
            return held
        return place(list(free), job.job.gpus, job, nodes)


def alignment(allocation: Allocation, free: Sequence[int], nodes: Sequence[Node]) -> float:
    """Return the dot product of demand and free resources, in shares of a machine, as the mean over
    the machines of an allocation.
    """
    parts = [
        count / nodes[node].gpus * free[node] / nodes[node].gpus
        for node, count in zip(allocation.nodes, allocation.gpus, strict=True)
    ]
    return sum(parts) / len(parts)
