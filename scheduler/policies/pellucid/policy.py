"""The policy `pellucid`: an order by predicted duration and waiting time, sharing and profiling
where they are predicted to pay, and a bound on waiting. It preempts no job.

What each part gains, and at what cost, is in `docs/policy-figures.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from features.job import Job, Profile
from models.bundle import Bundle
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import Cluster, ClusterSpec, Placement, Run
from scheduler.core.decisions import Reason
from scheduler.core.durations import Duration, DurationDistribution, Stated, at_level, seconds_of
from scheduler.core.estimates import Estimator
from scheduler.core.findings import Findings, Lack, NotExamined, Promise
from scheduler.core.pairs import PairPredictor, believed, pair_predictor_of
from scheduler.core.policy import (
    NO_CLUSTER,
    NO_PREDICTORS,
    OrderTerms,
    Policy,
    Predictors,
)
from scheduler.core.queue import QueuedJob
from scheduler.core.receipts import Plain
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.demand import Demand
from scheduler.policies.pellucid.gputypes import typed_placement
from scheduler.policies.pellucid.lacking import lacking
from scheduler.policies.pellucid.learned import PellucidLearned
from scheduler.policies.pellucid.memo import Memo
from scheduler.policies.pellucid.pairing import Pairing
from scheduler.policies.pellucid.pass_ import Pass
from scheduler.policies.pellucid.repredict import Repredict
from scheduler.policies.pellucid.reservation import (
    ROUNDING_S,
    Reservation,
    StarvationBound,
    is_starving,
    starving_key,
)
from scheduler.policies.pellucid.settings import Borrowing, PellucidSettings
from scheduler.policies.pellucid.shares import Fairness
from scheduler.policies.pellucid.speeds import Experienced, PairErrors
from scheduler.policies.pellucid.usual import UsualProfiles
from scheduler.policies.pellucid.worth import COUNTS, SUBMITTED, described_by, forgiven, worth_by


class Pellucid(Policy):
    """The policy `pellucid`. Without a pair predictor, no job shares GPUs."""

    Settings = PellucidSettings
    settings: PellucidSettings
    name = "pellucid"
    distribution: DurationDistribution
    capabilities = Capabilities(
        profiles=True,
        profiles_waiting=True,
        watches_runs=True,
        packs=True,
        estimates=True,
        mixes_types=True,
    )

    def __init__(
        self,
        settings: PellucidSettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        self.settings = chosen = settings or PellucidSettings()
        self.capabilities = replace(
            self.capabilities,
            pace_s=PACE_S if chosen.learns_speeds else None,
            borrows=chosen.borrowing is not None,
            packs_narrower=chosen.pack_narrower,
            memory_margin_mib=chosen.sharing.memory_margin_mib,
        )
        self._believe(predictors.pair_predictor)
        self.max_gpus = chosen.sharing.max_gpus
        self.ageing = chosen.ageing
        self.gpu_exponent = chosen.gpu_exponent
        self.order_by: str = chosen.order_by
        self.keeps_for_first = chosen.keeps_for_first
        self.profile_above = chosen.profile_above
        self.pack_first_above = chosen.pack_first_above
        self.busy_above = chosen.busy_above
        self.max_wait_s = chosen.max_wait_s
        self.partner_searches = chosen.partner_searches
        self.borrows = self.capabilities.borrows
        self.lending = Lending(chosen.borrowing or Borrowing())
        self.demand = Demand(self.borrows)
        self.distribution = DurationDistribution()
        self.types = typed_placement(cluster, chosen.gpu_types, predictors.type_speeds)
        self.pairing = Pairing(
            self.distribution, self.types, chosen.hold_price, chosen.sharing.max_gpus
        )
        at_most = chosen.price / chosen.hold_price if chosen.hold_price else inf
        self.starvation = StarvationBound(
            max_wait_s=chosen.max_wait_s,
            overload=chosen.overload,
            demand=self.demand,
            backfill=chosen.backfill,
            price=at_most,
        )
        self.usage = self.fairness = Fairness(chosen.fairness)
        self.repredict = Repredict(chosen.predict_again_s)
        self.estimates: dict[str, Duration] = {}  # of jobs that have not ended
        self.reservations: dict[str, Reservation] = {}  # by virtual cluster
        self.spent: dict[str, float] = {}
        self.usual = UsualProfiles()
        self.assumed: dict[str, int] = {}  # by virtual cluster: `usual.changes` when last asked
        self.learned = PellucidLearned(self)
        self.remembers = True  # passes over jobs for which nothing changed; tests switch it off

    # --- order ------------------------------------------------------------------------------

    def prepare(
        self, queued: QueuedJob, now: float, estimator: Estimator, *, logged: bool = False
    ) -> None:
        estimator = self.repredict.alike.asked(queued, estimator)
        super().prepare(queued, now, estimator)
        self.repredict.alike.joined(queued, estimator)
        assert queued.estimate_s is not None
        self.estimates[queued.job.job_id] = queued.estimate_s
        self.demand.joins(queued, now)
        self.starvation.expect(queued)
        if not logged:
            described = (*described_by(self, queued), *estimator.rests_on(queued.job))
            queued.evidence = (*described, *queued.evidence)

    def key(self, queued: QueuedJob, now: float) -> float:
        """Return the order value of a job; the smallest goes first. It is the weighted predicted
        duration less a credit for waiting. Jobs past their bound come first, by submission time.
        """
        if self.starvation.goes_first(queued):
            return starving_key(queued)
        aged_s = forgiven(self, queued) * queued.submit_time
        return worth_by(self, queued).sized_s + aged_s + self.fairness.on(queued, now)

    def started(self, run: Run, now: float) -> None:
        self.fairness.began(run, now)
        self.repredict.alike.left(run.job.job_id)
        estimate_s = self.estimates.get(run.job.job_id)
        if estimate_s is not None:
            self.distribution.began(run.job.job_id, estimate_s, now, self.type_speed(run))

    def ended(self, run: Run, now: float) -> None:
        self._over(run.job.job_id, now)
        self.repredict.ended(run.job)
        estimate = self.estimates.pop(run.job.job_id, None)
        if estimate is not None:
            ran_s = now - run.start_time
            self.distribution.learn(estimate, ran_s * self.type_speed(run), now)

    def withdrawn(self, job_id: str, now: float) -> None:
        self._over(job_id, now)
        self.estimates.pop(job_id, None)
        for vc, reserved in self.reservations.items():
            if reserved.holder == job_id:  # let go in the next turn, even if the name comes again
                self.reservations[vc] = replace(reserved, holder="")

    def set_aside(self, job_id: str, now: float) -> None:
        waited_s = self.demand.waited_s(job_id, now)
        self.withdrawn(job_id, now)
        self.demand.pause(job_id, waited_s)

    def _over(self, job_id: str, now: float) -> None:
        self.fairness.over(job_id, now)
        self.demand.over(job_id, now)
        self.starvation.over(job_id)
        self.repredict.alike.left(job_id)
        self.distribution.over(job_id)

    def refuses(self, job: Job, cluster: ClusterSpec) -> Reason | None:
        if self.types is None or self.types.candidates(job):
            return None
        return Reason.NO_MATCHING_GPU_TYPE if job.gpu_type else Reason.INVALID_REQUEST

    def type_speed(self, run: Run) -> float:
        return 1.0 if self.types is None else self.types.speed_of(run)

    def fits(self, cluster: ClusterSpec) -> bool:
        return self.types is not None or not cluster.mixes_types

    def cluster_changed(self, cluster: Cluster) -> None:
        if self.types is not None:
            self.types.use_nodes(cluster.pools, cluster.nodes)

    def node_leaves(self, cluster: Cluster, node: int) -> None:
        for vc, reserved in list(self.reservations.items()):
            if any(kept == node for kept, _ in reserved.placement):  # kept again in the next turn
                cluster.pools[vc].unreserve(reserved.placement)
                del self.reservations[vc]

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Take over the knowledge of another `pellucid`. A reservation stays with its holder if
        the new settings would choose the same. Return whether `before` is a `pellucid`: else do
        nothing."""
        if not isinstance(before, Pellucid):
            return False
        here = [queued for queued in jobs if before.knows(queued.job.job_id)]
        self.estimates, self.spent = before.estimates, before.spent
        self.distribution.take_over(before.distribution)
        self._use_errors(before.pair_errors)
        self.usual = before.usual
        self.demand.take_over(before.demand, here, now)
        self.fairness.take_over(before.fairness, now)
        self.repredict.take_over(before.repredict)
        self.starvation.take_over(before.starvation, here)
        if _orders(self) != _orders(before):
            for queued in here:
                self.fairness.withdraw(queued)
                counts = (one for one in queued.evidence if one[0] != COUNTS)
                queued.evidence = (*counts, *worth_by(self, queued).recorded)
                self.rank(queued, now)
        if _places(self) == _places(before):
            first = {
                queued.job.job_id for queued in here if self.keeps_for_first or is_starving(queued)
            }
            for vc, held in before.reservations.items():
                if held.holder in first:
                    self.reservations[vc] = replace(held, changes=-1)  # tried again
        return True

    def use(self, bundle: Bundle) -> None:
        self._believe(pair_predictor_of(bundle))
        self.repredict.alike.models_changed()
        if self.types is not None:
            self.types.use(bundle)

    def _believe(self, pair_predictor: PairPredictor | None) -> None:
        """Use another pair predictor, without the errors that the last one was seen to make."""
        self._predicts_pairs, self._unpaired = believed(pair_predictor, self.settings.sharing)
        self._use_errors(PairErrors())

    def _use_errors(self, errors: PairErrors) -> None:
        """Correct pair speeds by these errors, if pair speeds are measured here. Keep the errors in
        any case, and forget the memos.
        """
        predictor, learns = self._predicts_pairs, self.capabilities.pace_s is not None
        self.pair_errors = errors
        self._experience = (
            Experienced(predictor, errors) if predictor is not None and learns else None
        )
        self.pair_predictor: PairPredictor | None = self._experience or predictor
        self.memos: dict[str, Memo] = {}  # by virtual cluster

    def pair_speed_observed(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        if self._experience is not None:
            self._experience.learn(own, other, speed)

    def watched(self, job: Job, profile: Profile) -> None:
        self.usual.learn(job, profile)

    def next_wake(self, now: float) -> float | None:
        """Return the time at which the next waiting job reaches its bound, or None."""
        return self.starvation.next(now)

    def first(self, vcs: Iterable[str], now: float) -> str:
        return self.fairness.first(vcs, now)

    # --- a turn -----------------------------------------------------------------------------

    def serve(self, turn: Turn) -> None:
        Pass(self, turn).run()

    def knows(self, job_id: str) -> bool:
        return job_id in self.estimates

    # --- its explanations -------------------------------------------------------------------

    def receipt(self, queued: QueuedJob) -> Plain:
        return self.distribution.receipt(queued.estimate_s, queued.outlived_s).plain()

    def order_terms(self, queued: QueuedJob, now: float) -> OrderTerms:
        """Return terms for the predicted duration, the number of GPUs, the credit for waiting and
        the fair share. They sum to the key less `forgiven` times `now`. For a job past its bound,
        return one term: its submission time less `now`."""
        if is_starving(queued):
            return (("submitted, of those past the bound", queued.submit_time - now),)
        counts = worth_by(self, queued)
        aged = forgiven(self, queued)
        credit_s = aged * (now - queued.submit_time)
        stated = isinstance(queued.estimate_s, Stated)
        name = "its own progress" if stated else "the model's duration"
        if counts.recorded:
            name += ", on the mean"
        terms = [(name, counts.duration_s)] if self.order_by != SUBMITTED else []
        if counts.sized_s != counts.duration_s:
            terms.append(("number of GPUs", counts.sized_s - counts.duration_s))
        terms.append(("credit for waiting", -credit_s))
        if self.fairness.weight:
            fairness_s = queued.key - counts.sized_s - aged * queued.submit_time
            terms.append(("fair share", fairness_s))
        return tuple(terms)

    def left_s(self, run: Run, queued: QueuedJob, now: float, level: float | None = None) -> float:
        """Return the predicted seconds left of a run. If it has run longer than predicted, return
        the expected rest of such jobs. With `level`, return that quantile of what is left.
        """
        if level is not None:
            speed, limit_s = self.type_speed(run), queued.job.time_limit_s
            done_s = (now - run.start_time) * speed
            limit_s = None if limit_s is None else limit_s * speed
            least_s = max(done_s, queued.outlived_s)
            quantiles = self.distribution.quantiles(queued.estimate_s, least_s, limit_s)
            return max(0.0, at_level(quantiles, level) - done_s) / speed
        predicted, ran_s = queued.estimate_s or 0.0, now - run.start_time
        if ran_s < (predicted_s := seconds_of(predicted)):
            return predicted_s - ran_s
        return self.distribution.total_s(predicted, max(ran_s, queued.outlived_s)) - ran_s

    def restricted_to(self, kept: Collection[str]) -> Pellucid:
        policy = copy(self)
        policy.demand = self.demand.restricted_to(kept)
        policy.starvation = self.starvation.restricted_to(kept, policy.demand)
        policy.estimates = {j: s for j, s in self.estimates.items() if j in kept}
        policy.memos = {}  # of passes over the whole line
        policy.learned = PellucidLearned(policy)
        return policy

    def lacks_nodes(self, turn: Turn, most: int) -> Lack | None:
        """Return what the first in line loses because nodes are lent for profiling; see
        `Policy.lacks_nodes`. Return None, too, where holding GPUs has no price, virtual clusters
        borrow, or there are several GPU types."""
        price = self.settings.hold_price
        if not price or self.borrows or self.types is not None:
            return None
        held = self.reservations.get(turn.vc)
        kept = held.placement if held and held.holder == turn.queue[0].job.job_id else []
        self.pairing.time_passed()
        left_s = partial(self.pairing.free_in_s, turn)
        return lacking(turn, most, kept=kept, left_s=left_s, price=price)

    def promise(self, queued: QueuedJob, now: float) -> Promise | None:
        bound = self.starvation
        left_s = bound.left_s(queued, now, latest=True)
        longer = left_s > max(0.0, bound.most_s - (now - queued.submit_time)) + ROUNDING_S
        demand = self.demand.slowdown(queued.job.vc) if longer else 1.0
        put_off = bound.put_off(queued)
        costs_s = None if put_off is None else put_off.costs_s
        soonest_s = bound.left_s(queued, now)
        return Promise(
            bound_s=bound.most_s,
            left_s=left_s,
            demand=demand,
            priced_s=bound.max_wait_s,
            soonest_s=soonest_s,
            costs_s=costs_s,
        )

    def reservation(self, vc: str) -> tuple[str, Placement] | None:
        held = self.reservations.get(vc)
        return (held.holder, held.placement) if held is not None and held.holder else None

    def findings(self, queued: QueuedJob) -> Findings:
        return Findings(queued.considered, queued.type_costs, tuple(_not_examined(self, queued)))


def _orders(policy: Pellucid) -> tuple[Any, ...]:
    """Return the settings that keys of the order depend on, to see whether any changed."""
    chosen = policy.settings
    return (
        chosen.ageing,
        chosen.gpu_exponent,
        chosen.order_by,
        chosen.fairness,
        chosen.max_wait_s,
        chosen.overload,
        chosen.backfill,
        chosen.price,
        chosen.hold_price,
        policy.borrows,
    )


def _places(policy: Pellucid) -> tuple[Any, ...]:
    """Return what decides where GPUs are reserved, to see whether new settings change it."""
    return policy.settings.gpu_types, policy.types is None


def _not_examined(policy: Pellucid, queued: QueuedJob) -> Iterator[NotExamined]:
    job, searched = queued.job, queued.considered
    if not job.share:
        return  # nothing was left out: its owner declined
    if policy.pair_predictor is None:
        yield policy._unpaired
    elif job.gpus > policy.max_gpus:
        yield NotExamined.TOO_LARGE
    elif queued.likely is None:
        yield NotExamined.NO_PROFILE
    elif job.vc in policy.spent and (searched is None or searched.at < policy.spent[job.vc]):
        yield NotExamined.SEARCHES_SPENT


PACE_S = 200.0  # as long as a profile takes
