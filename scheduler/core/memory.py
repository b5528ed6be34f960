"""The state of a core as a plain record, and how a new core is restored from it.

The models in use and the state of the estimator are stored separately.
"""

from __future__ import annotations

from dataclasses import dataclass

from features.codec import Json, decode, encode
from models.bundle import Bundle
from scheduler.core.cluster import ClusterMemory
from scheduler.core.core import Core
from scheduler.core.holders import HoldingMemory
from scheduler.core.nodes import NodesMemory
from scheduler.core.profiling import StageMemory
from scheduler.core.queue import JobMemory
from scheduler.core.waiting import WaitingMemory


@dataclass(slots=True, kw_only=True)
class QueueMemory:
    """A plain record of the jobs that wait in one virtual cluster, in order; see `Queue`."""

    jobs: list[str]
    fresh: list[str]
    resorted: bool


@dataclass(slots=True, kw_only=True)
class CoreMemory:
    """A plain record of all that a core decides by, made of plain values (`features.codec`).

    Attributes:
        jobs: jobs that have not ended, in order of submission.
        queues: maps each virtual cluster to its queue.
        policy: what the policy has learned and promised: its own `Memory`, encoded.
        holding: cached answers on which runs hold the GPUs that jobs wait for.
        dirty: virtual clusters that are to be served, in order.
        arrivals: number that the next submitted job gets.
        decided: number that the next decision gets.
    """

    jobs: list[JobMemory]
    queues: dict[str, QueueMemory]
    cluster: ClusterMemory
    nodes: NodesMemory
    waiting: WaitingMemory
    stage: StageMemory | None
    policy: Json
    holding: list[HoldingMemory]
    dirty: list[str]
    arrivals: int
    decided: int


def remember(core: Core) -> CoreMemory:
    """Return the state of a core as a plain record, without its models and the state of its
    estimator. Call this between two rounds of decisions."""
    return CoreMemory(
        jobs=[JobMemory.of(queued) for queued in core.jobs.values()],
        queues={
            vc: QueueMemory(
                jobs=[queued.job.job_id for queued in queue],
                fresh=[queued.job.job_id for queued in queue.fresh],
                resorted=queue.resorted,
            )
            for vc, queue in core.queues.items()
        },
        cluster=core.cluster.remember(),
        nodes=core.nodes.remember(),
        waiting=core.waiting.remember(),
        stage=None if core.profiling is None else core.profiling.remember(),
        policy=encode(core.policy.learned.remember()),
        holding=core.holding.remember(),
        dirty=list(core.dirty),
        arrivals=core.arrivals,
        decided=core.next_seq,
    )


def restore(core: Core, memory: CoreMemory, bundle: Bundle | None = None) -> None:
    """Restore the state of a new core from a record, so that it continues as the recorded core
    would. Its estimator must be in the state of that core's estimator.

    Args:
        bundle: the models in use. The estimator must have them already.
    """
    core.jobs = {one.job.job_id: one.restored() for one in memory.jobs}
    known = {job_id: queued.job for job_id, queued in core.jobs.items()}
    core.cluster.restore(memory.cluster, known)
    core.open_queues()
    for run in core.cluster.runs.values():
        if not run.profiling:
            core.runs_by_vc[run.vc][run.job.job_id] = run
    core.bundle = bundle
    if bundle is not None:
        core.policy.use(bundle)
    core.nodes.restore(memory.nodes)
    core.waiting.restore(memory.waiting)
    learned = core.policy.learned
    learned.restore(decode(learned.Memory, memory.policy), core.jobs)
    if core.profiling is not None and memory.stage is not None:
        core.profiling.restore(memory.stage, core.jobs)
    for vc, queue in memory.queues.items():
        core.queues[vc].restore(
            sorted(core.jobs[job_id] for job_id in queue.jobs),  # some keys are of older rules
            [core.jobs[job_id] for job_id in queue.fresh if job_id in core.jobs],
            resorted=queue.resorted,
        )
    core.holding.restore(memory.holding)
    core.dirty = dict.fromkeys(memory.dirty)
    core.arrivals, core.next_seq = memory.arrivals, memory.decided
