"""Hard rules: what no policy may do, whatever it believes.

Policies ask them while they choose; the core asks them again when a policy acts, and stops the
policy that breaks one.
"""

from __future__ import annotations

from scheduler.core.cluster import Cluster, Run, same_type
from scheduler.core.decisions import Reason
from scheduler.core.queue import QueuedJob


class PolicyViolation(ValueError):
    """A policy went beyond what it declared, or gave away what there is not."""


def may_share(
    cluster: Cluster,
    newcomer: QueuedJob,
    run: Run,
    partner: QueuedJob,
    *,
    memory_margin_mib: float = 0.0,
) -> Reason | None:
    """Why a waiting job may not share the GPUs of a run; None when it may.

    Whether it should is for the policy to say. Asked in this order:

    - `AwaitingProfile`: the run is in the profiling partition.
    - `GpusBusy`: it has a partner already, or another number of GPUs.
    - `SharingOptedOut`: the owner of either job does not want it.
    - `NodeDrained`, `ReservedForStarvingJob`: nothing new is to start on these GPUs.
    - `NoMatchingGpuType`: the newcomer asked for another type.
    - `AwaitingProfile`: the memory that either takes is not known.
    - `MemoryGuard`: both together would not leave `memory_margin_mib` of the GPU's memory free.

    Args:
        partner: what is known of the job of the run.
    """
    job = newcomer.job
    if run.profiling:
        return Reason.AWAITING_PROFILE
    if run.partner is not None or job.gpus != run.job.gpus:
        return Reason.GPUS_BUSY
    if not (job.share and run.job.share):
        return Reason.SHARING_OPTED_OUT
    if cluster.is_held(run):
        drained = any(not cluster.pool_of(node).is_open(node) for node in run.nodes)
        return Reason.NODE_DRAINED if drained else Reason.RESERVED_FOR_STARVING_JOB
    if job.gpu_type and not same_type(job.gpu_type, cluster.gpu_type(run) or job.gpu_type):
        return Reason.NO_MATCHING_GPU_TYPE
    own_mib, other_mib = newcomer.memory_mib, partner.memory_mib
    if own_mib is None or other_mib is None:
        return Reason.AWAITING_PROFILE
    room_mib = cluster.gpu_memory_mib(run) - memory_margin_mib
    return None if own_mib + other_mib < room_mib else Reason.MEMORY_GUARD
