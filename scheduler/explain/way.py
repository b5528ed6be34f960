"""What is in the way of a waiting job: the smallest set found without which it starts, tried.

Runs that hold GPUs, jobs that go first, the job GPUs are kept for, closed nodes, and mixtures of
them. Each set is removed from a copy of the core; what is named starts the job there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import process_time

from scheduler.core.cluster import Pool, Run
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.durations import at_level
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.copies import CoreCopy
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.futures import Believed

SINGLES = 24  # running jobs, and as many waiting ones, that are tried alone
SEEDS = 4  # nodes whose runs are tried together
LONG = 100  # jobs behind it from which on they are left out while searching
TRIES, BUDGET_S = 160, 1.5  # copies tried, and processor seconds spent on them, at most
BEGINS = (Action.START, Action.PACK, Action.PROFILE)
Item = str | int  # a job that leaves, or a closed node that opens


class Kind(StrEnum):
    """What may be in the way."""

    RUN = "running job"
    AHEAD = "waiting job"
    KEPT = "reservation"
    NODE = "closed node"


@dataclass(frozen=True, slots=True)
class Holder:
    """One thing in the way.

    Attributes:
        job_id: "" of a closed node.
        node: None unless it is a closed node.
        ran_s, expected_s: of a run: how long it has run, and how long it was predicted to.
        ends_in_s: of a run: seconds until it has ended, with even odds.
    """

    kind: Kind
    job_id: str = ""
    node: int | None = None
    ran_s: float | None = None
    expected_s: float | None = None
    ends_in_s: float | None = None

    @property
    def past_s(self) -> float:
        """How long it has outlived its prediction, seconds; 0: it has not."""
        if self.ran_s is None or self.expected_s is None:
            return 0.0
        return max(0.0, self.ran_s - self.expected_s)


@dataclass(frozen=True, slots=True)
class Way:
    """What is in the way.

    Attributes:
        holders: the smallest set found without which the job starts at once; empty: none was.
        alternatives: other single jobs or nodes that would do as well.
        not_examined: what was not tried, in words.
        still: with everything removed, why it would wait even then; None: it starts.
    """

    holders: tuple[Holder, ...] = ()
    alternatives: int = 0
    not_examined: tuple[str, ...] = ()
    still: Reason | None = None


def starts_without(futures: Futures, job_id: str, gone: Iterable[Item]) -> bool:
    """Whether the core gives a waiting job its GPUs at once when some others leave."""
    return _begins(_decided_without(futures, gone), job_id)


def in_the_way(futures: Futures, job_id: str) -> Way:
    """The smallest set found without which a waiting job starts at once."""
    return _Search(futures, job_id).run()


def _decided_without(
    futures: Futures, gone: Iterable[Item], base: CoreCopy | None = None
) -> list[Decision]:
    """What the core decides at once when some leave; `base`: a copy with fewer in line."""
    core = futures.copy() if base is None else base.restore(Believed({}))
    for item in gone:
        if isinstance(item, int):
            core.set_node(item, True)
        else:
            core.withdrawn(item, futures.now)
    return core.decide(futures.now)


def _begins(decisions: Iterable[Decision], job_id: str) -> bool:
    return any(d.job_id == job_id and d.action in BEGINS for d in decisions)


class _OutOfTries(Exception):
    """No more copies may be tried."""


class _Search:
    """One search, with its budget."""

    def __init__(self, futures: Futures, job_id: str):
        self.futures, self.job_id = futures, job_id
        self.core = futures.still
        self.queued = self.core.known(job_id)
        self.tries, self.until = TRIES, process_time() + BUDGET_S
        self.waiting = _ahead(self.core, self.queued)
        self.runs = _runs(futures, self.queued)
        self.nodes = _closed(self.core, self.queued)
        self.not_examined: list[str] = []
        self.base: CoreCopy | None = None

    def run(self) -> Way:
        try:
            self._shorten()
            found = self._singles()
            if found:
                self.not_examined.clear()  # what it was about has been found
                return self._way(found[:1], len(found) - 1)
            best = min(self._sets(), key=len, default=())
            if best and (self.base is None or starts_without(self.futures, self.job_id, best)):
                return self._way(best)
            everything: list[Item] = [
                *self.waiting,
                *self.nodes,
                *(r.job.job_id for r in self.runs),
            ]
            return Way(still=self._why_even_then(everything), not_examined=self._left_out())
        except _OutOfTries:
            self.not_examined.append("further sets of jobs in its way: too many wait or run")
            return Way(not_examined=self._left_out())

    def _way(self, found: Sequence[Item], alternatives: int = 0) -> Way:
        holders = tuple(self._holder(item) for item in found)
        return Way(holders, alternatives, self._left_out())

    def _left_out(self) -> tuple[str, ...]:
        return tuple(self.not_examined)

    def _starts(self, gone: Sequence[Item]) -> bool:
        if not self._time():
            raise _OutOfTries
        self.tries -= 1
        return _begins(_decided_without(self.futures, gone, self.base), self.job_id)

    def _shorten(self) -> None:
        """Of a long line, search on a copy without those behind it, which is made faster.

        What is found there is tried on a whole copy before it is said.
        """
        core, vc = self.core, self.queued.job.vc
        kept = {*self.waiting, self.job_id}
        behind = [
            other.job.job_id
            for name, queue in core.queues.items()
            if name == vc or not core.policy.borrows
            for other in queue
            if other.job.job_id not in kept
        ]
        if len(behind) < LONG:
            return
        short = self.futures.copy()
        for job_id in behind:
            short.withdrawn(job_id, self.futures.now)
        short.forget_decisions()
        base = CoreCopy(short, self.futures.now)
        if not _begins(_decided_without(self.futures, (), base), self.job_id):
            self.base = base

    # --- sets to try ------------------------------------------------------------------------

    def _singles(self) -> list[Item]:
        """Single jobs and nodes that do, those that should be gone first in front."""
        kept = _reserved_for(self.core, self.queued.job.vc)
        first = [kept] if kept is not None and kept in self.waiting else []
        ahead = first + [job for job in self.waiting if job not in first]
        runs = [run.job.job_id for run in self.runs if self._may_do_alone(run)]
        for what, items in (("running jobs", runs), ("jobs ahead in line", ahead)):
            if len(items) > SINGLES:
                self.not_examined.append(
                    f"{len(items) - SINGLES} {what} were not tried as the only cause"
                )
        tried: list[Item] = [*ahead[:SINGLES], *self.nodes, *runs[:SINGLES]]
        found: list[Item] = []
        for item in tried:
            if process_time() > self.until - 0.6 * BUDGET_S:
                self.not_examined.append("whether one of the other jobs alone is in its way")
                break
            if self._starts([item]):
                found.append(item)
        if (
            found
            and self.base is not None
            and not starts_without(self.futures, self.job_id, found[:1])
        ):
            return []
        return found

    def _may_do_alone(self, run: Run) -> bool:
        """Whether the GPUs of a run would be enough, or another could then share them."""
        if run.partner is not None or run.profiling:
            return True
        freed = sum(mask.bit_count() for mask in run.gpus)
        spare = max(pool.free for pool in _pools(self.core, self.queued))
        return freed + spare >= self.queued.job.gpus

    def _sets(self) -> Iterator[tuple[Item, ...]]:
        """Sets that do, each thinned out."""
        runs = [run.job.job_id for run in self.runs]
        lists: list[list[Item]] = [[*self.waiting], [*self.nodes]]
        for seed in self._seeds():
            lists += [[*seed], [*seed, *self.waiting]]
        lists += [[*runs], [*self.waiting, *runs], [*self.waiting, *self.nodes, *runs]]
        for items in lists:
            found = self._fewest(items) if len(items) > 1 else []
            if found:
                yield tuple(found)
                if len(found) == 2 or set(found) == set(items) or not self._time():
                    return

    def _time(self) -> bool:
        return bool(self.tries) and process_time() < self.until

    def _seeds(self) -> list[list[str]]:
        """Runs of one node that together hold enough of its GPUs, the fewest first."""
        seeds = []
        for pool in _pools(self.core, self.queued):
            for node in pool.nodes():
                seed = self._seed(pool, node)
                if seed:
                    seeds.append(seed)
        return [names for _, names in sorted(seeds, key=lambda s: (len(s[1]), s[0]))[:SEEDS]]

    def _seed(self, pool: Pool, node: int) -> tuple[float, list[str]] | None:
        mask, names, last = pool.free_on(node), list[str](), 0.0
        need = min(self.queued.job.gpus, pool.per_node)
        for run in self.runs:
            if mask.bit_count() >= need:
                break
            for at, gpus in zip(run.nodes, run.gpus, strict=True):
                if at == node and gpus:
                    mask |= gpus
                    names.append(run.job.job_id)
                    last = max(last, _end(self.futures, run))
        return (last, names) if names and mask.bit_count() >= need else None

    def _fewest(self, items: Sequence[Item]) -> list[Item]:
        """A set without which it starts, of which nothing tried could be left out; [] if none.

        The shortest head of the list that does, by bisection, then thinned out.
        """
        if not self._starts(items):
            return []
        low, high = 0, len(items)  # a head of `low` does not do, one of `high` does
        group = list(items)
        try:
            while high - low > 1:
                middle = (low + high) // 2
                if self._starts(items[:middle]):
                    high = middle
                else:
                    low = middle
                group = list(items[:high])
            for other in list(group[:-1])[:SINGLES]:
                rest = [o for o in group if o != other]
                if self._starts(rest):
                    group = rest
        except _OutOfTries:
            self.not_examined.append("whether fewer of these would do")
        return group

    def _why_even_then(self, everything: Sequence[Item]) -> Reason | None:
        decided = _decided_without(self.futures, everything)
        if _begins(decided, self.job_id):
            return None
        last = [d.reason for d in decided if d.job_id == self.job_id]
        return last[-1] if last else self.queued.reason

    def _holder(self, item: Item) -> Holder:
        if isinstance(item, int):
            return Holder(Kind.NODE, node=item)
        run = self.core.cluster.runs.get(item)
        if run is None:
            kept = _reserved_for(self.core, self.queued.job.vc) == item
            return Holder(Kind.KEPT if kept else Kind.AHEAD, item)
        now = self.futures.now
        ends_in = max(0.0, _end(self.futures, run) - now)
        expected = self.core.known(item).estimate_s
        return Holder(Kind.RUN, item, None, now - run.start_time, expected, ends_in)


def _reserved_for(core: Core, vc: str) -> str | None:
    held = core.policy.reservation(vc)
    return held[0] if held is not None else None


def _ahead(core: Core, queued: QueuedJob) -> list[str]:
    queue = core.queues[queued.job.vc]
    return [other.job.job_id for other in queue if other < queued] if queued in queue else []


def _pools(core: Core, queued: QueuedJob) -> list[Pool]:
    """Where it may be placed."""
    if queued.reason is Reason.AWAITING_PROFILE:
        return [core.cluster.profiling]
    pools = core.cluster.pools
    return list(pools.values()) if core.policy.borrows else [pools[queued.job.vc]]


def _runs(futures: Futures, queued: QueuedJob) -> list[Run]:
    """Runs that may hold its GPUs, those expected to end first in front."""
    core = futures.still
    profiling = queued.reason is Reason.AWAITING_PROFILE
    vc = None if core.policy.borrows or profiling else queued.job.vc
    runs = [
        run
        for run in core.cluster.runs.values()
        if run.profiling is profiling and vc in (None, run.vc) and run.job is not queued.job
    ]
    return sorted(runs, key=lambda run: _end(futures, run))


def _end(futures: Futures, run: Run) -> float:
    """When a run has ended with even odds."""
    return run.start_time + at_level(futures.beliefs.quantiles[run.job.job_id], 0.5)


def _closed(core: Core, queued: QueuedJob) -> list[int]:
    """Drained nodes it might be placed on."""
    return [
        node for pool in _pools(core, queued) for node in pool.nodes() if not pool.is_open(node)
    ]
