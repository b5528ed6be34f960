"""Optimus with true step times and true numbers of steps, only for comparison.

Pollux' evaluation (OSDI'21) compares with this variant, on all-reduce training.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from reproductions.allocation.allocation import Batch, total_gpus
from reproductions.allocation.placement import place_counts
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
)
from reproductions.allocation.statistics import (
    MOST_GPUS,
    REMAINING_STEPS,
    STEP_TIMES,
    StepTimeOracle,
)
from reproductions.optimus.marginal import GpuJob, allocate_gpus
from scheduler.core.decisions import Reason


class OptimusOracle(AllocationPolicy):
    """A policy that gives each job one GPU in order of arrival, then one GPU at a time to the job
    that saves most seconds by it.
    """

    name = "optimus-oracle"
    round_s = 60.0
    changes = frozenset({Capability.GPUS, Capability.PREEMPT})
    needs = (STEP_TIMES, REMAINING_STEPS, MOST_GPUS)

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        node_gpus = max(node.gpus for node in snapshot.nodes)
        jobs = [
            GpuJob(job.id, _left_s(job, node_gpus), most=max(job.report(MOST_GPUS), 1))
            for job in snapshot.jobs
        ]
        found = allocate_gpus(jobs, total_gpus(snapshot.nodes))
        counts = {job_id: grant.gpus for job_id, grant in found.items() if grant.gpus}
        placed = place_counts(snapshot, counts)
        return {
            job.id: Grant(
                placed.get(job.id),
                Reason.GAIN if job.id in placed else Reason.GPUS_BUSY,
                (("marginal gain", found[job.id].gain),),
            )
            for job in snapshot.jobs
        }


def _left_s(job: ActiveJob, node_gpus: int) -> Callable[[int], float]:
    """Return a function that takes a number of GPUs and returns the job's true seconds to
    completion on them.
    """
    times, steps = job.report(STEP_TIMES), job.report(REMAINING_STEPS)

    def left_s(gpus: int) -> float:
        return steps * step_s(times, gpus, node_gpus)

    return left_s


def step_s(times: StepTimeOracle, gpus: int, node_gpus: int) -> float:
    """Return the seconds of a parameter update on so many GPUs, where nodes are filled one after
    another.

    On one GPU an update takes at least two passes, so that the gradient's noise can be measured.
    """
    batch = times.batch(gpus)
    if gpus == 1 and not batch.accumulation:
        batch = Batch(ceil(batch.per_gpu / 2), 1)
    full, rest = divmod(gpus, node_gpus)
    layout = (node_gpus,) * full + ((rest,) if rest else ())
    step, sync = times.step_times(layout, batch.per_gpu)
    return step + batch.accumulation * (step - sync)
