"""Finds the obstacles that keep a waiting job from starting: the smallest set without which it
starts. Every set is tried on a copy of the core.

Obstacles are runs that hold GPUs, jobs that go first, the job for which GPUs are reserved, closed
nodes, and mixtures of these. Each set is removed from a copy of the core. A set is named only if
the job starts there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import inf
from time import process_time

from scheduler.core.cluster import Pool, Run
from scheduler.core.core import Core
from scheduler.core.decisions import GIVES_GPUS, Reason
from scheduler.core.plural import count
from scheduler.core.queue import QueuedJob
from scheduler.explain.whatif.copies import CoreCopy
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.futures import Believed
from scheduler.explain.whatif.trial import Item, Trial, without

SEEDS = 4  # nodes whose runs are tried together
LINE = 100  # of more jobs before it, none is tried by itself
SPARED = 16  # of a line that is not tried one by one, the smallest are tried whether they may stay
SMALL = 1000  # jobs in a core up to which copies contain those behind the job, too
BUDGET_S = 0.2  # of processor, for somebody who waits for the answer


class Kind(StrEnum):
    """The kinds of obstacles that keep a job from starting."""

    RUN = "running job"
    AHEAD = "waiting job"
    KEPT = "reservation"
    NODE = "closed node"


@dataclass(frozen=True, slots=True)
class Holder:
    """One obstacle that keeps a job from starting: a running job, a waiting job, a reservation or a
    closed node.

    Attributes:
        job_id: id of the job; "" for a closed node.
        node: number of the closed node; None otherwise.
        ran_s, expected_s: for a run: seconds that it has run, and its predicted duration.
        ends_in_s: for a run: median seconds until its end.
    """

    kind: Kind
    job_id: str = ""
    node: int | None = None
    ran_s: float | None = None
    expected_s: float | None = None
    ends_in_s: float | None = None

    @property
    def past_s(self) -> float:
        """Seconds by which the run has lasted longer than predicted; 0 where it has not."""
        if self.ran_s is None or self.expected_s is None:
            return 0.0
        return max(0.0, self.ran_s - self.expected_s)


@dataclass(frozen=True, slots=True)
class Blockers:
    """The obstacles that keep a job from starting.

    Attributes:
        holders: the smallest set of obstacles found without which the job starts at once; empty:
            none was found.
        alternatives: other single jobs or nodes, each of which would do in place of `holders`.
        instead: sets of other runs, each of which would do in place of the runs among `holders`; no
            run is in two sets.
        not_examined: what was not tried, in words.
        still: why the job would wait even without any obstacle; None: it would start, or there was
            no time to find out.
    """

    holders: tuple[Holder, ...] = ()
    alternatives: tuple[Holder, ...] = ()
    instead: tuple[tuple[Holder, ...], ...] = ()
    not_examined: tuple[str, ...] = ()
    still: Reason | None = None


def find_blockers(futures: Futures, job_id: str, budget_s: float = BUDGET_S) -> Blockers:
    """Return the smallest set of obstacles found without which a waiting job starts at once.

    Args:
        budget_s: processor seconds after which the search ends with the best set found until then,
            which may not be the smallest.
    """
    return _Search(futures, job_id, budget_s).run()


class _OutOfTime(Exception):
    """Raised inside the search when its processor time is spent. The best set found until then is
    the result."""


class _Search:
    """A search for the smallest set of obstacles without which a waiting job starts.

    It tries copies of the core. In a core of more than `SMALL` jobs, all waiting jobs but those
    ahead of it are left out of the copies, which makes these faster. Where more than `LINE` jobs
    are ahead of it, they are left out, too, and all count as obstacles, but for a few small ones
    (`_spared`).
    """

    def __init__(self, futures: Futures, job_id: str, budget_s: float):
        self.futures, self.job_id = futures, job_id
        self.budget_s = budget_s
        self.core = futures.core
        self.queued = self.core.jobs[job_id]
        self.until = process_time() + budget_s
        self.waiting = _ahead(self.core, self.queued)
        self.crowd = self.waiting if len(self.waiting) > LINE else []
        self.runs = _runs(futures, self.queued)
        self.nodes: list[Item] = [*_closed(self.core, self.queued)]
        self.best: tuple[Item, ...] = ()  # without these it starts
        self.instead: list[list[str]] = []  # runs that would do as well as those in `best`
        self.not_examined: list[str] = []
        self.base = self._copy()
        # who is predicted again in a copy is predicted as it was
        self.believed = Believed({j: q.estimate_s for j, q in self.core.jobs.items()})

    def _copy(self) -> CoreCopy:
        """Return a copy of the core without a very long queue and, in a core of more than `SMALL`
        jobs, without waiting jobs that are not ahead."""
        core, line = self.core, [] if self.crowd else self.waiting
        kept = {*core.cluster.runs, *line, self.job_id}
        if len(core.jobs) <= SMALL:
            kept.update(core.jobs)
            kept.difference_update(self.crowd)
        return CoreCopy(core.restricted_to(kept), self.futures.now)

    def run(self) -> Blockers:
        try:
            found = self._singles()
            if found:
                return self._found(found[:1], found[1:])
            for items in self._sets():
                if self._starts(items):
                    self.best = tuple(items)
                    break
            else:
                still = self._even_then()
                if not self.best:
                    return Blockers(still=still, not_examined=tuple(self.not_examined))
            tried = [*self.best]
            fewest = self._fewest(sorted(tried, key=self._size_of_waiting, reverse=True))
            self.best = tuple(sorted(fewest, key=tried.index))
            self._instead()
        except _OutOfTime:
            self.best = self.best or self._anybody()
            text = (
                "whether the end of fewer of these would be enough"
                if self.best
                else "further sets of jobs that may be in its way"
            )
            self.not_examined.append(text)
        if not self.best:
            return self._found([])
        stay = self._spared()
        return self._found([*(one for one in self.crowd if one not in stay), *self.best])

    def _spared(self) -> list[str]:
        """Return the ids of jobs of a very long queue, the smallest first, that need not be removed
        for the job to start. At most `SPARED` are tried, and none after the budget is spent."""
        jobs, stay = self.core.jobs, list[str]()
        small = sorted(self.crowd, key=lambda job_id: jobs[job_id].job.gpus)[:SPARED]
        those = {*self.core.cluster.runs, *small, self.job_id}
        base = CoreCopy(self.core.restricted_to(those), self.futures.now) if small else self.base
        for one in small:
            gone = [*self.best, *(other for other in small if other not in (one, *stay))]
            if process_time() > self.until or not self._begins(self._without(gone, base)):
                break
            stay.append(one)
        return stay

    def _anybody(self) -> tuple[Item, ...]:
        """Return a set of obstacles without which the job starts, when there is no time to find the
        smallest. It is the runs of one node with the jobs ahead, or everything. Return () if the
        job does not start even then."""
        line: list[Item] = [] if self.crowd else [*self.waiting]
        runs: list[Item] = [run.job.job_id for run in self.runs]
        seeds = self._seeds()[:1]
        for items in (*([*seed, *line] for seed in seeds), [*line, *self.nodes, *runs]):
            if self._begins(self._without(items)):
                return tuple(items)
        return ()

    def _found(self, found: Sequence[Item], others: Sequence[Item] = ()) -> Blockers:
        holders, alternatives = (tuple(map(self._holder, items)) for items in (found, others))
        instead = tuple(tuple(map(self._holder, items)) for items in self.instead)
        return Blockers(holders, alternatives, instead, tuple(self.not_examined))

    def _without(self, gone: Iterable[Item], base: CoreCopy | None = None) -> Trial:
        core = (base or self.base).restore(self.believed)
        return Trial(core, self.futures.now, without(gone)).decide()

    def _begins(self, trial: Trial) -> bool:
        return trial.begins(self.job_id, GIVES_GPUS) is not None

    def _starts(self, gone: Iterable[Item]) -> bool:
        if process_time() > self.until:
            raise _OutOfTime
        return self._begins(self._without(gone))

    # --- sets to try ------------------------------------------------------------------------

    def _singles(self) -> list[Item]:
        """Return jobs and nodes, each of which is enough to remove for the job to start. The job
        for which GPUs are reserved comes first, then other waiting jobs, closed nodes, and runs by
        their end. Return [] for a very long queue.

        All items of one kind are removed at once first: if that is not enough, no single one is
        tried. The smallest kind that is enough is kept as `best`.
        """
        if self.crowd:
            return []
        kept = _reserved_for(self.core, self.queued.job.vc)
        ahead = sorted(self.waiting, key=lambda job_id: job_id != kept)
        runs = [run.job.job_id for run in self.runs if self._may_do_alone(run)]
        found: list[Item] = []
        for what, group in (("waiting job", ahead), ("closed node", self.nodes), ("run", runs)):
            if not group or not self._starts(group):
                continue
            self.best = min((self.best or tuple(group), tuple(group)), key=len)
            if len(group) == 1:
                found += group
                continue
            tried = 0
            for item in group:
                if process_time() > self.until - self.budget_s / 2:
                    break
                found += [item] * self._starts([item])
                tried += 1
            if found and tried < len(group):
                left = count(len(group) - tried, f"other {what}")
                self.not_examined.append(f"whether {left} could end, or go, instead")
        return found

    def _may_do_alone(self, run: Run) -> bool:
        """Return whether the end of this run alone could let the job start: with the free GPUs its
        GPUs are enough, or the job could share GPUs with its partner or use its place for
        profiling."""
        if run.partner is not None or run.profiling:
            return True
        freed = sum(mask.bit_count() for mask in run.gpus)
        spare = max(pool.free for pool in _pools(self.core, self.queued))
        return freed + spare >= self.queued.job.gpus

    def _sets(self) -> Iterator[list[Item]]:
        """Yield sets of obstacles to try: the runs of one node (or as many nodes as the job needs),
        these with the waiting jobs, the best set found until then, all runs, all closed nodes with
        the waiting jobs or with all runs, and everything. For a very long queue, which is left out
        of the copies, the empty set comes first."""
        line: list[Item] = [] if self.crowd else [*self.waiting]
        seeds: list[list[Item]] = [[*seed] for seed in self._seeds()]
        if self.crowd:
            yield []
        yield from seeds
        if line:
            yield from ([*seed, *line] for seed in seeds)
        if self.best:
            yield [*self.best]
        runs: list[Item] = [run.job.job_id for run in self.runs]
        yield runs
        if self.nodes:
            yield [*self.nodes, *line]
            yield [*self.nodes, *runs]
        yield [*line, *self.nodes, *runs]

    def _seeds(self) -> list[list[str]]:
        """Return sets of runs on one node whose GPUs, with the free ones there, are enough for the
        job; the smallest sets first, at most `SEEDS`. Where the job needs several nodes, each set
        joins the runs of that many nodes."""
        seeds = []
        for pool in _pools(self.core, self.queued):
            found = sorted(
                (len(names), last, names)
                for node in pool.nodes()
                if pool.is_open(node) and (seed := self._seed(pool, node)) is not None
                for last, names in [seed]
            )
            whole = -(-self.queued.job.gpus // max(1, pool.per_node))
            for i in range(0, min(len(found), SEEDS * whole), whole):
                names = dict.fromkeys(name for *_, those in found[i : i + whole] for name in those)
                if len(found[i : i + whole]) == whole:
                    seeds.append([*names])
        return sorted(seeds, key=len)[:SEEDS]

    def _seed(
        self, pool: Pool, node: int, without: Container[Item] = ()
    ) -> tuple[float, list[str]] | None:
        opened = ~pool.closed_on(node)
        mask, names, last = pool.free_on(node) & opened, list[str](), 0.0
        need = min(self.queued.job.gpus, pool.per_node)
        for run, end in self._on.get(node, ()):
            pair = [run.job.job_id, *([run.partner.job.job_id] if run.partner else [])]
            if any(job_id in without or job_id in names for job_id in pair):
                continue
            if mask.bit_count() >= need:
                break
            for one in (run, run.partner or run):  # one of the two may have more
                for at, gpus in zip(one.nodes, one.gpus, strict=True):
                    if at == node:
                        mask |= gpus & opened
            names += pair  # shared GPUs are free when both have gone
            last = max(last, end)
        return (last, names) if mask.bit_count() >= need else None

    @cached_property
    def _on(self) -> dict[int, list[tuple[Run, float]]]:
        """The runs on each node, each with the time of its median end."""
        found: dict[int, list[tuple[Run, float]]] = {}
        for run in self.runs:
            end = self.futures.ends_at(run)
            for node in run.nodes:
                found.setdefault(node, []).append((run, end))
        return found

    def _size_of_waiting(self, item: Item) -> float:
        """Return the number of GPUs of a waiting job, or inf for a run or a node. The items with
        the smallest number are dropped from a set first, because the job often starts although a
        small job stays."""
        if isinstance(item, int) or item in self.core.cluster.runs:
            return inf
        return self.core.jobs[item].job.gpus

    def _fewest(self, items: list[Item]) -> list[Item]:
        """Return a part of `items`, as small as can be found, without which the job still starts.
        The end of the list is cut off first, then piece by piece. Each part that is enough is kept
        as `best`."""
        low, high = 0, len(items)  # a head of `low` does not do, one of `high` does
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._starts(items[:middle]) else (middle, high)
            self.best = tuple(items[:high])
        piece, group = max(1, high // 2), items[:high]
        while len(group) > 1:
            left = 0
            while left < len(group):
                rest = group[:left] + group[left + piece :]
                if rest and self._starts(rest):
                    group, self.best = rest, tuple(rest)
                else:
                    left += piece
            if piece == 1:
                break
            piece //= 2
        return group

    def _instead(self) -> None:
        """Find other sets of runs, none larger, whose end would also let the job start, and store
        them for the result."""
        runs = {run.job.job_id for run in self.runs}
        rest = [item for item in self.best if item not in runs]
        wanted, found = len(self.best) - len(rest), set(self.best)
        for pool in _pools(self.core, self.queued) if wanted else ():
            for node in pool.nodes() if self.queued.job.gpus <= pool.per_node else ():
                while pool.is_open(node) and (seed := self._seed(pool, node, found)) is not None:
                    if self.crowd or process_time() > self.until - self.budget_s / 2:
                        self.not_examined.append(
                            "whether other sets of running jobs could end instead"
                        )
                        return
                    if not 0 < len(seed[1]) <= wanted or not self._starts([*seed[1], *rest]):
                        break
                    self.instead.append(seed[1])
                    found.update(seed[1])

    def _even_then(self) -> Reason | None:
        """Return why the job waits even without any obstacle; None if it would start (then `best`
        is all that was removed), or if there was no time to find out.

        Removing the obstacles may let jobs behind it go first, for example jobs that have waited
        beyond their bound. Those are removed, too, and then count as obstacles.
        """
        line: list[Item] = [] if self.crowd else [*self.waiting]
        gone: list[Item] = [*line, *self.nodes, *(r.job.job_id for r in self.runs)]
        while True:
            trial = self._without(gone)
            if self._begins(trial):
                self.best = tuple(gone)
                return None
            first = [d.job_id for d in trial.decisions if d.action in GIVES_GPUS]
            if process_time() > self.until:
                self.not_examined.append("which other jobs go before it")
                return None
            if not first:
                last = trial.last(self.job_id)
                return last.reason if last is not None else self.queued.reason
            gone += first

    def _holder(self, item: Item) -> Holder:
        if isinstance(item, int):
            return Holder(Kind.NODE, node=item)
        run = self.core.cluster.runs.get(item)
        if run is None:
            kept = _reserved_for(self.core, self.queued.job.vc) == item
            return Holder(Kind.KEPT if kept else Kind.AHEAD, item)
        now = self.futures.now
        ends_in = max(0.0, self.futures.ends_at(run) - now)
        expected = self.core.jobs[item].predicted_s
        return Holder(
            kind=Kind.RUN,
            job_id=item,
            node=None,
            ran_s=now - run.start_time,
            expected_s=expected,
            ends_in_s=ends_in,
        )


def _reserved_for(core: Core, vc: str) -> str | None:
    held = core.policy.reservation(vc)
    return held[0] if held is not None else None


def _ahead(core: Core, queued: QueuedJob) -> list[str]:
    """Return the ids of the waiting jobs that go before a job, in its queue or in the queue for
    profiling."""
    queue = core.queues[queued.job.vc]
    if queued in queue:
        return [other.job.job_id for other in queue if other < queued]
    return core.profiling.before(queued) if core.profiling is not None else []


def _pools(core: Core, queued: QueuedJob) -> list[Pool]:
    """Return the pools of nodes in which a job may be placed."""
    if queued.reason is Reason.AWAITING_PROFILE:
        return [core.cluster.profiling]
    pools = core.cluster.pools
    return list(pools.values()) if core.policy.capabilities.borrows else [pools[queued.job.vc]]


def _runs(futures: Futures, queued: QueuedJob) -> list[Run]:
    """Return the runs that may hold the GPUs that a job needs. Those that are expected to end first
    come first."""
    core = futures.core
    profiling = queued.reason is Reason.AWAITING_PROFILE
    vc = None if core.policy.capabilities.borrows or profiling else queued.job.vc
    runs = [
        run
        for run in core.cluster.runs.values()
        if run.profiling is profiling and vc in (None, run.vc) and run.job is not queued.job
    ]
    return sorted(runs, key=futures.ends_at)


def _closed(core: Core, queued: QueuedJob) -> list[int]:
    """Return the numbers of the nodes that have closed GPUs and on which a job might otherwise be
    placed."""
    return [node for pool in _pools(core, queued) for node in pool.nodes() if pool.closed_on(node)]
