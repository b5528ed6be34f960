"""Reservations: a job that has waited too long gets GPUs that no other job may take.

The promise is about overtaking, and rests on no prediction. GPUs are reserved for a job once it has
waited longer than its bound, and `backfill` times as long again. From then on no other job is
started on them, alone or packed: the job waits only for the jobs that were running on them already.

Between the bound and that time, GPUs are reserved as soon as the wait that this causes to the other
jobs, in total, is predicted to be small compared with what the job has waited. Jobs that are likely
to end in time may use the reserved GPUs (`pellucid.backfill`). Predictions only choose which GPUs
are reserved. A busy node is exchanged for one that is idle now, never for another busy one, so
that, apart from backfill, the job never has to wait for more runs than before.

A virtual cluster keeps one reservation at a time, for the earliest-submitted job beyond its bound:
holding GPUs idle for many jobs at once costs all jobs far more than it gives these
(`docs/policy-figures.md`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from features.job import Job
from scheduler.core.cluster import Placement, Pool, Run, beyond
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.demand import Demand
from scheduler.policies.pellucid.gputypes import PoolView

EndsIn = Callable[[Run], float]  # predicted seconds until a run's GPUs are free
_Entry = tuple[float, int, QueuedJob]
STEP = 0.25  # of its bound, after which a job that was put off is asked about again
ROUNDING_S = 1.0  # a clock asked a moment too early would have to be asked again at once


_BEFORE_ALL = 1e12  # keys of jobs past their bound are this much lower than any other


def starving_key(queued: QueuedJob) -> float:
    """Return the sort key of a job that has waited beyond its bound (the longest wait that is
    accepted): such jobs go before all others, in order of submission."""
    return queued.submit_time - _BEFORE_ALL


def is_starving(queued: QueuedJob) -> bool:
    """Return whether a job's key says that it has waited beyond its bound (the longest wait that is
    accepted)."""
    return queued.key < -_BEFORE_ALL / 2


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """GPUs that are reserved for a waiting job.

    Attributes:
        holder: id of the job; "" when it left, and the GPUs are to be released.
        changes: `Pool.changes` when the job was last found not to fit.
        since: time when GPUs were first reserved for it.
    """

    holder: str
    placement: Placement
    changes: int
    since: float


@dataclass(frozen=True, slots=True)
class PutOff:
    """The postponement of a job that has waited beyond its bound: it does not go first yet, because
    that would make other jobs wait too much.

    Attributes:
        times: multiple of its bound after which the cost is computed again.
        costs_s: total seconds of waiting that it would cause to other jobs.
        waited_s: seconds that it had waited itself.
    """

    times: float
    costs_s: float
    waited_s: float


Awaited = tuple[float, int, str, str, float]  # when, order, job, virtual cluster, submission


@dataclass(slots=True, kw_only=True)
class BoundMemory:
    """A plain record of the waiting jobs and their bounds.

    Attributes:
        by_vc: maps a virtual cluster to the times at which its jobs reach their bound by the wall
            clock; jobs that have left may be included.
        patient: likewise, by the fair clock, for jobs that have reached their bound by the wall
            clock.
        first: ids of the jobs that go before all others.
        put_off: jobs that have waited beyond their bound, but do not go first yet.
    """

    by_vc: dict[str, list[Awaited]]
    patient: dict[str, list[Awaited]]
    first: list[str]
    put_off: dict[str, PutOff]


class StarvationBound:
    """Which jobs have waited longer than the bound, and when the next one will have.

    Args:
        max_wait_s: the bound: seconds of waiting after which a job is starving.
        overload: while jobs ask for more than this many times the GPUs there are, the bound is
            longer: the job's wait by the fair clock (`policies.pellucid.demand`) must also reach
            `max_wait_s / overload`.
        demand: keeps the fair clock.
        backfill: for this many further bounds, other jobs may use GPUs that are reserved for the
            job.
        price: during that time, the job goes first only if the wait that this causes to others, in
            total, is at most this many times what the job has waited.
    """

    def __init__(
        self,
        max_wait_s: float,
        overload: float,
        demand: Demand,
        backfill: float = 0.0,
        price: float = inf,
    ):
        self.max_wait_s = max_wait_s
        self.overload = overload
        self.backfill = backfill
        self.price = price
        self._demand = demand
        self._by_vc: dict[str, list[_Entry]] = defaultdict(list)  # by the end of their patience
        self._patient: dict[str, list[_Entry]] = defaultdict(list)  # past it, by the fair clock
        self._first: set[str] = set()  # jobs that go before all others
        self._put_off: dict[str, PutOff] = {}

    def remember(self) -> BoundMemory:
        """Return a plain record of the waiting jobs and their bounds."""
        return BoundMemory(
            by_vc={vc: [_awaited(one) for one in heap] for vc, heap in self._by_vc.items()},
            patient={vc: [_awaited(one) for one in heap] for vc, heap in self._patient.items()},
            first=sorted(self._first),
            put_off=dict(self._put_off),
        )

    def restore(self, memory: BoundMemory, jobs: Mapping[str, QueuedJob]) -> None:
        """Restore what `remember` returned; `jobs` are all jobs that have not ended, by id."""
        for ours, theirs in ((self._by_vc, memory.by_vc), (self._patient, memory.patient)):
            for vc, heap in theirs.items():
                ours[vc] = [_entry_of(one, jobs) for one in heap]
        self._first, self._put_off = set(memory.first), dict(memory.put_off)

    def take_over(self, other: StarvationBound, jobs: Iterable[QueuedJob]) -> None:
        """Take over the jobs of another `StarvationBound`. The demand of the other must have been
        taken over before."""
        if self._terms() == other._terms():
            self._by_vc, self._patient = other._by_vc, other._patient
            self._first, self._put_off = other._first, other._put_off
            return
        for queued in jobs:
            self.expect(queued)

    def _terms(self) -> tuple[float, ...]:
        demand = self._demand.pooled
        return self.max_wait_s, self.overload, self.backfill, self.price, demand

    def restricted_to(self, kept: Collection[str], demand: Demand) -> StarvationBound:
        """Return the same bounds for the jobs in `kept` only, measured with the fair clock of
        `demand`."""
        found = StarvationBound(
            max_wait_s=self.max_wait_s,
            overload=self.overload,
            demand=demand,
            backfill=self.backfill,
            price=self.price,
        )
        for ours, theirs in ((found._by_vc, self._by_vc), (found._patient, self._patient)):
            for vc, heap in theirs.items():
                ours[vc] = sorted(entry for entry in heap if entry[-1].job.job_id in kept)
        found._first = self._first & set(kept)
        found._put_off = {job: at for job, at in self._put_off.items() if job in kept}
        return found

    def left_s(self, queued: QueuedJob, now: float, *, latest: bool = False) -> float:
        """Return the seconds until a waiting job goes first, or until the cost of that to other
        jobs is computed again, if demand stays the same. With `latest`, return the seconds until it
        goes first whatever the cost."""
        if queued.job.job_id in self._first:
            return 0.0
        vc, bound_s = queued.job.vc, self.most_s if latest else self._bound_s(queued)
        came = self._demand.clock_at_arrival(queued.job.job_id)
        deadline = (queued.submit_time if came is None else came) + bound_s / self.overload
        fair_s = deadline - self._demand.clock(vc, now)
        wall_s = queued.submit_time + bound_s - now
        return max(wall_s, fair_s * self._demand.slowdown(vc), 0.0)

    def goes_first(self, queued: QueuedJob) -> bool:
        """Return whether a job goes before all others, because `due` returned it."""
        return queued.job.job_id in self._first

    def put_off(self, queued: QueuedJob) -> PutOff | None:
        """Return why a job that has waited beyond its bound does not go first yet. Return None
        where it goes first, or has not reached its bound."""
        return None if self.goes_first(queued) else self._put_off.get(queued.job.job_id)

    def overdue(self, queued: QueuedJob, now: float) -> bool:
        """Return whether a job has waited so long that no other job may use its reserved GPUs any
        more: for its bound, and `backfill` times as long again."""
        came = self._demand.clock_at_arrival(queued.job.job_id)
        fair_s = 0.0 if came is None else self._demand.clock(queued.job.vc, now) - came
        late = fair_s >= self.most_s / self.overload
        return late and now - queued.submit_time >= self.most_s

    def expect(self, queued: QueuedJob) -> None:
        """Record when a job that joins its queue will reach its bound (the longest wait that is
        accepted)."""
        if not self.goes_first(queued):
            deadline = queued.submit_time + self._bound_s(queued)
            heappush(self._by_vc[queued.job.vc], (deadline, queued.seq, queued))

    def over(self, job_id: str) -> None:
        """Stop treating a job as one that has waited beyond its bound, because it left its
        queue."""
        self._first.discard(job_id)
        self._put_off.pop(job_id, None)

    def due(self, vc: str, now: float, costs_s: Callable[[QueuedJob], float]) -> list[QueuedJob]:
        """Mark the jobs of a virtual cluster that have newly become due to go first, and return
        them. A job that would cost the others too much is put off instead.

        Args:
            costs_s: function that returns the total seconds of waiting that a job causes to other
                jobs if it goes first.
        """
        heap, patient, due = self._by_vc[vc], self._patient[vc], []
        while heap and heap[0][0] <= now:
            _, seq, queued = heappop(heap)
            deadline = self._fair_deadline(queued)
            stopped = queued.submit_time + self._bound_s(queued) > now  # it waits again
            if deadline is not None and queued.job.vc == vc and not stopped:  # None: it is over
                heappush(patient, (deadline, seq, queued))
        clock = self._demand.clock(vc, now)
        while patient and patient[0][0] <= clock:
            _, seq, queued = heappop(patient)
            deadline = self._fair_deadline(queued)
            if deadline is None or queued.job.vc != vc:
                continue
            if deadline > clock:  # it came again
                heappush(patient, (deadline, seq, queued))
            elif self._pays(queued, now, costs_s):
                self._first.add(queued.job.job_id)
                due.append(queued)
            else:  # asked about again later, or at once where that has passed as well
                later = queued.submit_time + self._bound_s(queued)
                fair = self._fair_deadline(queued)
                if later > now or fair is None:
                    heappush(heap, (later, seq, queued))
                else:
                    heappush(patient, (fair, seq, queued))
        return due

    def _pays(self, queued: QueuedJob, now: float, costs_s: Callable[[QueuedJob], float]) -> bool:
        """Return whether a job that has waited beyond its bound goes first now. If not, store when
        its cost to other jobs is computed again."""
        before, most = self._put_off.get(queued.job.job_id), 1.0 + self.backfill
        times = 1.0 if before is None else before.times
        if self.goes_first(queued) or times >= most:
            return True
        waited_s, caused_s = now - queued.submit_time, costs_s(queued)
        if caused_s <= self.price * waited_s:
            return True
        later = min(times + STEP, most)
        self._put_off[queued.job.job_id] = PutOff(later, caused_s, waited_s)
        return False

    def next(self, now: float) -> float | None:
        """Return the time at which the next waiting job reaches its bound (the longest wait that is
        accepted), or None. Jobs that no longer wait may be included."""
        times = [heap[0][0] for heap in self._by_vc.values() if heap and heap[0][0] > now]
        for vc, heap in self._patient.items():
            if heap:
                fair_s = heap[0][0] - self._demand.clock(vc, now)
                left_s = fair_s * self._demand.slowdown(vc) + ROUNDING_S
                if now + left_s > now:  # else it was evaluated since, or no job waits there
                    times.append(now + left_s)
        return min(times, default=None)

    @property
    def most_s(self) -> float:
        """The seconds of waiting after which a job goes first, whatever that costs other jobs."""
        return (1.0 + self.backfill) * self.max_wait_s

    def _bound_s(self, queued: QueuedJob) -> float:
        """Return the seconds of waiting after which a job goes first. They are more than
        `max_wait_s` if the job was postponed because of its cost to others."""
        put_off = self._put_off.get(queued.job.job_id)
        return self.max_wait_s if put_off is None else put_off.times * self.max_wait_s

    def _fair_deadline(self, queued: QueuedJob) -> float | None:
        came = self._demand.clock_at_arrival(queued.job.job_id)
        return None if came is None else came + self._bound_s(queued) / self.overload


def _awaited(entry: _Entry) -> Awaited:
    at, seq, queued = entry
    return at, seq, queued.job.job_id, queued.job.vc, queued.submit_time


def _entry_of(awaited: Awaited, jobs: Mapping[str, QueuedJob]) -> _Entry:
    at, seq, job_id, vc, submit_time = awaited
    queued = jobs.get(job_id)
    if queued is None or queued.seq != seq:  # it is gone
        queued = QueuedJob(Job(job_id, submit_time, 1, vc=vc), seq)
    return at, seq, queued


def choose(
    pool: Pool | PoolView, gpus: int, runs: Iterable[Run], ends_in: EndsIn
) -> Placement | None:
    """Return GPUs for a job of `gpus` GPUs: those that are predicted to be free soonest, among
    those that are not reserved. Return None when there are too few.

    A job of up to one node's GPUs gets them on one node. A larger one gets whole nodes, as many as
    it needs, even if it does not need all GPUs of the last one.

    Args:
        ends_in: function that returns the predicted seconds until a run ends.
    """
    ready = _ready(pool, runs, ends_in)
    if gpus <= pool.per_node:
        best: tuple[float, int, int] | None = None
        for node in sorted(ready):
            found = _soonest(ready[node], gpus, pool.reserved_on(node))
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], node, found[1]
        return None if best is None else [(best[1], best[2])]
    whole = sorted(
        (max(seconds for seconds, _ in parts), node)
        for node, parts in ready.items()
        if not pool.reserved_on(node)
    )
    chosen: Placement = []
    for _, node in whole:
        chosen.append((node, _whole(pool, node)))
        gpus -= pool.gpus_of(node)
        if gpus <= 0:
            return chosen
    taken = {node for node, _ in chosen}
    rest = [  # a node of which GPUs are closed is no whole one, and may do for what is left
        (seconds, node, mask)
        for node in ready
        if node not in taken and pool.closed_on(node) == pool.reserved_on(node)
        for seconds, mask in filter(None, [_soonest(ready[node], gpus, pool.closed_on(node))])
    ]
    return [*chosen, min(rest)[1:]] if rest else None


def _ready(
    pool: Pool | PoolView, runs: Iterable[Run], ends_in: EndsIn
) -> dict[int, list[tuple[float, int]]]:
    """Return, for each node, when its GPUs become free: pairs of seconds from now and a bit mask of
    GPUs. A shared GPU is free once both its runs have ended."""
    ready: dict[int, list[tuple[float, int]]] = {}
    for node in pool.nodes():
        if free := pool.open_on(node):
            ready[node] = [(0.0, free)]
    for run in runs:
        seconds = ends_in(run)
        if run.partner is None or run.order > run.partner.order:
            held = list(zip(run.nodes, run.gpus, strict=True))
        else:  # a shared GPU once: with the younger
            held = beyond(run, run.partner)
        for node, mask in held:
            if node in pool:
                ready.setdefault(node, []).append((seconds, mask))
    return ready


def exchange(pool: Pool | PoolView, held: Placement) -> Placement:
    """Return the placement `held` with busy nodes replaced by idle ones, as far as there are any.
    Return it unchanged if it has parts of nodes. The caller must have ended the reservation of
    `held` in the pool."""
    if any(mask != _whole(pool, node) for node, mask in held):
        return held
    mine = {node for node, _ in held}
    idle = [n for n in pool.nodes() if n not in mine and pool.is_idle(n)]
    out: Placement = []
    for node, mask in held:
        if not pool.is_idle(node):
            like = (n for n in idle if pool.gpus_of(n) == pool.gpus_of(node))
            if (other := next(like, None)) is not None:
                idle.remove(other)
                node = other
        out.append((node, mask))
    return out


def _whole(pool: Pool | PoolView, node: int) -> int:
    """Return a bit mask of every GPU of a node."""
    return (1 << pool.gpus_of(node)) - 1


def _soonest(parts: list[tuple[float, int]], gpus: int, taken: int) -> tuple[float, int] | None:
    """Return the seconds until `gpus` GPUs of one node are free, and the bit mask of those that
    become free first. Return None if the node has too few.

    Args:
        parts: pairs (seconds until free, bit mask of GPUs), as `_ready` returns them.
        taken: bit mask of GPUs that are left out.
    """
    mask, seconds = 0, 0.0
    for seconds, more in sorted(parts):
        more &= ~(taken | mask)
        while more and mask.bit_count() < gpus:
            low = more & -more
            mask |= low
            more ^= low
        if mask.bit_count() == gpus:
            return seconds, mask
    return None
