"""Hard rules that no policy may break, whatever it predicts.

Policies check them while they choose. The core checks them again when a policy acts, and raises
PolicyViolation for an action that breaks one.
"""

from __future__ import annotations

from features.job import Job
from scheduler.core.cluster import (
    Cluster,
    Placement,
    Pool,
    Run,
    part_of,
    same_type,
    suiting,
    suits,
)
from scheduler.core.obstacles import Obstacle
from scheduler.core.queue import QueuedJob


class PolicyViolation(ValueError):
    """Raised when a policy makes a decision that its capabilities do not allow, or gives a job GPUs
    that the job may not have."""


def may_share(
    cluster: Cluster,
    newcomer: QueuedJob,
    run: Run,
    partner: QueuedJob,
    *,
    memory_margin_mib: float = 0.0,
    narrower: bool = False,
) -> Obstacle | None:
    """Return the rule by which a waiting job may not share the GPUs of a run, or None when it may.

    Whether it should share is for the policy to decide. The rules are checked in this order:

    - `PROFILE`: the run is in the profiling partition.
    - `BUSY`: the run has a partner already, or another number of GPUs; with `narrower`, too few.
    - `OWN`: the owner of either job does not allow sharing.
    - `CLOSED`, `KEPT`: no job may start on these GPUs.
    - `TYPE`: the newcomer asked for another GPU type.
    - `PROFILE`: the memory that one of the jobs takes is not known.
    - `MEMORY`: both together would not leave `memory_margin_mib` of the GPU's memory free.

    Args:
        newcomer: the waiting job.
        partner: the job of the run.
        narrower: the newcomer may share some of the GPUs of a run that has more.
    """
    job = newcomer.job
    if run.profiling:
        return Obstacle.PROFILE
    if run.partner is not None or part_of(run, job.gpus) is None:
        return Obstacle.BUSY
    if not narrower and job.gpus != run.job.gpus:
        return Obstacle.BUSY
    if not (job.share and run.job.share):
        return Obstacle.OWN
    if cluster.is_reserved(run):
        return Obstacle.CLOSED if cluster.has_closed(run) else Obstacle.KEPT
    if not suits(cluster.gpu_type(run), job.gpu_type):
        return Obstacle.TYPE
    own_mib, other_mib = newcomer.memory_mib, partner.memory_mib
    if own_mib is None or other_mib is None:
        return Obstacle.PROFILE
    room_mib = cluster.gpu_memory_mib(run) - memory_margin_mib
    return None if own_mib + other_mib < room_mib else Obstacle.MEMORY


def start_fault(
    cluster: Cluster,
    own: Pool,
    job: Job,
    placement: Placement,
    *,
    borrows: bool = False,
    cpus: bool = False,
) -> str:
    """Return why a waiting job may not start on the GPUs of a placement, or "" when it may.

    The GPUs must be as many as the job asks for, on nodes of its virtual cluster that are not
    drained. They must be free, not kept for another job, of the type that the job asks for, and all
    of one type.

    Args:
        own: the pool of the job's virtual cluster.
        borrows: nodes of other virtual clusters are allowed, too.
        cpus: the policy also places CPUs and memory, as a manager of whole nodes does: a job may
            have no GPU of a node, and GPUs of several types.
    """
    given = seen = 0
    gpu_type = ""
    for node, gpus in placement:
        if node not in own or gpus <= 0 or gpus & ~own.open_on(node):
            fault = _node_fault(
                cluster=cluster, own=own, node=node, gpus=gpus, borrows=borrows, cpus=cpus
            )
            if fault:
                return fault
        if seen >> node & 1:
            return f"node {node} is named twice"
        has = cluster.nodes[node].gpu_type
        if not (cpus or suits(has, job.gpu_type)):
            return f"node {node} has GPUs of type {has}, and it asked for {job.gpu_type}"
        if seen and has != gpu_type and not (cpus or same_type(has, gpu_type)):
            return f"its GPUs would be of the types {gpu_type} and {has}"
        gpu_type, seen, given = has, seen | 1 << node, given + gpus.bit_count()
    return "" if given == job.gpus else f"they are {given} GPUs, and it asked for {job.gpus}"


def profiling_fault(cluster: Cluster, job: Job, placement: Placement, max_gpus: int) -> str:
    """Return why a job may not be profiled on the GPUs of a placement, or "" when it may.

    The GPUs must be as many as the job asks for, free, of the type that it asks for, and on open
    nodes of the profiling partition. The job's owner must allow profiling.

    Args:
        max_gpus: the largest job that is profiled, in GPUs.
    """
    if not job.profile:
        return "its owner does not want it profiled"
    if job.gpus > max_gpus:
        return f"it asks for {job.gpus} GPUs, and jobs of up to {max_gpus} are profiled"
    pool = cluster.profiling
    for node, gpus in placement:
        if node not in pool:
            return f"node {node} is not in the profiling partition"
        if gpus <= 0 or gpus & ~pool.open_on(node):
            return f"GPUs of node {node} are held by others, or it is drained"
        has = cluster.nodes[node].gpu_type
        if not suits(has, job.gpu_type):
            return f"node {node} has GPUs of type {has}, and it asked for {job.gpu_type}"
    given = sum(gpus.bit_count() for _, gpus in placement)
    return "" if given == job.gpus else f"they are {given} GPUs, and it asked for {job.gpus}"


def profiling_place(cluster: Cluster, job: Job, max_gpus: int) -> Placement | None:
    """Return GPUs on which a job can be profiled now. Return None where there is no room, or the
    job may not be profiled (`profiling_fault`).

    Args:
        max_gpus: the largest job that is profiled, in GPUs.
    """
    if not job.profile or job.gpus > max_gpus:
        return None
    return cluster.profiling.place(job.gpus, among=suiting(cluster, cluster.profiling, job))


def profiling_has_type(cluster: Cluster, job: Job) -> bool:
    """Return whether the profiling partition has nodes of the GPU type that a job asks for."""
    return not job.gpu_type or bool(suiting(cluster, cluster.profiling, job))


def _node_fault(
    cluster: Cluster, own: Pool, node: int, gpus: int, borrows: bool, cpus: bool
) -> str:
    """Return why a job may not be given these GPUs (a bit mask) of a node; "" when it may."""
    if node not in cluster.nodes:
        return f"there is no node {node}"
    pool = cluster.pool_of(node)
    if pool is cluster.profiling:
        return f"node {node} is in the profiling partition"
    if pool is not own and not borrows:
        return f"node {node} is of virtual cluster {pool.name}, and the policy does not borrow"
    if not pool.is_open(node):
        return f"node {node} is drained"
    if gpus < 0 or not (gpus or cpus) or gpus >> pool.gpus_of(node):
        return f"node {node} has {pool.gpus_of(node)} GPUs, and no such ones"
    if busy := gpus & ~pool.free_on(node):
        holders = [run.job.job_id for run in cluster.runs.values() if _holds(run, node, busy)]
        return f"GPUs of node {node} are held by job {', '.join(holders)}"
    if gpus & pool.closed_on(node):
        return f"GPUs of node {node} are closed"
    if gpus & pool.reserved_on(node):
        return f"GPUs of node {node} are kept for another waiting job"
    return ""


def _holds(run: Run, node: int, gpus: int) -> bool:
    return any(on == node and mask & gpus for on, mask in zip(run.nodes, run.gpus, strict=True))
