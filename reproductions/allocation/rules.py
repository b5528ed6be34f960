"""What an assignment may not do, whatever the policy; checked at each allocation."""

from __future__ import annotations

from reproductions.allocation.allocation import Allocation, free_gpus
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
)
from scheduler.core.rules import PolicyViolation


def check(grants: Assignment, snapshot: DecisionInput, policy: AllocationPolicy) -> None:
    """Raise PolicyViolation if an assignment is not allowed."""
    jobs = {job.id: job for job in snapshot.jobs}
    given = {i: g.allocation for i, g in grants.items() if g.allocation is not None}
    for job_id, allocation in given.items():
        if job_id not in jobs:
            raise PolicyViolation(f"{policy.name} gave GPUs to job {job_id}, which is not active")
        _check_shape(allocation, jobs[job_id], snapshot, policy)
        _check_partner(job_id, allocation, given, policy)
    if Capability.PREEMPT not in policy.changes:
        _check_kept(given, snapshot, policy)
    counted = [a for i, a in given.items() if a.partner is None or i < a.partner]
    for node, left in enumerate(free_gpus(snapshot.nodes, counted)):
        if left < 0:
            raise PolicyViolation(f"{policy.name} gave away {-left} GPUs more than node {node} has")


def _check_shape(
    allocation: Allocation, job: ActiveJob, snapshot: DecisionInput, policy: AllocationPolicy
) -> None:
    nodes = allocation.nodes
    if not nodes or len(nodes) != len(allocation.gpus) or len(set(nodes)) != len(nodes):
        raise PolicyViolation(f"{policy.name} gave job {job.id} the nodes {nodes}")
    if min(allocation.gpus) < 1 or not all(0 <= node < len(snapshot.nodes) for node in nodes):
        raise PolicyViolation(
            f"{policy.name} gave job {job.id} {allocation.gpus} GPUs on nodes {nodes}"
        )
    changes = policy.changes
    if Capability.GPUS not in changes and allocation.count != job.job.gpus:
        raise PolicyViolation(
            f"{policy.name} may not resize: job {job.id} asks for {job.job.gpus} GPUs and was "
            f"given {allocation.count}"
        )
    types = {snapshot.nodes[node].gpu_type for node in nodes}
    if len(types) > 1:
        raise PolicyViolation(
            f"{policy.name} spread job {job.id} over the GPU types {sorted(types)}"
        )
    (gpu_type,) = types
    if job.job.gpu_type not in (None, gpu_type):
        raise PolicyViolation(f"{policy.name} gave job {job.id} {gpu_type}, not {job.job.gpu_type}")
    held = job.allocation
    if held is not None and Capability.TYPE not in changes:
        before = snapshot.nodes[held.nodes[0]].gpu_type
        if before != gpu_type:
            raise PolicyViolation(
                f"{policy.name} may not move job {job.id} from {before} to {gpu_type}"
            )
    if allocation.batch is not None and Capability.BATCH not in changes:
        raise PolicyViolation(f"{policy.name} may not set the batch of job {job.id}")


def _check_partner(
    job_id: str, allocation: Allocation, given: dict[str, Allocation], policy: AllocationPolicy
) -> None:
    if allocation.partner is None:
        return
    if Capability.SHARE not in policy.changes:
        raise PolicyViolation(f"{policy.name} may not share the GPUs of job {job_id}")
    partner = given.get(allocation.partner)
    if partner is None or partner.partner != job_id or not partner.same_gpus(allocation):
        raise PolicyViolation(f"{policy.name}: {job_id} and {allocation.partner} are no pair")


def _check_kept(
    given: dict[str, Allocation], snapshot: DecisionInput, policy: AllocationPolicy
) -> None:
    for job in snapshot.jobs:
        if job.allocation is None:
            continue
        now = given.get(job.id)
        if now is None or not now.same_gpus(job.allocation):
            raise PolicyViolation(f"{policy.name} may not take GPUs from running job {job.id}")
