"""Small worlds for allocation policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from features.job import Job
from reproductions.allocation.allocation import Allocation, Node
from reproductions.allocation.core import AllocationCore
from reproductions.allocation.engine import AllocationEngine
from reproductions.allocation.nature import GroundTruth
from reproductions.allocation.policy import (
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Grant,
    Trigger,
)
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.simulation.loop import JobResult, Outcome


def nodes_of(*gpus: int, types: Iterable[str] = ()) -> tuple[Node, ...]:
    """Nodes with these numbers of GPUs, and of these types in turn."""
    named = list(types) or [""] * len(gpus)
    return tuple(Node(i, count, named[i]) for i, count in enumerate(gpus))


def a_job(job_id: str, gpus: int = 1, at: float = 0.0, gpu_type: str | None = None) -> Job:
    return Job(job_id, at, gpus, user="u", vc="vc", gpu_type=gpu_type)


class Scripted(AllocationPolicy):
    """Answers with given assignments, one per round; the last goes on."""

    name = "scripted"

    def __init__(
        self,
        *script: dict[str, Allocation],
        changes: Iterable[Capability] = Capability,
        round_s: float = 60.0,
    ):
        self.script, self.round_s = list(script), round_s
        self.changes = frozenset(changes)
        self.times: list[float] = []

    def acts_on(self, trigger: Trigger) -> bool:
        return trigger.any and not trigger.going

    def allocate(self, snapshot: DecisionInput) -> Assignment:
        self.times.append(snapshot.now)
        now = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        here = {job.id for job in snapshot.jobs}
        return {job: Grant(a, Reason.GAIN) for job, a in now.items() if job in here}


@dataclass
class Played:
    """A finished simulation."""

    outcome: Outcome
    decisions: list[Decision]
    core: AllocationCore

    def of(self, job_id: str, *actions: Action) -> list[Decision]:
        mine = [d for d in self.decisions if d.job_id == job_id]
        return [d for d in mine if d.action in actions] if actions else mine

    def result(self, job_id: str) -> JobResult:
        return next(r for r in self.outcome.jobs if r.job.job_id == job_id)


def play(
    policy: AllocationPolicy, nodes: tuple[Node, ...], jobs: list[Job], ground_truth: GroundTruth
) -> Played:
    """Simulate."""
    core = AllocationCore(nodes, policy, ground_truth)
    decisions: list[Decision] = []
    outcome = AllocationEngine(core, jobs, ground_truth, sink=decisions.extend).run()
    return Played(outcome, decisions, core)
