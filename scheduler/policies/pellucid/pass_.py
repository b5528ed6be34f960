"""One pass (one round of decisions) over the queue of a virtual cluster: the moves of `pellucid`,
in their order.

A pass has six steps (`run`). The second reserves GPUs for the first job that has waited beyond its
bound. In the fifth, each waiting job is offered the `moves`, one after the other; a job waits if
none of them succeeds.

An object of this module lasts for one pass; the policy keeps what lasts longer.
"""

from __future__ import annotations

import logging
from itertools import takewhile
from typing import Protocol

from scheduler.core.cluster import Placement, Run, are_open
from scheduler.core.decisions import Evidence, Reason
from scheduler.core.durations import DurationDistribution
from scheduler.core.obstacles import Obstacle
from scheduler.core.pairs import PairPredictor
from scheduler.core.queue import Queue, QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.backfill import Backfill
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.demand import Demand
from scheduler.policies.pellucid.gputypes import TypedPlacement
from scheduler.policies.pellucid.memo import Filter, Kind, Memo, everybody
from scheduler.policies.pellucid.pairing import Pairing
from scheduler.policies.pellucid.reservation import (
    Reservation,
    StarvationBound,
    choose,
    exchange,
    is_starving,
)

LOG = logging.getLogger(__name__)


class Parts(Protocol):
    """The parts of the policy that a `Pass` uses: settings, components, and state that lasts
    between passes."""

    max_gpus: int
    keeps_for_first: bool
    profile_above: float
    pack_first_above: float | None
    busy_above: float
    partner_searches: int
    borrows: bool
    pair_predictor: PairPredictor | None
    distribution: DurationDistribution
    demand: Demand
    lending: Lending
    pairing: Pairing
    starvation: StarvationBound
    types: TypedPlacement | None
    memos: dict[str, Memo]
    reservations: dict[str, Reservation]
    remembers: bool
    spent: dict[str, float]  # virtual cluster -> when its searches for partners were last used up

    def knows(self, job_id: str) -> bool:
        """Return whether a job is known to the policy and has not ended."""
        ...

    def key(self, queued: QueuedJob, now: float) -> float:
        """Return the sort key of a waiting job."""
        ...


