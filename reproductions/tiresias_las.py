"""Tiresias (NSDI'19) as a policy that assigns allocations: two-dimensional least attained service
(LAS), with placement by the skew of a job's model.

`tiresias.py` is the same idea for the engine of policies that start whole gangs, with the settings
that the Lucid paper used. The queues are in `tiresias_queues.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reproductions.allocation.allocation import Allocation, Node, free_gpus, on_freest
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Evidence,
    Grant,
)
from reproductions.allocation.statistics import Statistic
from reproductions.tiresias_queues import LIMITS, LeastAttained, Standing
from scheduler.core.decisions import Reason
from scheduler.core.settings import PolicySettings, setting

# Largest tensor of a model over all of it: models above the cut suffer when spread over nodes.
TENSOR_SKEW: Statistic[float] = Statistic("sizes of tensors")
# Any cut between .14 and .61 separates the published models.
SKEWED = 0.3

Consolidate = Literal["never", "skewed", "always"]


class TiresiasLasSettings(PolicySettings):
    """Settings of `tiresias-las`."""

    limits: list[float] = setting(
        list(LIMITS),
        "used time (see `by_gpus`) at which a job falls from each queue to the next lower one",
        unit="GPU-s",
    )
    by_gpus: bool = setting(True, "used time is GPUs times seconds; false: seconds alone")
    promote: float | None = setting(
        None,
        "a job that has waited this many times as long as it ran goes back to the first queue; "
        "null: never",
        gt=0,
    )
    consolidate: Consolidate = setting(
        "never",
        "which jobs must run on as few nodes as possible: never, always, or skewed (those whose "
        "models have one very large tensor)",
    )
    round_s: float = setting(
        0.0,
        "time between two rounds of decisions; 0: one whenever something happens",
        unit="s",
        ge=0,
    )
    running_first: bool = setting(True, "within a queue, running jobs go before waiting ones")
    published_jumps: bool = setting(
        False,
        "predict when jobs fall to the next queue as the published simulator does, which forgets "
        "their numbers of GPUs",
    )


class TiresiasLas(AllocationPolicy):
    """A policy that orders jobs by attained service (GPU time received). Each job that fits, in
    order, runs; a running job that no longer fits is stopped.
    """

    Settings = TiresiasLasSettings
    name = "tiresias-las"
    changes = frozenset({Capability.PREEMPT})

    def __init__(self, settings: TiresiasLasSettings | None = None, *, seed: int = 0):
        super().__init__(settings, seed=seed)
        given = settings or TiresiasLasSettings()
        self.round_s = given.round_s
        self.consolidate = given.consolidate
        self.needs = (TENSOR_SKEW,) if given.consolidate == "skewed" else ()
        self.queues = LeastAttained(
            given.limits,
            by_gpus=given.by_gpus,
            promote=given.promote,
            running_first=given.running_first,
            published_jumps=given.published_jumps,
        )
        self._jump: float | None = None
        self._last: dict[str, Grant] = {}

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        queues = self.queues
        if not (self.round_s or snapshot.submitted or snapshot.ended) and self._early(snapshot.now):
            return self._last
        for job_id in snapshot.ended:
            queues.leave(job_id)
        jobs = {job.id: job for job in snapshot.jobs}
        for job_id in snapshot.submitted:
            if job_id in jobs:
                queues.join(job_id, jobs[job_id].job.gpus, jobs[job_id].job.submit_time)
        queues.advance(snapshot.now)
        line = [jobs[standing.job_id] for standing in queues.line()]
        admitted = _admitted(line, sum(node.gpus for node in snapshot.nodes))
        placed = self._place(line, admitted, snapshot)
        queues.run(placed)
        self._jump = queues.next_jump()
        self._last = self._grants(line, admitted, placed)
        return self._last

    @property
    def promotions(self) -> int:
        """Return how often a job has been moved back to the first queue so far."""
        return self.queues.promotions

    def next_wake(self, now: float) -> float | None:
        return self._jump

    def _early(self, now: float) -> bool:
        """Return whether the present wake-up is obsolete, because jobs changed since it was
        scheduled.
        """
        return self._jump is None or now < self._jump

    def _place(
        self, line: Sequence[ActiveJob], admitted: set[str], snapshot: DecisionInput
    ) -> dict[str, Allocation]:
        """Return the allocations of the jobs that run: first those in `admitted` are placed, in the
        order of `line`, then the others that still fit.

        A running job stays where it is, unless a job before it fits nowhere else: then it moves, or
        waits. An admitted job waits if the free GPUs are too scattered for it.
        """
        nodes = snapshot.nodes
        placed: dict[str, Allocation] = {}
        kept = {job.id: job.allocation for job in line if job.allocation and job.id in admitted}
        for job in (job for job in line if job.id in admitted):
            held = kept.pop(job.id, None)
            if held is None:
                held = self._room(job, free_gpus(nodes, [*placed.values(), *kept.values()]), nodes)
            if held is None:
                held = self._room(job, free_gpus(nodes, placed.values()), nodes)
                if held is not None:
                    _displace(kept, free_gpus(nodes, [*placed.values(), held]))
            if held is not None:
                placed[job.id] = held
        for job in (job for job in line if job.id not in admitted):
            held = self._room(job, free_gpus(nodes, placed.values()), nodes)
            if held is not None:
                placed[job.id] = held
        return placed

    def _room(self, job: ActiveJob, free: list[int], nodes: Sequence[Node]) -> Allocation | None:
        """Return an allocation for a job from the free GPUs, if possible the GPUs that it holds;
        None if too few are free where it may run.
        """
        if job.allocation is not None and _fits(job.allocation, free):
            return job.allocation
        if self.consolidate == "always" or self._is_skewed(job):
            return _fewest(free, job.job.gpus, max(node.gpus for node in nodes))
        return on_freest(free, job.job.gpus)

    def _is_skewed(self, job: ActiveJob) -> bool:
        return self.consolidate == "skewed" and job.report(TENSOR_SKEW) > SKEWED

    def _grants(
        self, line: Sequence[ActiveJob], admitted: set[str], placed: dict[str, Allocation]
    ) -> dict[str, Grant]:
        """Return, for every job, its allocation if it has one, and the reason why it runs or
        waits.
        """
        grants: dict[str, Grant] = {}
        ahead: str | None = None  # the last job in line that runs
        for job in line:
            standing = self.queues[job.id]
            runs = job.id in placed
            if runs:
                reason = Reason.PRIORITY
            elif job.id in admitted:
                reason = Reason.GPUS_FRAGMENTED
            elif job.allocation is not None:
                reason = Reason.MORE_SERVICE_ATTAINED
            else:
                reason = Reason.GPUS_BUSY  # with those ahead of it
            grants[job.id] = Grant(
                placed.get(job.id),
                reason,
                self._evidence(standing),
                blocker=None if runs else ahead,
                priority=float(standing.queue),
            )
            ahead = job.id if runs else ahead
        return grants

    def _evidence(self, standing: Standing) -> Evidence:
        told: Evidence = (
            ("queue", float(standing.queue)),
            ("attained service", self.queues.attained(standing)),
        )
        if standing.promotions:
            told += (("promotions", float(standing.promotions)),)
        return told


def _admitted(line: Sequence[ActiveJob], free: int) -> set[str]:
    """Return the ids of the jobs that fit into `free` GPUs, taken in order. A job that does not fit
    is passed over.
    """
    admitted = set()
    for job in line:
        if job.job.gpus <= free:
            free -= job.job.gpus
            admitted.add(job.id)
    return admitted


def _fits(allocation: Allocation, free: Sequence[int]) -> bool:
    return all(free[n] >= k for n, k in zip(allocation.nodes, allocation.gpus, strict=True))


def _displace(kept: dict[str, Allocation], free: list[int]) -> None:
    """Drop from `kept` each allocation that no longer fits into `free`. Jobs earlier in `kept` keep
    their GPUs first; kept GPUs are taken out of `free`.
    """
    for job_id, allocation in list(kept.items()):
        if not _fits(allocation, free):
            del kept[job_id]
            continue
        for node, gpus in zip(allocation.nodes, allocation.gpus, strict=True):
            free[node] -= gpus


def _fewest(free: Sequence[int], gpus: int, size: int) -> Allocation | None:
    """Return an allocation on as few nodes of `size` GPUs as possible: whole nodes, and for the
    rest the node with the least room that is enough. Return None when the free GPUs are too
    scattered.
    """
    count, rest = divmod(gpus, size)
    nodes = [node for node, left in enumerate(free) if left == size][:count]
    if len(nodes) < count:
        return None
    taken = [size] * count
    if rest:
        fits = [(k, node) for node, k in enumerate(free) if k >= rest and node not in nodes]
        if not fits:
            return None
        nodes.append(min(fits)[1])
        taken.append(rest)
    return Allocation(tuple(nodes), tuple(taken))
