"""The decision core for policies that hand out allocations.

Like `scheduler.core.core`: events and a time go in, decisions come out; no clock, no random source
and no file. The policy answers a snapshot with a whole assignment, and what differs from before is
decided: started, resized, preempted, retuned, waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from features.job import Job
from features.schema import State
from reproductions.allocation.allocation import Allocation, Batch, Inventory, Node, total_gpus
from reproductions.allocation.policy import (
    ActiveJob,
    AllocationPolicy,
    Assignment,
    Capability,
    DecisionInput,
    Evidence,
    Grant,
    Source,
    Trigger,
)
from reproductions.allocation.rules import check
from reproductions.allocation.statistics import Statistic
from scheduler.core.decisions import Action, Decision, Reason

T = TypeVar("T")
_LEFT_OUT = Grant(None, Reason.NO_GAIN)
_IDLE_ROUNDS = 100  # in which nobody gets anything although nothing else will happen


class UnmetNeeds(ValueError):
    """Raised where the policy needs a statistic that is not available."""


def check_needs(policy: AllocationPolicy, source: Source) -> None:
    """Raise UnmetNeeds if the policy needs a statistic that the source does not offer."""
    unmet = [need.name for need in policy.needs if need not in source.offers]
    if unmet:
        raise UnmetNeeds(f"{policy.name} needs {' and '.join(unmet)}; this workload has none")


class AllocationCore:
    """A decision core that holds nodes, active jobs and one policy.

    Args:
        nodes: the cluster; `Node.index` counts from 0.
        policy: decides who gets what.
        source: reports the statistics that the policy declared.

    Raises:
        UnmetNeeds: `source` does not offer one of them.
    """

    def __init__(self, nodes: Iterable[Node], policy: AllocationPolicy, source: Source):
        check_needs(policy, source)
        self.nodes = tuple(nodes)
        self.gpus = total_gpus(self.nodes)
        self.policy = policy
        self.source = source
        self.jobs: dict[str, ActiveJob] = {}
        self.assignment: dict[str, Allocation] = {}
        self.inventory = Inventory(self.nodes)
        self.rounds = 0  # times the policy allocated
        self._trigger = Trigger()
        self._idle_rounds = 0
        self._last_round: float | None = None
        self._got_on: list[str] = []
        self._tuning: dict[str, Evidence] = {}  # why the batch is what it is
        self._now = 0.0
        self._position: dict[str, int] = {}  # in line, of those that wait
        self._decisions: list[Decision] = []
        self._seq = 0
        self._arrivals = 0

    # --- events -----------------------------------------------------------------------------

    def submitted(self, job: Job, now: float) -> None:
        """Called when a job is submitted. It is refused at once if it can never run. Raises
        ValueError if it was submitted already."""
        if job.job_id in self.jobs:
            raise ValueError(f"job {job.job_id} was submitted twice")
        active = ActiveJob(job, self._arrivals, since=now, settled=now)
        self._arrivals += 1
        reason, evidence = self._refusal(job)
        if reason is not None:
            self._record(now, Action.REFUSE, reason, active, evidence=evidence, limit=self.gpus)
            return
        active._ask = lambda statistic, job_id: self._report(statistic, job_id, self._now)
        self.jobs[job.job_id] = active
        self._trigger.submitted.append(job.job_id)
        self._record(now, Action.ENQUEUE, Reason.SUBMITTED, active, limit=self.gpus)
        if self.policy.round_s and now % self.policy.round_s:
            active.reason = Reason.NEXT_ROUND
            waiting = sum(job.allocation is None for job in self.jobs.values())
            self._record(now, Action.WAIT, Reason.NEXT_ROUND, active, position=waiting)

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        """Called when a job ended. Its GPUs are free."""
        active = self.jobs.pop(job_id)
        active.settle(now)
        self._trigger.ended.append(job_id)
        self._trigger.going.discard(job_id)
        if self.assignment.pop(job_id, None) is not None:
            self._part(job_id)
            self.inventory.assign(self.assignment)
        self.policy.ended(active, now)

    def progressed(self, job_id: str, now: float, *, lease_over: bool = False) -> None:
        """Called when a running job has completed an epoch or round of its own, so that the next
        `decide` may choose its batch size again. With `lease_over`, its lease has ended, too."""
        self._got_on.append(job_id)
        if lease_over:
            self._trigger.paused.append(job_id)
            self._trigger.going.discard(job_id)

    def wake(self, now: float) -> None:
        """Called at the time that `next_wake` returned, so that the next `decide` allocates
        although nothing has happened."""
        self._trigger.woken = True

    def next_wake(self, now: float) -> float | None:
        """Return the time (seconds) at which `wake` must be called even if no event happens before;
        None if it need not be called."""
        if not self.jobs:
            return None
        round_s = self.policy.round_s
        if round_s:
            return (now // round_s + 1) * round_s
        return self.policy.next_wake(now)

    def last_wake(self, now: float) -> float | None:
        """Return the time (seconds) of a wake that may still start waiting jobs when nothing runs
        and no event is to come; None if there is none."""
        return self.next_wake(now) if self._idle_rounds < _IDLE_ROUNDS else None

    def decide(self, now: float) -> list[Decision]:
        """Allocate GPUs and choose batch sizes again where that is due. Return all decisions taken
        since the last call."""
        self._now = now
        if self._due(now):
            self._allocate(now)
        if self._got_on:
            self._retune(now)
        decisions, self._decisions = self._decisions, []
        return decisions

    # --- allocation -------------------------------------------------------------------------

    def _due(self, now: float) -> bool:
        if now == self._last_round and not self._trigger.any:
            return False
        round_s = self.policy.round_s
        if round_s:
            return bool(self.jobs) and now % round_s == 0 and now != self._last_round
        return bool(self.jobs) and self._trigger.any and self.policy.acts_on(self._trigger)

    def _allocate(self, now: float) -> None:
        for active in self.jobs.values():
            active.settle(now)
        trigger, self._trigger = self._trigger, Trigger()
        self._last_round = now
        self.rounds += 1
        snapshot = DecisionInput(
            now=now,
            jobs=list(self.jobs.values()),
            nodes=self.nodes,
            submitted=tuple(trigger.submitted),
            ended=tuple(trigger.ended),
        )
        grants = self.policy.allocate(snapshot)
        check(grants, snapshot, self.policy)
        before = self.assignment
        self.assignment = self._tuned(grants)
        self._got_on = [job_id for job_id in self._got_on if job_id not in self.assignment]
        self._trigger.going = set(self.assignment)
        if self.assignment != before:
            self.inventory.assign(self.assignment)
        line = [job_id for job_id in grants if job_id not in self.assignment]
        self._position = {job_id: place for place, job_id in enumerate(line, start=1)}
        for active in snapshot.jobs:
            self._decide(active, grants.get(active.id, _LEFT_OUT), now)
        nothing = not self.assignment
        self._idle_rounds = self._idle_rounds + 1 if nothing else 0

    def _tuned(self, grants: Assignment) -> dict[str, Allocation]:
        """Return the allocations of an assignment by job, each with the batch the policy
        chooses for it. Jobs without an allocation are left out.
        """
        tuned: dict[str, Allocation] = {}
        self._tuning = {}
        for job_id, grant in grants.items():
            allocation = grant.allocation
            if allocation is None:
                continue
            if Capability.BATCH in self.policy.changes and allocation.batch is None:
                allocation = self._tune(self.jobs[job_id], allocation)
            tuned[job_id] = allocation
        return tuned

    def _tune(self, active: ActiveJob, allocation: Allocation) -> Allocation:
        held = active.allocation
        keeps = held.batch if held is not None and allocation.same_gpus(held) else None
        choice = self.policy.tune(active, allocation)
        batch, self._tuning[active.id] = choice if choice is not None else (keeps, ())
        return _with_batch(allocation, batch)

    def _retune(self, now: float) -> None:
        """Let the policy choose anew the batch of jobs that made progress since it last
        allocated.
        """
        if Capability.BATCH in self.policy.changes:
            for job_id in self._got_on:
                active = self.jobs.get(job_id)
                if active is None or active.allocation is None:
                    continue
                tuned = self._tune(active, _with_batch(active.allocation, None))
                if tuned != active.allocation:
                    self.assignment[job_id] = active.allocation = tuned
                    self._record(
                        now,
                        Action.RETUNE,
                        Reason.BATCH_CHOICE,
                        active,
                        evidence=self._tuning[job_id],
                    )
        self._got_on = []

    def _decide(self, active: ActiveJob, grant: Grant, now: float) -> None:
        """Record the decision on one job, unless its allocation and reason are unchanged."""
        held, given = active.allocation, self.assignment.get(active.id)
        action, evidence, reason = Action.WAIT, grant.evidence, grant.reason
        if given is not None:
            evidence += self._tuning.get(active.id, ())
            if held is None:
                action = Action.START
            elif not given.same_gpus(held):
                action = Action.RESIZE
            elif given.partner != held.partner and given.partner is not None:
                action = Action.PACK
            elif given.batch != held.batch:
                action, reason = Action.RETUNE, Reason.BATCH_CHOICE
            else:
                active.allocation = given
                active.reason = grant.reason
                return
            if action in (Action.START, Action.RESIZE):
                active.restarts += active.first_start is not None
                active.first_start = now if active.first_start is None else active.first_start
                active.since = now
        elif held is not None:
            action, active.since = Action.PREEMPT, now
        elif grant.reason is active.reason:
            return
        active.allocation = given
        active.reason = reason
        self._record(
            now,
            action,
            reason,
            active,
            evidence=evidence,
            blocker=grant.blocker,
            priority=grant.priority,
            free=self.gpus - self.inventory.in_use,
            limit=self.gpus,
            position=self._position.get(active.id),
        )

    def _part(self, job_id: str) -> None:
        """Remove the job from its partner's allocation, so that the partner has the shared GPUs
        alone.
        """
        for other, allocation in list(self.assignment.items()):
            if allocation.partner == job_id:
                alone = Allocation(allocation.nodes, allocation.gpus, allocation.batch)
                self.assignment[other] = self.jobs[other].allocation = alone

    def _refusal(self, job: Job) -> tuple[Reason | None, Evidence]:
        refused = self.source.refusal(job)
        if refused is not None:
            return refused
        if job.gpus < 1:
            return Reason.INVALID_REQUEST, ()
        rigid = Capability.GPUS not in self.policy.changes
        by_type: dict[str, int] = {}
        for node in self.nodes:
            by_type[node.gpu_type] = by_type.get(node.gpu_type, 0) + node.gpus
        largest = by_type.get(job.gpu_type, 0) if job.gpu_type else max(by_type.values(), default=0)
        if not largest:
            return Reason.NO_MATCHING_GPU_TYPE, (("type", job.gpu_type or ""),)
        if rigid and job.gpus > largest:
            return Reason.INVALID_REQUEST, (("most GPUs of one type", largest),)
        return None, ()

    def _report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        if statistic not in self.policy.needs:
            raise LookupError(f"{self.policy.name} did not declare that it needs {statistic.name}")
        return self.source.report(statistic, job_id, now)

    def _record(
        self, now: float, action: Action, reason: Reason, active: ActiveJob, **more: Any
    ) -> None:
        held = active.allocation
        masks = self.inventory.held.get(active.id, {})
        self._decisions.append(
            Decision(
                seq=self._seq,
                time=now,
                action=action,
                reason=reason,
                job_id=active.id,
                vc=active.job.vc,
                nodes=held.nodes if held is not None else (),
                gpus=tuple(masks[node] for node in held.nodes) if held is not None else (),
                partner=held.partner if held is not None else None,
                batch=held.batch if held is not None else None,
                need=active.job.gpus,
                **more,
            )
        )
        self._seq += 1


def _with_batch(allocation: Allocation, batch: Batch | None) -> Allocation:
    return Allocation(allocation.nodes, allocation.gpus, batch, allocation.partner)
