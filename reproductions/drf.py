"""Dominant resource fairness: equal dominant shares, by progressive filling.

The next task goes to the job whose dominant share is smallest, until no resource is free. With GPUs
as the only resource, a job's dominant share is its share of the cluster's GPUs, and a task is one
GPU. (Ghodsi et al., NSDI'11; elastic and work-conserving, as the sources use it.)
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from reproductions.allocation.allocation import total_gpus
from reproductions.allocation.placement import place_counts
from reproductions.allocation.policy import (
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
)
from reproductions.allocation.statistics import MOST_GPUS
from scheduler.core.decisions import Reason


class Drf(AllocationPolicy):
    """A policy that shares the GPUs evenly among jobs, in rounds."""

    name = "drf"
    round_s = 60.0
    changes = frozenset({Capability.GPUS, Capability.PREEMPT})
    needs = (MOST_GPUS,)

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        counts = self._filled(snapshot)
        placed = place_counts(snapshot, counts)
        cluster = total_gpus(snapshot.nodes)
        fair = ("equal share", 1 / len(snapshot.jobs))
        return {
            job.id: Grant(
                placed.get(job.id),
                Reason.FAIR_SHARE if job.id in placed else Reason.GPUS_BUSY,
                (("dominant share", counts[job.id] / cluster), fair),
            )
            for job in snapshot.jobs
        }

    def _filled(self, snapshot: DecisionInput) -> dict[str, int]:
        """Return the number of GPUs that each job gets, by job id; 0 for none. Jobs with equal
        shares get the next GPU in order of arrival.
        """
        counts = {job.id: 0 for job in snapshot.jobs}
        most = {job.id: job.report(MOST_GPUS) for job in snapshot.jobs}
        queue = [(0, job.seq, job.id) for job in snapshot.jobs]
        heapify(queue)
        free = total_gpus(snapshot.nodes)
        while free and queue:
            count, seq, job_id = queue[0]
            if count >= most[job_id]:
                heappop(queue)
                continue
            counts[job_id] = count + 1
            heapreplace(queue, (count + 1, seq, job_id))
            free -= 1
        return counts
