"""Pellucid: learned order with ageing, packing that pays, profiling that pays, a bound on waiting.

Nothing is preempted. How the parts earn their keep, and what they cost, is in `docs/policy.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from features.job import Job
from models.bundle import Bundle
from scheduler.core.cluster import ClusterSpec, Placement, Run
from scheduler.core.core import Queue, QueuedJob, Turn
from scheduler.core.decisions import Evidence, Reason
from scheduler.core.durations import Outlook
from scheduler.core.estimates import Estimator
from scheduler.core.pairs import Judge, judge_of
from scheduler.core.policy import Policy
from scheduler.policies.pellucid.backfill import Backfill
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.demand import Demand
from scheduler.policies.pellucid.gputypes import TypedPlacement
from scheduler.policies.pellucid.headroom import HeadRoom
from scheduler.policies.pellucid.index import Index
from scheduler.policies.pellucid.pairing import Pairing
from scheduler.policies.pellucid.requeue import Probation
from scheduler.policies.pellucid.reservation import Late, choose, exchange
from scheduler.policies.pellucid.settled import Settled
from scheduler.policies.pellucid.shares import Fairness, Shares
from scheduler.policies.pellucid.speeds import Experienced


class Pellucid(Policy):
    """Pellucid.

    Args:
        judge: beliefs about pairs; None never packs.
        gpu_memory_mib: the members' memory must sum to less than this (a rule, not a prediction).
        max_gpus: larger jobs never share.
        ageing: seconds of predicted duration a job is forgiven per second it waits.
        profile_above_s: a job predicted to run longer is profiled before it starts, when there is
            room: that is what lets it share. Shorter ones are profiled only while they wait.
        pack_first_above: a pair whose predicted speeds sum to at least this is made even when the
            newcomer could have GPUs of its own: the next job will need them. None: only when it
            could not.
        busy_above: share of the GPUs that is asked for (`orchestrator.demand`) from which on jobs
            that could start on GPUs of their own are packed, or profiled first; where less is,
            the GPUs saved would stand idle.
        patience_s: the bound. A job that has waited longer goes before all others, oldest first,
            and is given a reservation; see `orchestrator.reservation` for what that promises.
        crowd: where more than so many times the GPUs there are are asked for, the bound is longer
            in proportion: where everybody waits long, a long wait is no reason to keep GPUs idle.
            See `orchestrator.reservation.Late`.
        order: what a prediction counts as in the order, see `orchestrator.index`.
        backfill_quantile, overtake_gpu_s: how sure it must be that a job ends before GPUs kept
            for another can be used, to run there, and for how many GPU-seconds per reservation
            at most; see `orchestrator.backfill`.
        headroom: share of its GPUs that a virtual cluster fills; above it only short jobs, those
            past their bound, and urgent ones are started. 1 = off.
        partner_searches: how many waiting jobs at most are matched with partners in one turn.
        learns_speeds: what a judge believes of pairs is corrected by those that ran.
        borrows: use idle GPUs of virtual clusters in which nobody waits.
        plenty: when borrowing, packing and profiling wait until less than this share of all GPUs
            is free.
        lending: the terms of it; see `orchestrator.lending` for what they promise owners.
        fairness: in [0, 1], how far a user who has had more than its due is put back; 0 = off.
        shares: the dues, and how long usage is remembered; equal weights and a week unless given.
        requeue_after_s: a resumable job that has run so long may be stopped once in favour of one
            with less left to do; None = nothing is ever stopped. See `orchestrator.requeue`.
        types: where a job goes on a cluster with several types of GPU; see
            `orchestrator.gputypes`. None = all GPUs are of one type.
    """

    name = "pellucid"
    profiles = True
    profiles_waiting = True
    watches_runs = True
    packs = True
    estimates = True

    def __init__(
        self,
        judge: Judge | None = None,
        *,
        gpu_memory_mib: float = 24_576.0,
        max_gpus: int = 8,
        ageing: float = 0.3,
        profile_above_s: float = 300.0,
        pack_first_above: float | None = 1.8,
        busy_above: float = 0.85,
        patience_s: float = 172_800.0,
        crowd: float = 1.0,
        order: str = "point",
        backfill_quantile: float = 0.9,
        overtake_gpu_s: float = 0.0,
        headroom: float = 1.0,
        partner_searches: int = 16,
        learns_speeds: bool = True,
        borrows: bool = False,
        plenty: float = 0.05,
        lending: Lending | None = None,
        fairness: float = 0.0,
        shares: Shares | None = None,
        requeue_after_s: float | None = None,
        types: TypedPlacement | None = None,
    ):
        self.pace_s = PACE_S if learns_speeds else None
        self._believe(judge)
        self.max_gpus = max_gpus
        self.ageing = ageing
        self.profile_above_s = profile_above_s
        self.pack_first_above = pack_first_above
        self.busy_above = busy_above
        self.demand = Demand(borrows)
        self.patience_s = patience_s
        self.partner_searches = partner_searches
        self.borrows = borrows
        self.plenty = plenty
        self.outlook = Outlook()
        self.index = Index(order, self.outlook)
        self.backfill = Backfill(self.outlook, backfill_quantile, overtake_gpu_s)
        self.headroom = HeadRoom(self.outlook, headroom)
        self.types = types
        self.mixes_types = types is not None
        self._picky: tuple[QueuedJob, Evidence] | None = None  # refused what was free, and why
        self.pairing = Pairing(self.outlook, gpu_memory_mib, types)
        self.late = Late(patience_s, crowd, self.demand)
        self.lending = lending or Lending()
        self.fairness = Fairness(fairness, shares or Shares())
        self.probation = Probation(requeue_after_s) if requeue_after_s is not None else None
        self.requeues = self.probation is not None
        self._estimates: dict[str, float] = {}  # of jobs that have not ended
        self._holds: dict[str, tuple[str, Placement]] = {}  # virtual cluster -> job, its GPUs
        self._tried: dict[str, tuple[str, int, int]] = {}  # who last did not fit, at `Pool.changes`
        # of the turn: GPU counts that would fit without the reservation; whether one was told so
        self._fits: dict[int, bool] = {}
        self._passed_over = False
        self._window_s: float | None = None  # for which reserved GPUs are of no use to their job

    # --- order ------------------------------------------------------------------------------

    def prepare(self, queued: QueuedJob, now: float, estimator: Estimator) -> None:
        super().prepare(queued, now, estimator)
        assert queued.estimate_s is not None
        self._estimates[queued.job.job_id] = queued.estimate_s
        self.demand.joins(queued.job, now)
        queued.evidence = (
            *self.outlook.described(queued.estimate_s),
            *self.index.evidence(queued.estimate_s),
            *queued.evidence,
        )
        self.late.expect(queued, now)

    def key(self, queued: QueuedJob, now: float) -> float:
        """Predicted duration, aged; a job past its bound comes first, by submission."""
        assert queued.estimate_s is not None
        if self.late.is_late(queued, now):
            return queued.submit_time - LATE
        index_s = self.index.seconds(queued.estimate_s)
        return index_s + self.ageing * queued.submit_time + self.fairness.on(queued, now)

    def started(self, run: Run, now: float) -> None:
        self.fairness.began(run, now)
        if self.probation is not None:
            self.probation.began(run, now)

    def stopped(self, run: Run, now: float) -> None:
        self.fairness.over(run.job.job_id, now)
        if self.probation is not None:
            self.probation.stopped(run, now)

    def ended(self, run: Run, now: float) -> None:
        ran_before = self._over(run.job.job_id, now)
        estimate = self._estimates.pop(run.job.job_id, None)
        if estimate is not None:
            ran_s = ran_before + now - run.start_time
            self.outlook.learn(estimate, ran_s * self.type_speed(run))

    def withdrawn(self, job_id: str, now: float) -> None:
        self._over(job_id, now)
        self._estimates.pop(job_id, None)
        for vc, (holder, held) in self._holds.items():
            if holder == job_id:  # let go in the next turn, even if one of that name comes again
                self._holds[vc] = "", held

    def _over(self, job_id: str, now: float) -> float:
        """A job is over. Returns what it ran before it was stopped, seconds."""
        self.fairness.over(job_id, now)
        self.backfill.over(job_id, now)
        self.demand.over(job_id, now)
        return self.probation.over(job_id) if self.probation is not None else 0.0

    def refuses(self, job: Job, cluster: ClusterSpec) -> Reason | None:
        if self.types is None or self.types.sites(job):
            return None
        return Reason.NO_MATCHING_GPU_TYPE if job.gpu_type else Reason.INVALID_REQUEST

    def type_speed(self, run: Run) -> float:
        return 1.0 if self.types is None else self.types.speed_of(run)

    def use(self, bundle: Bundle) -> None:
        self._believe(judge_of(bundle))

    def _believe(self, judge: Judge | None) -> None:
        """Another judge: errors that the last one was seen to make are not its own."""
        learns = self.pace_s is not None
        self._experience = Experienced(judge) if judge is not None and learns else None
        self.judge: Judge | None = self._experience or judge
        self._settled: dict[str, Settled] = {}  # by virtual cluster

    def paced(self, own: QueuedJob, other: QueuedJob, speed: float) -> None:
        if self._experience is not None:
            self._experience.learn(own, other, speed)

    def next_wake(self, now: float) -> float | None:
        """When the next waiting job reaches its bound, or a run may first be stopped."""
        times = [self.late.next(now)]
        if self.probation is not None:
            times.append(self.probation.next(now))
        return min((time for time in times if time is not None), default=None)

    def first(self, vcs: Iterable[str], now: float) -> str:
        return self.fairness.first(vcs, now)

    # --- a turn -----------------------------------------------------------------------------

    def serve(self, turn: Turn) -> None:
        self.demand.begin(turn)
        self.fairness.refresh(turn, late)
        if self.types is not None:
            self.types.begin(turn)
        self._promote(turn)
        self._reserved(turn)
        self.pairing.begin(turn, self._holds.get(turn.vc))
        asked = self.demand.share(turn)
        scarce = asked >= self.busy_above and self._scarce(turn)
        pressure: Evidence = (("asked_share", asked),)
        searches = self.partner_searches
        holder = self._holds.get(turn.vc, ("", []))[0]
        self._fits.clear()
        self._passed_over = False
        self._window_s = None
        profiling = turn.cluster.profiling
        settled = self._findings(turn)
        told, others = settled.told, settled.others
        if others is not None:
            others += len(turn.queue.fresh)
        too_many = set(told)  # GPU counts that did not fit; nothing is freed during a turn
        looked_through: list[QueuedJob] = []
        countable = True  # as others when the next pass begins
        for queued in list(turn.queue):
            if others == 0 and searches <= 0:
                break  # nobody is left for whom anything is different
            gpus = queued.job.gpus
            settles = queued.reason is told.get(gpus, UNTOLD)
            if settles and queued.job.share:
                if queued.profile is not None:
                    passes = searches <= 0
                elif not self._pays_to_profile(queued):
                    passes = True
                else:
                    countable = False
                    passes = not (scarce and profiling.free)
                if passes:  # as all others like it
                    if queued.reason is Reason.RESERVED_FOR_STARVING_JOB:
                        self._passed_over = True
                    continue
            if queued.job.job_id == holder:
                continue
            if others and not settles:
                others -= 1
            blocked: Reason | None = None
            if self._can_share(queued) and searches > 0:
                if scarce and self.pack_first_above is not None:
                    searches -= 1
                    if self._pack(turn, queued, self.pack_first_above, pressure) is None:
                        continue
            elif (
                scarce
                and profiling.free  # asked first: mostly there is no room to look
                and self._pays_to_profile(queued)
                and turn.look(queued)
            ):
                continue
            allowed = self.headroom.allows(turn, queued, late)
            untried = gpus not in too_many or self.types is not None
            if allowed and untried and self._start(turn, queued):
                told.clear()
                others, countable = None, False
                continue
            if allowed:
                too_many.add(gpus)
                if holder and self._backfill(turn, queued):
                    told.clear()
                    others, countable = None, False
                    continue
            if self._can_share(queued) and searches > 0:
                searches -= 1
                blocked = self._pack(turn, queued, 0.0)
                if blocked is None:
                    continue
            if not allowed and turn.pool.place(gpus) is not None:
                blocked = Reason.KEPT_FREE
            self._wait(turn, queued, blocked, holder)
            alike = queued.job.share and not self._may_be_guest(queued) and self.types is None
            if blocked is None and alike and queued.reason is not None:
                told[gpus] = queued.reason
            looked_through.append(queued)
            if not queued.job.share or self._pays_to_profile(queued):
                countable = False
        if not self.borrows:  # else others may free or take GPUs that could be borrowed
            settled.end(turn.pool, looked_through if countable else None)
            self._settled[turn.vc] = settled
        if self.probation is not None:
            self._requeue(turn, self.probation)

    def _findings(self, turn: Turn) -> Settled:
        """What the last pass found, where it still holds."""
        hold = self._holds.get(turn.vc)
        settled = self._settled.get(turn.vc)
        if settled is None or not settled.holds(turn.pool, hold):
            settled = Settled(turn.pool.changes, hold)
        return settled

    def _scarce(self, turn: Turn) -> bool:
        """Whether GPUs given now are likely to be missed: behind walls always."""
        if not self.borrows:
            return True
        free = turn.pool.free + sum(pool.free for pool in turn.lenders)
        return free < self.plenty * turn.cluster.spec.gpus

    def _start(self, turn: Turn, queued: QueuedJob) -> bool:
        """Start a job on GPUs of its own virtual cluster, or borrowed ones, where there is room."""
        if self.types is not None:
            return self._start_typed(turn, queued, self.types)
        placement = turn.pool.place(queued.job.gpus)
        if placement is not None:
            turn.start(queued, placement)
            return True
        if self.borrows:
            lenders = turn.lenders if self.lending.admits(queued, self.outlook) else []
            placement = self.lending.span(turn.pool, lenders, queued.job.gpus)
            if placement is not None:
                turn.start(queued, placement, Reason.BORROWED)
                return True
        return False

    def _start_typed(self, turn: Turn, queued: QueuedJob, types: TypedPlacement) -> bool:
        """The same where there are several types of GPU, on the one that costs least."""
        assert queued.estimate_s is not None
        expected_s = self.outlook.expected_s(queued.estimate_s)
        choice = types.choose(
            turn, queued, expected_s, lambda run: self._left(turn, run), patient=not late(queued)
        )
        self._picky = (queued, choice.evidence) if choice.waits else None
        if choice.placement is None:
            return False
        turn.start(queued, choice.placement, evidence=choice.evidence)
        return True

    def _requeue(self, turn: Turn, probation: Probation) -> None:
        """Stop a resumable job for a waiting one, where that pays."""
        now = turn.now
        swap = probation.swap(
            turn, self._runs(turn), lambda run: self.pairing.left(turn, run), self._key_after
        )
        if swap is None:
            return
        stopped = turn.known(swap.run)
        stopped.estimate_s = swap.left_s
        stopped.submit_time += now - swap.run.start_time  # what it ran it has not waited
        self.demand.ran(swap.run.job.job_id, now - swap.run.start_time)
        stopped.looked_at = True  # in the profiling partition it would lose its work
        turn.preempt(swap.run, self.key(stopped, now), blocker=swap.queued.job.job_id)
        self.late.expect(stopped, now)
        self._start(turn, swap.queued)
        turn.again()

    def _key_after(self, queued: QueuedJob, left_s: float, ran_s: float) -> float:
        """The key a running job would have if it were stopped now."""
        return left_s + self.ageing * (queued.submit_time + ran_s)

    def _wait(self, turn: Turn, queued: QueuedJob, blocked: Reason | None, holder: str) -> None:
        if self._picky is not None and self._picky[0] is queued:
            turn.wait(queued, Reason.FASTER_GPUS_SOON, evidence=self._picky[1])
            return
        reason = turn.capacity_reason(queued)
        reserved = holder and self.types is None and blocked is not Reason.KEPT_FREE
        if reserved and reason is Reason.GPUS_FRAGMENTED and self._fits_without(turn, queued):
            alone = not self._passed_over and first_late(turn.queue, after=holder) is None
            guests = self.backfill.most_gpu_s > 0  # one who comes later may take what is free
            blames = alone and not guests and holder not in turn.cluster.runs
            self._passed_over = True
            blocker = holder if blames else None
            kept = sum(mask.bit_count() for _, mask in self._holds[turn.vc][1])
            turn.wait(
                queued,
                Reason.RESERVED_FOR_STARVING_JOB,
                blocker=blocker,
                evidence=(("reserved_gpus", kept),),
            )
        else:
            refused = self.pairing.evidence if blocked is Reason.INTERFERENCE_GUARD else ()
            reason = blocked or self._opted_out(turn, queued) or reason
            turn.wait(queued, reason, evidence=refused)

    def _fits_without(self, turn: Turn, queued: QueuedJob) -> bool:
        """Whether a job would fit if the reservation were not there."""
        gpus = queued.job.gpus
        if gpus not in self._fits:
            held = self._holds[turn.vc][1]
            turn.pool.let_go(held)
            self._fits[gpus] = turn.pool.place(gpus) is not None
            turn.pool.hold(held)
        return self._fits[gpus]

    def _may_be_guest(self, queued: QueuedJob) -> bool:
        """Whether a job waits for what another of its size might be let in to."""
        reserved = queued.reason is Reason.RESERVED_FOR_STARVING_JOB
        return reserved and self.backfill.most_gpu_s > 0

    def _backfill(self, turn: Turn, queued: QueuedJob) -> bool:
        """Start a job on reserved GPUs, where it is likely to be gone before they are of use."""
        if self.types is not None:
            return False
        if not self.backfill.most_gpu_s or not self._fits_without(turn, queued):
            return False
        holder, held = self._holds[turn.vc]
        if self._window_s is None:
            runs = [(run, turn.known(run).estimate_s or 0.0) for run in self._runs(turn)]
            on_them = [pair for pair in runs if overlap(pair[0], held)]
            self._window_s = self.backfill.window_s(holder, on_them, turn.now)
        terms = self.backfill.admits(queued, holder, self._window_s, turn.now)
        if terms is None:
            return False
        turn.pool.let_go(held)
        placement = turn.pool.place(queued.job.gpus)
        turn.pool.hold(held)
        assert placement is not None
        turn.start(queued, placement, Reason.BACKFILLED, evidence=terms.evidence)
        self.backfill.began(queued, terms, turn.now)
        self._fits.clear()
        return True

    def reservation(self, vc: str) -> tuple[str, Placement] | None:
        """The job that GPUs of a virtual cluster are kept for, and which; None: no job."""
        return self._holds.get(vc)

    def _opted_out(self, turn: Turn, queued: QueuedJob) -> Reason | None:
        """The reason of a job that might share but for its owner's wish."""
        if queued.job.share or self.judge is None or queued.job.gpus > self.max_gpus:
            return None
        return Reason.SHARING_OPTED_OUT if turn.alone(queued.job.gpus) else None

    # --- packing and profiling --------------------------------------------------------------

    def _can_share(self, queued: QueuedJob) -> bool:
        return (
            self.judge is not None
            and queued.job.share
            and queued.profile is not None
            and queued.job.gpus <= self.max_gpus
        )

    def _pack(
        self, turn: Turn, queued: QueuedJob, least: float, pressure: Evidence = ()
    ) -> Reason | None:
        """Pack a job where that pays. None when it was packed, otherwise what stood in the way."""
        assert self.judge is not None
        found = self.pairing.best(turn, queued, self.judge, least)
        if isinstance(found, Reason):
            return found
        turn.pack(queued, found, evidence=(*self.pairing.evidence, *pressure))
        return None

    def _pays_to_profile(self, queued: QueuedJob) -> bool:
        """Worth losing what it does while profiled: only then can it share from its start."""
        assert queued.estimate_s is not None
        return (
            queued.profile is None
            and not queued.looked_at
            and self.judge is not None
            and queued.job.share
            and queued.job.profile
            and queued.job.gpus <= self.max_gpus
            and queued.estimate_s > self.profile_above_s
        )

    # --- the bound --------------------------------------------------------------------------

    def _promote(self, turn: Turn) -> None:
        """Put jobs past their bound in front; those no longer in this queue are none of ours."""
        late = [
            queued
            for queued in self.late.due(turn.vc, turn.now)
            if queued.job.job_id in self._estimates and queued.job.job_id not in turn.cluster.runs
        ]
        for queued in late:
            queued.key = queued.submit_time - LATE
        if late:
            turn.queue.replace(list(turn.queue))

    def _reserved(self, turn: Turn) -> None:
        """Serve the holder of the reservation; reserve for the oldest job past its bound."""
        pool, queue = turn.pool, turn.queue
        held = self._holds.get(turn.vc)
        if held is not None and held[0] not in self._estimates:
            pool.let_go(held[1])  # it was withdrawn, or ended while being profiled
            del self._holds[turn.vc]
            held = None
        urgent = takewhile(lambda queued: queued.priority > 0, queue)
        for first in [queued for queued in urgent if not late(queued)]:
            self._start(turn, first)
        while (
            queued := first_late(queue) if held is None else waiting(queue, held[0])
        ) is not None:
            # a holder that is being profiled is not in the queue: nobody else is given one
            before = held[1] if held is not None else []
            tried = queued.job.job_id, queued.job.gpus, pool.changes
            if before and not self.borrows and self._tried.get(turn.vc) == tried:
                turn.wait(queued, turn.capacity_reason(queued))
                return  # the GPUs are as they were when it was last found not to fit
            pool.let_go(before)
            self._holds.pop(turn.vc, None)
            if self._start(turn, queued):
                held = None
                continue
            where = self.types.view(pool, queued) if self.types is not None else pool
            chosen = (
                exchange(where, before)
                if before and all(pool.is_open(node) for node, _ in before)
                else choose(
                    where, queued.job.gpus, self._runs(turn), lambda run: self._left(turn, run)
                )
            )
            if chosen is not None:  # else, with nodes closed, nothing is kept until it fits again
                pool.hold(before)
                turn.reserve(queued, chosen, before)
                self._holds[turn.vc] = queued.job.job_id, chosen
                self._tried[turn.vc] = tried
            turn.wait(queued, turn.capacity_reason(queued))
            return

    def _runs(self, turn: Turn) -> list[Run]:
        """Runs that may be on this virtual cluster's GPUs."""
        return list(turn.cluster.runs.values()) if self.borrows else turn.runs()

    def _left(self, turn: Turn, run: Run) -> float:
        """Predicted seconds until the GPUs of a run are free."""
        members = (run, run.partner) if run.partner is not None else (run,)
        return max(self.pairing.left(turn, member) for member in members)


PACE_S = 200.0  # as long as a profile takes
UNTOLD = object()
LATE = 1e12  # keys of jobs past their bound are this much lower than any other
LATE_KEYS = -LATE / 2


def overlap(run: Run, held: Placement) -> bool:
    """Whether a run is on some of these GPUs."""
    masks = dict(held)
    return any(masks.get(n, 0) & mask for n, mask in zip(run.nodes, run.gpus, strict=True))


def late(queued: QueuedJob) -> bool:
    """Whether the key is that of a job past its bound."""
    return queued.key < LATE_KEYS


def waiting(queue: Queue, job_id: str) -> QueuedJob | None:
    """A job of the queue by its id. Older ones may have come back from profiling before it."""
    return next((queued for queued in queue if queued.job.job_id == job_id), None)


def first_late(queue: Queue, after: str = "") -> QueuedJob | None:
    """The job past its bound that is served next; only a higher priority stands before it.

    `after`: and next when this one is gone.
    """
    for queued in queue:
        if queued.job.job_id == after:
            continue
        if late(queued):
            return queued
        if queued.priority <= 0:
            return None
    return None
