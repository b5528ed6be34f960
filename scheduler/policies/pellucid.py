"""Pellucid: learned order with ageing, packing that pays, profiling that pays, a bound on waiting.

Nothing is preempted. How the parts earn their keep, and what they cost, is in `docs/policy.md`.
"""

from __future__ import annotations

from itertools import takewhile

from models.bundle import Bundle
from scheduler.cluster import Placement, Pool, Run
from scheduler.core import Queue, QueuedJob, Turn
from scheduler.decisions import Reason
from scheduler.estimates import Estimator
from scheduler.orchestrator.outlook import Outlook
from scheduler.orchestrator.pairing import Pairing
from scheduler.orchestrator.reservation import Late, choose, exchange
from scheduler.policies.base import Policy
from scheduler.sharing import Judge, judge_of


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
        patience_s: the bound. A job that has waited longer goes before all others, oldest first,
            and is given a reservation; see `orchestrator.reservation` for what that promises.
        partner_searches: how many waiting jobs at most are matched with partners in one turn.
        borrows: use idle GPUs of virtual clusters in which nobody waits.
        plenty: when borrowing, packing and profiling wait until less than this share of all GPUs
            is free.
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
        patience_s: float = 172_800.0,
        partner_searches: int = 16,
        borrows: bool = False,
        plenty: float = 0.05,
    ):
        self.judge = judge
        self.max_gpus = max_gpus
        self.ageing = ageing
        self.profile_above_s = profile_above_s
        self.pack_first_above = pack_first_above
        self.patience_s = patience_s
        self.partner_searches = partner_searches
        self.borrows = borrows
        self.plenty = plenty
        self.outlook = Outlook()
        self.pairing = Pairing(self.outlook, gpu_memory_mib)
        self.late = Late(patience_s)
        self._estimates: dict[str, float] = {}  # of jobs that have not ended
        self._holds: dict[str, tuple[str, Placement]] = {}  # virtual cluster -> job, its GPUs
        # of the turn: GPU counts that would fit without the reservation; whether one was told so
        self._fits: dict[int, bool] = {}
        self._passed_over = False

    # --- order ------------------------------------------------------------------------------

    def prepare(self, queued: QueuedJob, now: float, estimator: Estimator) -> None:
        super().prepare(queued, now, estimator)
        assert queued.estimate_s is not None
        self._estimates[queued.job.job_id] = queued.estimate_s
        self.late.expect(queued, now)

    def key(self, queued: QueuedJob, now: float) -> float:
        """Predicted duration, aged; a job past its bound comes first, by submission."""
        assert queued.estimate_s is not None
        if self.late.is_late(queued, now):
            return queued.submit_time - LATE
        return queued.estimate_s + self.ageing * queued.submit_time

    def ended(self, run: Run, now: float) -> None:
        estimate = self._estimates.pop(run.job.job_id, None)
        if estimate is not None:
            self.outlook.learn(estimate, now - run.start_time)

    def withdrawn(self, job_id: str, now: float) -> None:
        self._estimates.pop(job_id, None)

    def use(self, bundle: Bundle) -> None:
        self.judge = judge_of(bundle)

    def next_wake(self, now: float) -> float | None:
        """When the next waiting job reaches its bound."""
        return self.late.next(now)

    # --- a turn -----------------------------------------------------------------------------

    def serve(self, turn: Turn) -> None:
        self._promote(turn)
        self._reserved(turn)
        self.pairing.begin(turn)
        scarce = self._scarce(turn)
        too_many: set[int] = set()  # GPU counts that did not fit; nothing is freed during a turn
        searches = self.partner_searches
        holder = self._holds.get(turn.vc, ("", []))[0]
        self._fits.clear()
        self._passed_over = False
        for queued in list(turn.queue):
            if queued.job.job_id == holder:
                continue
            gpus = queued.job.gpus
            blocked: Reason | None = None
            if self._can_share(queued) and searches > 0:
                if scarce and self.pack_first_above is not None:
                    searches -= 1
                    if self._pack(turn, queued, self.pack_first_above) is None:
                        continue
            elif (
                scarce
                and turn.cluster.profiling.free  # asked first: mostly there is no room to look
                and self._pays_to_profile(queued)
                and turn.look(queued)
            ):
                continue
            if gpus not in too_many and self._start(turn, queued):
                continue
            too_many.add(gpus)
            if self._can_share(queued) and searches > 0:
                searches -= 1
                blocked = self._pack(turn, queued, 0.0)
                if blocked is None:
                    continue
            self._wait(turn, queued, blocked, holder)

    def _scarce(self, turn: Turn) -> bool:
        """Whether GPUs given now are likely to be missed: behind walls always."""
        if not self.borrows:
            return True
        free = turn.pool.free + sum(pool.free for pool in turn.lenders)
        return free < self.plenty * turn.cluster.spec.gpus

    def _start(self, turn: Turn, queued: QueuedJob) -> bool:
        """Start a job on GPUs of its own virtual cluster, or borrowed ones, where there is room."""
        placement = turn.pool.place(queued.job.gpus)
        if placement is not None:
            turn.start(queued, placement)
            return True
        if self.borrows:
            placement = span(turn.pool, turn.lenders, queued.job.gpus)
            if placement is not None:
                turn.start(queued, placement, Reason.BORROWED)
                return True
        return False

    def _wait(self, turn: Turn, queued: QueuedJob, blocked: Reason | None, holder: str) -> None:
        reason = turn.capacity_reason(queued)
        if holder and reason is Reason.GPUS_FRAGMENTED and self._fits_without(turn, queued):
            alone = not self._passed_over and first_late(turn.queue, after=holder) is None
            blames = alone and holder not in turn.cluster.runs
            self._passed_over = True
            blocker = holder if blames else None
            turn.wait(queued, Reason.RESERVED_FOR_STARVING_JOB, blocker=blocker)
        else:
            turn.wait(queued, blocked or self._opted_out(turn, queued) or reason)

    def _fits_without(self, turn: Turn, queued: QueuedJob) -> bool:
        """Whether a job would fit if the reservation were not there."""
        gpus = queued.job.gpus
        if gpus not in self._fits:
            held = self._holds[turn.vc][1]
            turn.pool.let_go(held)
            self._fits[gpus] = turn.pool.place(gpus) is not None
            turn.pool.hold(held)
        return self._fits[gpus]

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

    def _pack(self, turn: Turn, queued: QueuedJob, least: float) -> Reason | None:
        """Pack a job where that pays. None when it was packed, otherwise what stood in the way."""
        assert self.judge is not None
        found = self.pairing.best(turn, queued, self.judge, least)
        if isinstance(found, Reason):
            return found
        turn.pack(queued, found)
        return None

    def _pays_to_profile(self, queued: QueuedJob) -> bool:
        """Worth losing what it does while profiled: only then can it share from its start."""
        assert queued.estimate_s is not None
        return (
            self.judge is not None
            and queued.job.share
            and queued.job.profile
            and not queued.looked_at
            and queued.profile is None
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
            pool.let_go(held[1])  # it ended while being profiled
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
            pool.let_go(before)
            self._holds.pop(turn.vc, None)
            if self._start(turn, queued):
                held = None
                continue
            chosen = (
                exchange(pool, before)
                if before and all(pool.is_open(node) for node, _ in before)
                else choose(
                    pool, queued.job.gpus, self._runs(turn), lambda run: self._left(turn, run)
                )
            )
            pool.hold(before)
            if chosen is not None:
                turn.reserve(queued, chosen, before)
                self._holds[turn.vc] = queued.job.job_id, chosen
            turn.wait(queued, turn.capacity_reason(queued))
            return

    def _runs(self, turn: Turn) -> list[Run]:
        """Runs that may be on this virtual cluster's GPUs."""
        return list(turn.cluster.runs.values()) if self.borrows else turn.runs()

    def _left(self, turn: Turn, run: Run) -> float:
        """Predicted seconds until the GPUs of a run are free."""
        members = (run, run.partner) if run.partner is not None else (run,)
        return max(self.pairing.left(turn, member) for member in members)


LATE = 1e12  # keys of jobs past their bound are this much lower than any other
LATE_KEYS = -LATE / 2


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


def span(own: Pool, lenders: list[Pool], gpus: int) -> Placement | None:
    """GPUs for a job that its own virtual cluster has no room for; None when there are too few.

    Up to a node's worth comes from the first lender that has a node for it. A larger job takes
    wholly idle nodes, its own first, wherever they are.
    """
    if gpus <= own.per_node:
        for pool in lenders:
            placement = pool.place(gpus)
            if placement is not None:
                return placement
        return None
    placement, left = [], gpus
    for pool in [own, *lenders]:
        for node in pool.nodes():
            if pool.is_idle(node):
                take = min(left, own.per_node)
                placement.append((node, (1 << take) - 1))
                left -= take
                if not left:
                    return placement
    return None
