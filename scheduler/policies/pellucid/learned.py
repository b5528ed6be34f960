"""What `pellucid` remembers from turn to turn, and how it is restored.

The same calls keep it up to date whether the core decides or follows a log: `begin`, when a turn
begins, and the calls that tell the policy of jobs that come, start and end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.core.cluster import are_open
from scheduler.core.decisions import STARTS, Action, Decision
from scheduler.core.durations import (
    Duration,
    DurationDistribution,
    DurationMemory,
    of_plain,
    plain,
    seconds_of,
)
from scheduler.core.findings import Hold
from scheduler.core.pairs import PairPredictor
from scheduler.core.policy import Learned
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.demand import Demand, DemandMemory
from scheduler.policies.pellucid.gputypes import TypedPlacement
from scheduler.policies.pellucid.memo import Memo
from scheduler.policies.pellucid.repredict import SAME, Repredict, RepredictMemory
from scheduler.policies.pellucid.reservation import (
    BoundMemory,
    Reservation,
    StarvationBound,
    is_starving,
    starving_key,
)
from scheduler.policies.pellucid.shares import Fairness, SharesMemory
from scheduler.policies.pellucid.speeds import PairErrors, PairErrorsMemory
from scheduler.policies.pellucid.usual import UsualMemory, UsualProfiles
from scheduler.policies.pellucid.worth import COUNTS, described_by, forgiven, worth_by


@dataclass(slots=True, kw_only=True)
class _Kept:
    """GPUs that are kept for a job; see `Reservation`."""

    holder: str
    placement: list[tuple[int, int]]
    since: float


@dataclass(slots=True, kw_only=True)
class PellucidMemory:
    """All that the policy learned and has promised.

    Attributes:
        durations, shares, demand, repredict, bound, usual, pair_errors: records of the policy's
            parts.
        estimates: maps each job that has not ended to its predicted duration, as `durations.plain`
            returns it.
        kept: maps a virtual cluster to the GPUs that are kept there for a job.
        spent: maps a virtual cluster to the last time when its searches for partners were used up.
        assumed: maps a virtual cluster to `UsualProfiles.changes` when usual profiles were last
            given to its jobs.
        ordered_by: the setting `order_by` with which the keys of waiting jobs were computed.
    """

    durations: DurationMemory
    shares: SharesMemory
    demand: DemandMemory
    # virtual clusters in whose order waiting did not count, of snapshots before version 10
    patience: list[str] = field(default_factory=list)
    repredict: RepredictMemory
    bound: BoundMemory
    usual: UsualMemory
    pair_errors: PairErrorsMemory
    estimates: dict[str, tuple[float, ...]]
    kept: dict[str, _Kept]
    spent: dict[str, float]
    assumed: dict[str, int]
    ordered_by: str = "predicted"  # of snapshots before version 11


class Parts(Protocol):
    """The parts of the policy that remember something; see `Pellucid`."""

    distribution: DurationDistribution
    fairness: Fairness
    ageing: float
    gpu_exponent: float
    order_by: str
    demand: Demand
    repredict: Repredict
    starvation: StarvationBound
    usual: UsualProfiles
    pair_errors: PairErrors
    types: TypedPlacement | None
    pair_predictor: PairPredictor | None
    estimates: dict[str, Duration]
    reservations: dict[str, Reservation]
    memos: dict[str, Memo]
    spent: dict[str, float]
    assumed: dict[str, int]

    def knows(self, job_id: str) -> bool: ...
    def rank(self, queued: QueuedJob, now: float) -> None: ...


class PellucidLearned(Learned):
    """What `pellucid` remembers from turn to turn."""

    Memory = PellucidMemory

    def __init__(self, policy: Parts):
        self._policy = policy

    def remember(self) -> PellucidMemory:
        policy = self._policy
        return PellucidMemory(
            durations=policy.distribution.remember(),
            shares=policy.fairness.remember(),
            demand=policy.demand.remember(),
            repredict=policy.repredict.remember(),
            bound=policy.starvation.remember(),
            usual=policy.usual.remember(),
            pair_errors=policy.pair_errors.remember(),
            estimates={job_id: plain(seconds) for job_id, seconds in policy.estimates.items()},
            kept={
                vc: _Kept(holder=one.holder, placement=list(one.placement), since=one.since)
                for vc, one in policy.reservations.items()
            },
            spent=dict(policy.spent),
            assumed=dict(policy.assumed),
            ordered_by=policy.order_by,
        )

    def restore(self, memory: Any, jobs: Mapping[str, QueuedJob]) -> None:
        policy = self._policy
        assert isinstance(memory, PellucidMemory)
        policy.distribution.restore(memory.durations)
        policy.fairness.restore(memory.shares)
        policy.demand.restore(memory.demand)
        policy.repredict.restore(memory.repredict, jobs)
        policy.starvation.restore(memory.bound, jobs)
        policy.usual.restore(memory.usual)
        policy.pair_errors.restore(memory.pair_errors)
        policy.estimates = {job_id: of_plain(row) for job_id, row in memory.estimates.items()}
        policy.reservations = {
            vc: Reservation(one.holder, [(n, g) for n, g in one.placement], -1, one.since)
            for vc, one in memory.kept.items()
        }
        policy.spent, policy.assumed = dict(memory.spent), dict(memory.assumed)
        for queued in jobs.values() if memory.patience else ():
            if queued.job.vc in memory.patience and not is_starving(queued):
                queued.key += forgiven(policy, queued) * queued.submit_time
        for queued in jobs.values():
            if queued.job.job_id in policy.estimates and not is_starving(queued):
                _reorder(policy, queued, memory.ordered_by)

    def begin(self, turn: Turn) -> None:
        policy = self._policy
        policy.demand.begin(turn)
        self._predict_again(turn)
        policy.fairness.refresh(turn, is_starving)
        if policy.types is not None:
            policy.types.begin(turn)
        self._assume(turn)
        self._promote(turn)
        held = policy.reservations.get(turn.vc)
        if held is not None and not policy.knows(held.holder):
            turn.pool.unreserve(held.placement)  # withdrawn, or ended while being profiled
            del policy.reservations[turn.vc]

    def follow(self, turn: Turn, d: Decision) -> None:
        policy = self._policy
        held = policy.reservations.get(turn.vc)
        if d.action is Action.RESERVE:
            queued, placement = turn.job(d.job_id), list(zip(d.nodes, d.gpus, strict=True))
            turn.reserve(queued, placement, [] if held is None else held.placement, d.reason)
            since = turn.now if held is None or held.holder != d.job_id else held.since
            policy.reservations[turn.vc] = Reservation(d.job_id, placement, -1, since)
        elif d.action in STARTS and held is not None and held.holder == d.job_id:
            turn.pool.unreserve(held.placement)
            del policy.reservations[turn.vc]

    def predicted(self, queued: QueuedJob) -> None:
        if queued.estimate_s is not None:
            self._policy.estimates[queued.job.job_id] = queued.estimate_s

    def followed(self, turn: Turn) -> None:
        """Drop the virtual cluster's reservation if one of its GPUs was closed, because no decision
        records that. A new reservation would be recorded."""
        policy = self._policy
        policy.memos.pop(turn.vc, None)  # of passes that were decided here
        held, pool = policy.reservations.get(turn.vc), turn.pool
        if held is None or are_open(pool, held.placement):
            return
        if any(queued.job.job_id == held.holder for queued in turn.queue):
            pool.unreserve(held.placement)
            del policy.reservations[turn.vc]

    def _predict_again(self, turn: Turn) -> None:
        """Predict again the jobs for which that is due. Where a prediction changed, note the former
        one as evidence, set the job's key, and sort the queue."""
        policy = self._policy
        moved = False
        for group in policy.repredict.due(turn):
            before = [queued.predicted_s for queued in group]
            if not turn.predict_again(group[0], SAME, group[1:]):
                continue
            estimate_s = group[0].estimate_s
            assert estimate_s is not None
            described = described_by(policy, group[0])  # the same for all jobs of the group
            for queued, before_s in zip(group, before, strict=True):
                assert before_s is not None
                policy.estimates[queued.job.job_id] = estimate_s
                queued.evidence = (*described, ("predicted_before_s", before_s))
                policy.rank(queued, turn.now)  # after it: what fairness adds is evidence, too
            moved = True
        if moved:
            turn.queue.replace(list(turn.queue))
            policy.memos.pop(turn.vc, None)  # the reason of each is recorded with the new numbers

    def _assume(self, turn: Turn) -> None:
        """Give the usual profile of its user's jobs to each job without a measured one. Do nothing
        where nodes are reserved for profiling, or nothing predicts how pairs run."""
        policy = self._policy
        if turn.profiles_apart or policy.pair_predictor is None:
            return
        changes = policy.usual.changes[turn.vc]
        changed = policy.assumed.get(turn.vc, 0) != changes
        running = [turn.known(run) for run in turn.runs()] if changed else []
        for queued in (*turn.queue, *running) if changed else turn.queue.fresh:
            queued.usual = policy.usual.find(queued.job) if queued.profile is None else None
        if changed:
            policy.assumed[turn.vc] = changes
            policy.memos.pop(turn.vc, None)

    def _promote(self, turn: Turn) -> None:
        """Put jobs that have waited beyond their bound at the front of the queue. Jobs that run or
        have ended are left out.
        """
        policy = self._policy

        def costs_s(queued: QueuedJob) -> float:
            """Return the total seconds of waiting that a job is predicted to cause to the others if
            it goes first."""
            assert queued.estimate_s is not None
            return Hold(
                longer_s=policy.distribution.total_s(queued.estimate_s, queued.outlived_s),
                gpus=queued.job.gpus,
                of=turn.pool.gpus,
                kept_out=len(turn.queue) - 1,
            ).costs_s

        starving = [
            queued
            for queued in policy.starvation.due(turn.vc, turn.now, costs_s)
            if policy.knows(queued.job.job_id) and queued.job.job_id not in turn.cluster.runs
        ]
        for queued in starving:
            queued.key = starving_key(queued)
        if starving:
            turn.queue.replace(list(turn.queue))


def _reorder(policy: Parts, queued: QueuedJob, before: str) -> None:
    """Replace, in a waiting job's key, the duration by which it was ordered before (the recorded
    mean, otherwise the predicted number) by the one that the policy orders by now.

    Args:
        before: the setting `order_by` with which the key was computed. If it is the same now, only
            a mean that no longer counts is replaced.
    """
    counts = worth_by(policy, queued)
    mean_s = next((float(one[1]) for one in queued.evidence if one[0] == COUNTS), None)
    if before == policy.order_by and (mean_s is None or counts.recorded):
        return
    counted_s = float(seconds_of(queued.estimate_s or 0.0)) if mean_s is None else mean_s
    queued.key += counts.sized_s - counted_s * queued.job.gpus**policy.gpu_exponent
    kept = (one for one in queued.evidence if one[0] not in (COUNTS, "counts_odds"))
    queued.evidence = (*kept, *counts.recorded)
