"""Shortest remaining time first for policies that assign allocations. It reads true remaining times
and is only for comparison.

`srtf.py` has the same order for the engine of policies that start whole gangs.
"""

from __future__ import annotations

from reproductions.allocation.allocation import total_gpus
from reproductions.allocation.placement import place_counts
from reproductions.allocation.policy import (
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
)
from reproductions.allocation.statistics import REMAINING_S
from scheduler.core.decisions import Reason


class ShortestRemaining(AllocationPolicy):
    """A policy that gives every job the GPUs that it asks for, shortest remaining time first. Jobs
    that do not fit are passed over.
    """

    name = "shortest-remaining"
    round_s = 60.0
    changes = frozenset({Capability.PREEMPT})
    needs = (REMAINING_S,)

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        left_s = {job.id: job.report(REMAINING_S) for job in snapshot.jobs}
        line = sorted(snapshot.jobs, key=lambda job: (left_s[job.id], job.seq))
        free, chosen = total_gpus(snapshot.nodes), {}
        for job in line:
            if job.job.gpus <= free:
                chosen[job.id] = job.job.gpus
                free -= job.job.gpus
        placed = place_counts(snapshot, chosen)
        grants, ahead = {}, None
        for job in line:
            runs = job.id in placed
            if runs:
                reason = Reason.PRIORITY
            elif job.id in chosen or ahead is None:
                reason = Reason.GPUS_FRAGMENTED
            elif job.allocation is not None:
                reason = Reason.SHORTER_JOB_WAITING
            else:
                reason = Reason.BEHIND_HIGHER_PRIORITY
            grants[job.id] = Grant(
                placed.get(job.id),
                reason,
                (("remaining, s", left_s[job.id]),),
                blocker=None if runs else ahead,
                priority=left_s[job.id],
            )
            ahead = job.id if runs else ahead
        return grants
