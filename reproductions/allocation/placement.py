"""Ways of placing that several systems share: they turn numbers of GPUs into allocations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproductions.allocation.allocation import Allocation, Node, free_gpus, on_freest
from reproductions.allocation.policy import ActiveJob, DecisionInput


def place_counts(snapshot: DecisionInput, counts: Mapping[str, int]) -> dict[str, Allocation]:
    """Return each job's allocation, with its number of GPUs on the freest nodes of one GPU type.

    A job whose count is unchanged stays where it is. The others are placed by ascending count (ties
    in the order of `counts`). A job with a count of 0, or for which too little is left, is not in
    the answer.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    placed = {
        job.id: job.allocation
        for job in snapshot.jobs
        if job.allocation is not None and job.gpus == counts.get(job.id)
    }
    free = free_gpus(snapshot.nodes, placed.values())
    for job_id in sorted((i for i in counts if i not in placed), key=counts.__getitem__):
        allocation = place(free, counts[job_id], jobs[job_id], snapshot.nodes)
        if allocation is not None:
            placed[job_id] = allocation
    return placed


def place(free: list[int], gpus: int, job: ActiveJob, nodes: Sequence[Node]) -> Allocation | None:
    """Return GPUs for a job on the freest nodes, of the type it asks for or holds, else of the type
    with most room.

    Takes what it gives out of `free`. None when no one type has enough.
    """
    gpu_type = job.job.gpu_type
    if gpu_type is None and job.allocation is not None:
        gpu_type = nodes[job.allocation.nodes[0]].gpu_type
    if gpu_type is None:
        room: dict[str, int] = {}
        for node in nodes:
            room[node.gpu_type] = room.get(node.gpu_type, 0) + free[node.index]
        gpu_type = max(room, key=room.__getitem__)
    mine = [free[node.index] if node.gpu_type == gpu_type else 0 for node in nodes]
    allocation = on_freest(mine, gpus)
    if allocation is not None:
        for index, count in zip(allocation.nodes, allocation.gpus, strict=True):
            free[index] -= count
    return allocation


def consolidated(gpus: int, per_node: int) -> tuple[int, ...]:
    """Return the number of GPUs on each node when as few nodes as possible are used."""
    full, rest = divmod(gpus, per_node)
    return (per_node,) * full + ((rest,) if rest else ())