class Pass:
    """One pass over a queue, made by `run`. The policy's parts must have begun the turn already.

    Attributes:
        moves: what is tried for a waiting job, in this order; each returns whether it succeeded.
        kept: the obstacle of a job that would fit if no GPUs were reserved for another.
        holder: id of the job for which GPUs are reserved; "" when there is none.
        searches: for how many more waiting jobs partners may be searched in this pass.
        scarce: whether GPUs are scarce: jobs ask for many, and few are free.
        open: the jobs that may use the reserved GPUs; None: only their holder may.
    """

    def __init__(self, policy: Parts, turn: Turn):
        self.policy = policy
        self.turn = turn
        self.kept = Obstacle.FIRST if policy.keeps_for_first else Obstacle.KEPT
        self.moves = (self.pack_early, self.profile_first, self.start, self.backfill, self.pack)
        self.holder = ""
        self.searches = policy.partner_searches
        self.scarce = False
        self.open: Backfill | None = None
        self.memo = policy.memos.setdefault(turn.vc, Memo())
        self._profiles = False  # jobs are profiled first, while a slot is free
        self._pressure: Evidence = ()
        self._refusal: Obstacle | None = None  # why the job at hand was not packed
        self._too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed meanwhile
        self._choosy: tuple[QueuedJob, Evidence] | None = None  # refused what was free, and why
        # GPUs -> whether they would fit if nothing were reserved
        self._fits_without: dict[int, bool] = {}
        self._served = 0  # jobs that do not wait any more

    def run(self) -> None:
        """Decide once on all jobs of the queue, in six steps. Each step writes a debug line to the
        program's log."""
        policy, turn, memo = self.policy, self.turn, self.memo
        # 1. sort those who wait by kind: jobs of one kind fare alike
        policy.pairing.time_passed()
        memo.line.follow(turn.queue, self._kind)
        LOG.debug("1 line up: vc=%s waiting=%d", turn.vc, len(turn.queue))
        if policy.keeps_for_first:  # the first in line is offered all moves
            self._weigh_demand()
        reservation = self._reserve()  # 2.
        if not policy.keeps_for_first:
            self._weigh_demand()  # 3.
        # 4. recall which jobs cannot start, as nothing has changed for them since
        memo.begin(turn.pool, reservation)
        self.open = self._backfill(reservation)
        self._too_many.update(memo.why)
        LOG.debug("4 recall: vc=%s do_not_fit=%s", turn.vc, memo.why)
        self._offer_moves()  # 5.
        # 6. remember what was found, for the next pass
        if policy.borrows:  # others may free or take GPUs that could be borrowed
            memo.forget()
        memo.end(turn.pool)
        if self.searches <= 0:
            policy.spent[turn.vc] = turn.now
        left = self.searches
        LOG.debug("6 close: vc=%s waiting=%d searches_left=%d", turn.vc, len(turn.queue), left)

    def _reserve(self) -> Reservation | None:
        """Step 2. Reserve GPUs for the first job that has waited beyond its bound or, with the
        setting `keeps_for_first`, for the first in line that has to wait. Return the reservation,
        or None if there is none."""
        policy, turn = self.policy, self.turn
        if policy.keeps_for_first:
            held = policy.reservations.get(turn.vc)
            policy.pairing.begin(turn, held, remembers=policy.remembers)
            while len(turn.queue) and not self._waits_first(turn.queue[0]):
                self._served += 1
        else:
            self.reserve()
        reservation = policy.reservations.get(turn.vc)
        self.holder = reservation.holder if reservation is not None else ""
        if policy.keeps_for_first:
            policy.pairing.keep(reservation)
        else:
            policy.pairing.begin(turn, reservation, remembers=policy.remembers)
        LOG.debug("2 reserve: vc=%s for=%s", turn.vc, self.holder or "nobody")
        return reservation

    def _weigh_demand(self) -> None:
        """Step 3. Find out whether GPUs are scarce: jobs ask for many, and few are free. Store the
        answer in `scarce`."""
        policy, turn = self.policy, self.turn
        asked = policy.demand.share(turn)
        self.scarce = asked >= policy.busy_above and self._missed()
        self._profiles = self.scarce and bool(turn.cluster.profiling.free)
        self._pressure = (("asked_share", asked),)
        LOG.debug("3 weigh demand: vc=%s asked_share=%.2f scarce=%s", turn.vc, asked, self.scarce)

    def _offer_moves(self) -> None:
        """Step 5. For each remaining job, try the policy's moves (start, pack and so on) in order
        until one succeeds. If none does, record why the job waits."""
        looked_at = 0
        for queued in self.memo.line.offered(self._whom, self._stamp):
            if queued.job.job_id == self.holder:
                continue
            looked_at += 1
            self._refusal = None
            if any(move(queued) for move in self.moves):
                self._served += 1
            else:
                self.wait(queued)
        LOG.debug("5 offer: vc=%s looked_at=%d served=%d", self.turn.vc, looked_at, self._served)

    def _kind(self, queued: QueuedJob) -> Kind:
        return Kind(
            gpus=queued.job.gpus,
            obstacle=queued.obstacle,
            shares=queued.job.share,
            seeks=self.can_share(queued),
            considered=queued.considered is not None,
            pays=self.pays_to_profile(queued),
        )

    def _stamp(self) -> tuple[int, int, bool]:
        """Return a value that changes whenever `_whom` may answer differently."""
        return self.memo.stamp, self._served, self.searches > 0

    def _whom(self, kind: Kind) -> Filter | None:
        """Return a test that tells which waiting jobs of a kind are to be considered in this pass,
        because something may have changed for them. Return None where none of them is."""
        gpus, obstacle = kind.gpus, self.memo.why.get(kind.gpus)
        if obstacle is None or not self.policy.remembers:
            return everybody
        if obstacle is not self.kept and self._opts_out(gpus, kind.shares):
            obstacle = Obstacle.OWN
        if kind.obstacle is not obstacle:
            return everybody
        if kind.seeks and self.searches > 0 and (kind.considered or self.turn.alone(gpus)):
            return everybody
        if kind.pays and self._profiles and self.turn.cluster.profiling.place(gpus) is not None:
            return everybody
        if self.open is not None and self.open.has_room(gpus):
            return self.open.admits
        return None

    def _missed(self) -> bool:
        """Return whether few GPUs are free, here and in virtual clusters that would lend. Return
        True where virtual clusters do not borrow."""
        if not self.policy.borrows:
            return True
        turn = self.turn
        free = turn.pool.free + sum(pool.free for pool in turn.lenders)
        return free < self.policy.lending.terms.scarce_below * turn.cluster.spec.gpus

    # --- a move about the queue -------------------------------------------------------------

    def reserve(self) -> None:
        """Start jobs of a raised priority at the head of the queue that fit, then the job for which
        GPUs are reserved, if it fits now. Otherwise, reserve GPUs for it
        or, if none has a reservation, for the oldest job that has waited beyond its bound."""
        queue = self.turn.queue
        reservations, vc = self.policy.reservations, self.turn.vc
        held = reservations.get(vc)
        urgent = takewhile(lambda queued: queued.priority > 0, queue)
        for first in [queued for queued in urgent if not is_starving(queued)]:
            self._start(first)
        # a holder that is being profiled is not in the queue: nobody else is given one
        while (
            queued := first_starving(queue) if held is None else waiting(queue, held.holder)
        ) is not None:
            if self._keeps_gpus_for(queued, held):
                return
            held = None

    def _keeps_gpus_for(self, queued: QueuedJob, held: Reservation | None) -> bool:
        """Start the first job in line, or reserve GPUs for it. Return whether it still waits.

        Args:
            held: its reservation so far; None: it has none.
        """
        turn, pool, reservations = self.turn, self.turn.pool, self.policy.reservations
        changes = pool.changes
        if held is None or self.policy.borrows or held.changes != changes:
            # else the GPUs are as they were when it was last found not to fit
            before = held.placement if held is not None else []
            pool.unreserve(before)
            reservations.pop(turn.vc, None)
            if self._start(queued):
                return False
            chosen = self._choose(queued, before)
            if chosen is not None:  # else, with nodes closed, nothing is kept until it fits again
                pool.reserve(before)
                turn.reserve(queued, chosen, before)
                since = turn.now if held is None else held.since
                reservations[turn.vc] = Reservation(queued.job.job_id, chosen, changes, since)
        turn.wait(queued, turn.obstacle(queued))
        self.memo.line.file(queued, self._kind(queued))
        return True

    def _choose(self, queued: QueuedJob, before: Placement) -> Placement | None:
        """Return the GPUs to reserve for a job: those reserved so far, with busy nodes exchanged
        for idle ones, or new ones. Return None if too few can be reserved.

        Args:
            before: the GPUs that are reserved for it so far.
        """
        turn, types = self.turn, self.policy.types
        where = types.view(turn.pool, queued) if types is not None else turn.pool
        if before and are_open(turn.pool, before):
            return exchange(where, before)
        return choose(where, queued.job.gpus, self._runs(), self._left_s)

    def _backfill(self, reservation: Reservation | None) -> Backfill | None:
        """Return which jobs may use the reserved GPUs for now. Return None where none may: nothing
        is reserved, the cluster has several GPU types, or the job with the reservation is not the
        first that has waited beyond its bound, or it has waited too long."""
        policy, turn = self.policy, self.turn
        if reservation is None or policy.types is not None:
            return None
        first = goes_first(turn.queue, policy)
        if first is None or first.job.job_id != self.holder or not policy.starvation.backfill:
            return None  # the holder is being profiled, or others are before it
        if policy.starvation.overdue(first, turn.now):
            return None
        before = [run for run in self._runs() if run.start_time < reservation.since]
        return Backfill(
            turn=turn,
            kept=reservation.placement,
            before=before,
            left_s=self._left_s,
            distribution=policy.distribution,
        )

    # --- the first in line ------------------------------------------------------------------

    def _waits_first(self, first: QueuedJob) -> bool:
        """Start the first in line, or have it profiled, by the first move that succeeds; one that
        has waited beyond its bound only starts on GPUs of its own. If no move does, reserve GPUs
        for it. If too few can be reserved, because nodes are closed, keep the reservation that
        there was, if its GPUs are open. Return whether the job waits."""
        turn, pool, reservations = self.turn, self.turn.pool, self.policy.reservations
        job_id, changes, held = first.job.job_id, pool.changes, reservations.get(turn.vc)
        before = held.placement if held is not None else []
        mine = held if held is not None and held.holder == job_id else None
        pool.unreserve(before)
        any_move = (self.pack_early, self.profile_first, self.start, self.pack)
        if any(move(first) for move in ((self.start,) if is_starving(first) else any_move)):
            run = turn.cluster.runs.get(job_id)
            if mine is not None and run is not None and not run.profiling:
                del reservations[turn.vc]
            else:  # of one that still waits, or is being profiled
                pool.reserve(before)
            return False
        as_it_was = mine is not None and mine.changes == changes and not self.policy.borrows
        own = before if mine is not None else []
        chosen = None if as_it_was else self._choose(first, own)
        if chosen is not None:
            pool.reserve(own)
            turn.reserve(first, chosen, own, Reason.PRIORITY)
            since = turn.now if mine is None else mine.since
            reservations[turn.vc] = Reservation(job_id, chosen, changes, since)
        elif as_it_was or (before and are_open(pool, before)):
            pool.reserve(before)
        else:
            reservations.pop(turn.vc, None)
        self.wait(first)
        return True

    # --- moves of a waiting job -------------------------------------------------------------

    def pack_early(self, queued: QueuedJob) -> bool:
        """Pack a job with a running one, if GPUs are scarce and the pair runs nearly as fast as
        apart. Return whether it was packed."""
        least = self.policy.pack_first_above
        if least is None or not self.scarce or queued.profile is None:
            return False
        if not self._may_search(queued):
            return False
        return self._pack(queued, least, self._pressure) is None

    def profile_first(self, queued: QueuedJob) -> bool:
        """Begin to profile a job, if GPUs are scarce and there is room to profile, because only
        jobs with a profile can share. Return whether profiling began."""
        if not (self._profiles and self.pays_to_profile(queued) and self.turn.try_profile(queued)):
            return False
        self._profiles = bool(self.turn.cluster.profiling.free)
        return True

    def start(self, queued: QueuedJob) -> bool:
        """Start a job on GPUs that no other job uses. Return whether it was started."""
        gpus = queued.job.gpus
        untried = gpus not in self._too_many or self.policy.types is not None
        if untried and self._start(queued):
            self.memo.forget()
            return True
        self._too_many.add(gpus)
        return False

    def backfill(self, queued: QueuedJob) -> bool:
        """Start a job on GPUs that are reserved for a job that cannot start yet. Return whether it
        was started."""
        if self.open is None or not self.open.start(queued):
            return False
        self.memo.forget()
        return True

    def pack(self, queued: QueuedJob) -> bool:
        """Pack a job with a running one, if sharing costs less than the wait that it saves. Return
        whether it was packed."""
        if not self._may_search(queued):
            return False
        self._refusal = self._pack(queued, 0.0)
        return self._refusal is None

    def wait(self, queued: QueuedJob) -> None:
        """Record why a job waits for which no move succeeded."""
        turn, types = self.turn, self.policy.types
        obstacle = turn.obstacle(queued)
        kept = types is None and self._is_kept_from(queued, obstacle)
        if types is None:
            self.memo.find(queued.job.gpus, self.kept if kept else obstacle)
        if self._choosy is not None and self._choosy[0] is queued:
            turn.wait(queued, Obstacle.SLOW, evidence=self._choosy[1])
        elif kept:
            self._wait_for_reserved(queued)
        else:
            refused = self._refusal in (Obstacle.SPEED, Obstacle.OTHERS)
            evidence = self.policy.pairing.evidence if refused else ()
            if self._refusal is None and self._opts_out(queued.job.gpus, queued.job.share):
                obstacle = Obstacle.OWN
            turn.wait(queued, self._refusal or obstacle, evidence=evidence)
        self.memo.line.file(queued, self._kind(queued))

    # --- packing and profiling --------------------------------------------------------------

    def can_share(self, queued: QueuedJob) -> bool:
        """Return whether a job may share GPUs: its owner allows it, it is not too large, and its
        profile (its own or the usual one) is known."""
        return (
            self.policy.pair_predictor is not None
            and queued.job.share
            and queued.likely is not None
            and queued.job.gpus <= self.policy.max_gpus
        )

    def pays_to_profile(self, queued: QueuedJob) -> bool:
        """Return whether profiling a job is worth the work that it loses by it. A job with a
        profile can share GPUs from its start."""
        job, policy = queued.job, self.policy
        assert queued.predicted_s is not None
        return (
            queued.predicted_s > policy.profile_above * self.turn.profile_s
            and queued.profile is None
            and not queued.profiled
            and job.gpus <= policy.max_gpus
            and job.share
            and job.profile
            and policy.pair_predictor is not None
        )

    def _may_search(self, queued: QueuedJob) -> bool:
        return self.searches > 0 and self.can_share(queued)

    def _pack(self, queued: QueuedJob, least: float, pressure: Evidence = ()) -> Obstacle | None:
        """Let a job share the GPUs of a running job, if that pays. Return None if the job was
        started, otherwise the obstacle.

        Args:
            least: the predicted speeds of both jobs must sum to at least this.
            pressure: further evidence for the decision.
        """
        pairing, predictor = self.policy.pairing, self.policy.pair_predictor
        assert predictor is not None
        if not self.turn.alone(queued.job.gpus):  # among nobody there is nothing to search
            return pairing.nobody(self.turn, queued)
        self.searches -= 1
        found = pairing.best(self.turn, queued, predictor, least)
        if isinstance(found, Obstacle):
            return found
        self.turn.pack(queued, found, evidence=(*pairing.evidence, *pressure))
        return None

    def _opts_out(self, gpus: int, shares: bool) -> bool:
        """Return whether only the owner's wish keeps a job of `gpus` GPUs from being considered for
        sharing."""
        policy = self.policy
        if shares or policy.pair_predictor is None or gpus > policy.max_gpus:
            return False
        return bool(self.turn.alone(gpus))

    # --- GPUs of its own --------------------------------------------------------------------

    def _start(self, queued: QueuedJob) -> bool:
        """Start a job on free GPUs of its virtual cluster or, if there are too few, on borrowed
        ones. Return whether it was started."""
        policy, turn = self.policy, self.turn
        if policy.types is not None:
            return self._start_typed(queued, policy.types)
        placement = turn.pool.place(queued.job.gpus)
        if placement is not None:
            turn.start(queued, placement)
            return True
        if policy.borrows and policy.lending.admits(queued, policy.distribution):
            placement = policy.lending.span(turn.pool, turn.lenders, queued.job.gpus)
            if placement is not None:
                turn.start(queued, placement, Reason.BORROWED)
                return True
        return False

    def _start_typed(self, queued: QueuedJob, types: TypedPlacement) -> bool:
        """Start a job on the node group of least cost, in a cluster with several GPU types. Return
        whether it was started; the job may also wait for better GPUs."""
        assert queued.estimate_s is not None
        choice = types.choose(
            self.turn,
            queued,
            self.policy.distribution.total_s(queued.estimate_s, queued.outlived_s),
            self._left_s,
            patient=not is_starving(queued),
        )
        queued.type_costs = choice.evidence
        self._choosy = (queued, choice.evidence) if choice.waits else None
        if choice.placement is None:
            return False
        self.turn.start(queued, choice.placement, evidence=choice.evidence)
        return True

    def _is_kept_from(self, queued: QueuedJob, obstacle: Obstacle) -> bool:
        """Return whether a job that does not fit now would fit without the reservation."""
        if not self.holder or obstacle is not Obstacle.SCATTERED:
            return False
        gpus, pool = queued.job.gpus, self.turn.pool
        if gpus not in self._fits_without:
            held = self.policy.reservations[self.turn.vc].placement
            pool.unreserve(held)
            self._fits_without[gpus] = pool.place(gpus) is not None
            pool.reserve(held)
        return self._fits_without[gpus]

    def _wait_for_reserved(self, queued: QueuedJob) -> None:
        """Record that a job waits because GPUs are reserved. Name the job with the reservation as
        the blocker only if no other job would get these GPUs in its absence."""
        turn, holder = self.turn, self.holder
        known = queued.obstacle is self.kept
        others = known or self.memo.line.wait_before(queued, self.kept)
        after = goes_first(turn.queue, self.policy, after=holder)
        alone = not others and (after is None or (self.policy.keeps_for_first and after is queued))
        kept = self.policy.reservations[turn.vc].placement
        turn.wait(
            queued,
            self.kept,
            blocker=holder if alone and holder not in turn.cluster.runs else None,
            evidence=(("reserved_gpus", sum(mask.bit_count() for _, mask in kept)),),
        )

    def _runs(self) -> list[Run]:
        """Return the runs that may hold GPUs of this virtual cluster: all runs where virtual
        clusters borrow, otherwise its own runs."""
        turn = self.turn
        return list(turn.cluster.runs.values()) if self.policy.borrows else turn.runs()

    def _left_s(self, run: Run) -> float:
        """Return the predicted seconds until the GPUs of a run are free."""
        return self.policy.pairing.free_in_s(self.turn, run)


def waiting(queue: Queue, job_id: str) -> QueuedJob | None:
    """Return the job with this id, or None where it is not in the queue."""
    return next((queued for queued in queue if queued.job.job_id == job_id), None)


def goes_first(queue: Queue, policy: Parts, after: str = "") -> QueuedJob | None:
    """Return the job for which GPUs are reserved, skipping the job `after`: the first that has
    waited beyond its bound or, with `keeps_for_first`, the first in line. Return None if there is
    none."""
    if policy.keeps_for_first:
        return next((one for one in queue if one.job.job_id != after), None)
    return first_starving(queue, after)


def first_starving(queue: Queue, after: str = "") -> QueuedJob | None:
    """Return the first job in the queue that has waited beyond its bound, skipping the job `after`.
    Return None if there is none, or another job of normal priority is ahead of it."""
    for queued in queue:
        if queued.job.job_id == after:
            continue
        if is_starving(queued):
            return queued
        if queued.priority <= 0:
            return None
    return None
