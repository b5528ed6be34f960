"""Slurm's own scheduler as a policy: multifactor priority, main pass, backfill, limits.

It decides by a `Site`, which is read from Slurm (`see`), or made from a cluster of which only nodes
are known. In the second case, it has order of arrival, backfill by time limits, and no limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import floor, inf
from typing import TYPE_CHECKING

from features.job import Job
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import Cluster, ClusterSpec, Placement, Run
from scheduler.core.decisions import Reason
from scheduler.core.estimates import Estimator
from scheduler.core.policy import NO_CLUSTER, NO_PREDICTORS, OrderTerms, Policy, Predictors
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.slurm.twin.capacity import Books, Capacity
from scheduler.slurm.twin.clock import Clock, Rhythm
from scheduler.slurm.twin.limits import (
    Usage,
    begin_to_age,
    first_hit,
    is_limit,
    is_set,
    minutes_hit,
)
from scheduler.slurm.twin.passes import (
    ARRAY_FULL,
    NOT_AVAILABLE,
    PRIORITY,
    RESOURCES,
    Passes,
    PendingReason,
    Ranked,
    as_shown,
    blaming,
    het_job,
    in_order,
    listed,
    ranks,
    reason_key,
)
from scheduler.slurm.twin.preemption import CANCEL, Preemption
from scheduler.slurm.twin.priority import FairShare, Multifactor
from scheduler.slurm.twin.site import Ask, Partition, Running, Share, Site, SiteNode
from scheduler.slurm.twin.twin import TwinOutlook

if TYPE_CHECKING:
    from scheduler.core.settings import PolicySettings

# Slurm's own defaults of SchedulerParameters
WINDOW_MIN, DEPTH, BACKFILL_DEPTH = 1440, 100, 100
MOST_RISES = 256  # jobs by which it is found out when priorities were computed


class Slurm(Policy):
    """The policy `slurm`: it decides as a site's own Slurm does.

    Attributes:
        site: the site's configuration, by which it decides.
        reasons: why jobs wait, as last computed, by job id.
        soon: ids of jobs that Slurm's next pass would start, if the queue was last read between two
            passes.
    """

    name = "slurm"
    # limits and licences reach beyond a virtual cluster: all look when one frees (`borrows`)
    capabilities = Capabilities(twin=True, keeps_priorities=True, mixes_types=True, borrows=True)

    def __init__(
        self,
        settings: PolicySettings | None = None,
        cluster: ClusterSpec = NO_CLUSTER,
        predictors: Predictors = NO_PREDICTORS,
    ):
        super().__init__(settings, cluster, predictors)
        self.reasons: dict[str, PendingReason] = {}
        self.soon: set[str] = set()
        self._asks: dict[str, Ask] = {}
        self._running: dict[str, Running] = {}
        self._names = [str(number) for number in range(len(cluster.nodes()))]
        self._look(Site.of_cluster(cluster))
        self._lines: dict[str, list[Ranked]] = {}  # as it was last looked at

    def _look(self, site: Site) -> None:
        self.site = site
        self.weights = Multifactor(site)
        self._capacity, self._usage = Capacity.of(site), Usage()
        self._clock = Clock(Rhythm.of(site))
        self._shares = FairShare(site)
        self._ranked: dict[str, list[Ranked]] = {}  # as of the last calculation
        # when nodes become free that nobody leaves, or a deadline cannot be kept any more
        self._edges = sorted({one.end for one in site.reservations})
        self._slurm_reasons: dict[str, str] = {}  # by `reason_key`
        self._planned: dict[str, tuple[float, frozenset[str]]] = {}
        self._over: set[str] = set()  # jobs that others may wait for
        self._seen_at, self._keeps_deadlines = -inf, False
        self._arrays: dict[str, list[str]] = {}
        self._parts: Counter[str] = Counter()  # components of heterogeneous jobs, by its id
        self._grain_s = site.parameter("bf_resolution", 60)
        self._window_s = 60 * site.parameter("bf_window", WINDOW_MIN)
        self._depth = int(site.parameter("default_queue_depth", DEPTH))
        self._bf_depth = int(site.parameter("bf_max_job_test", BACKFILL_DEPTH))

    @property
    def outlook(self) -> TwinOutlook:
        """The policy's forecasts about waiting jobs, such as planned starts."""
        return TwinOutlook(self)

    def see(
        self,
        site: Site,
        names: Iterable[str],
        asks: Mapping[str, Ask],
        now: float | None = None,
        shown: Mapping[str, list[Ranked]] | None = None,
    ) -> None:
        """Set the site that this policy imitates, as read from Slurm. Called before any job is
        known.

        Args:
            names: names of the core's nodes, in order.
            asks: request of each job, by id.
            now: time of the reading, seconds since the epoch. Until the next computation,
                priorities are those that Slurm shows.
            shown: by id, what `as_shown` returns of each job; None: it is made.
        """
        self._look(site)
        preempts = not site.config.get("PreemptType", "none").endswith("none")
        self.capabilities = replace(
            self.capabilities, places_cpus=True, preemptive=preempts, restarts=preempts
        )
        self._names, self._asks = list(names), dict(asks)
        self._seen_at = -inf if now is None else now
        late = _deadlines(self._asks.values())
        self._edges, self._keeps_deadlines = sorted({*self._edges, *late}), bool(late)
        parts = (ask for job_id, ask in self._asks.items() if "+" in job_id)
        self._parts = Counter(one for ask in parts if (one := het_job(ask)))
        for job_id, ask in self._asks.items():
            if ask.array:
                self._arrays.setdefault(ask.array, []).append(job_id)
            if not ask.shares and ask.reason not in ("", "None"):
                self._slurm_reasons[reason_key(ask)] = ask.reason
        self._asks |= _throttled(self._asks, self._arrays)
        if now is not None and site.weighs:
            made = shown or {job_id: as_shown(ask, site) for job_id, ask in asks.items()}
            self._take_priorities(now, made)
        if now is not None and site.backfilled is not None:
            self._clock.see(now, site.backfilled)

    def expect(self, asks: Mapping[str, Ask]) -> None:
        """Store the requests of jobs that will be submitted later, by job id."""
        self._asks.update(asks)
        late = _deadlines(asks.values())
        self._edges, self._keeps_deadlines = (
            sorted({*self._edges, *late}), self._keeps_deadlines or bool(late)
        )  # fmt: skip

    def _take_priorities(self, now: float, shown: Mapping[str, list[Ranked]]) -> None:
        """Use the priorities that Slurm shows, and derive from them when Slurm computed them."""
        self._ranked = {job_id: one for job_id, one in shown.items() if one}
        waiting = [ask for ask in self._asks.values() if not ask.shares and ask.priority > 1]
        rises: list[tuple[float, float]] = []
        for ask in waiting:
            if len(rises) >= MOST_RISES and len(ask.partitions) == 1:
                continue  # its priority is as shown
            known = ranks(self.site, ask, self.weights, now)
            if not known:
                continue
            # of several partitions the nearest is the one whose priority it shows
            over = min((one.priority - ask.priority for one in known), key=abs)
            if ask.accrue is not None and 1 < now - ask.accrue < self.weights.max_age_s:
                rises.append((over, now - ask.accrue))
            self._ranked[ask.job_id] = [
                one._replace(priority=max(1, one.priority - over)) for one in known
            ]
        calc_s = self._clock.rhythm.calc_s
        boot = self.site.booted
        likely_s = (now - boot) % calc_s if boot is not None else 0.0
        back_s = since_calculated(rises, self.weights.per_s, calc_s, likely_s, past_s=now % 1.0)
        self._clock.calculated = now - back_s
        self._shares.counted = self._clock.calculated

    def take_over(
        self, before: Policy, jobs: Iterable[QueuedJob], runs: Iterable[Run], now: float
    ) -> bool:
        """Take over the whole state of `before`, but not its settings. Return False, and change
        nothing, if `before` is another policy.
        """
        if not isinstance(before, Slurm):
            return False
        settings = self.settings
        self.__dict__.update(before.__dict__)
        self.settings = settings
        return True

    # --- what it knows of jobs ------------------------------------------------------------------

    def ask(self, job: Job) -> Ask:
        """Return the request of a job in Slurm's terms. A job that is submitted again in a
        simulated future keeps its former request."""
        found = self._asks.get(job.job_id)
        if found is not None and (found.shares or found.gpus_in_all == job.gpus):
            return found
        if found is None:
            before = self._asks.get(job.job_id.partition("~")[0])
            found = Ask.of_job(job, self.site) if before is None else _again(before, job)
        if found.gpus_in_all != job.gpus and not found.shares:  # as many as the core counts
            kind = found.gpus[0][0] if len(found.gpus) == 1 else ""
            gpus = ((kind, job.gpus),) if job.gpus else ()
            found = replace(found, gpus=gpus, gpus_per_node=False)
        self._asks[job.job_id] = found
        return found

    def prepare(
        self, queued: QueuedJob, now: float, estimator: Estimator, *, logged: bool = False
    ) -> None:
        queued.key = -float(self.ask(queued.job).priority)  # until it is next looked at
        self._clock.came(queued.job.vc)

    def started(self, run: Run, now: float) -> None:
        ask = self.ask(run.job)
        if run.job.job_id in self._running:
            return  # by a pass of ours
        shares = _as_core_has_them(self.site.nodes, self._names, ask.shares, run) or _held(
            self.site.nodes, self._names, ask, run
        )
        part = self.site.partitions.get(ask.partitions[0]) if ask.partitions else None
        ran = _holding(ask, shares)
        self._capacity.take(shares)
        self._usage.add(ran, self.site)
        since = floor(now)
        self._running[run.job.job_id] = Running(
            ran, since, since + ask.limit_s(part), listed(ask, self._running)
        )

    def ended(self, run: Run, now: float) -> None:
        self._left(run.job.job_id, now)

    def stopped(self, run: Run, now: float) -> None:
        self._left(run.job.job_id, now)

    def withdrawn(self, job_id: str, now: float) -> None:
        self._left(job_id, now)

    def _left(self, job_id: str, now: float) -> None:
        ran = self._running.pop(job_id, None)
        self._over.add(job_id)
        self._ranked.pop(job_id, None)
        if ran is not None:
            self._shares.ran(ran, now)
            self._clock.ended()
            self._capacity.take(ran.ask.shares, -1)
            self._usage.add(ran.ask, self.site, -1)
        self.reasons.pop(job_id, None)

    # --- its explanations -----------------------------------------------------------------------

    def asked(self, job_id: str) -> Ask | None:
        """Return the stored request of a job, or None where the job is not known."""
        return self._asks.get(job_id)

    def line(self) -> list[Ranked]:
        """Return the jobs that the last pass considered: one virtual cluster after another, each in
        order."""
        return [one for line in self._lines.values() for one in line]

    def __getstate__(self) -> dict[str, object]:
        """Return the state for a copy. The ordered jobs and their priorities are left out, so that
        a copy computes both again."""
        return self.__dict__ | {"_lines": {}, "_ranked": {}}

    def suiting(self, ask: Ask, part: Partition, now: float, *, closed: bool = False) -> list[str]:
        """Return the open nodes of a partition that could run a job now if the cluster were empty.
        With `closed`, return instead the closed nodes that could run their part of it."""
        nodes, look = self.site.nodes, self._look_now(now, tries=False)
        shut = [name for name in sorted(part.nodes) if closed and not nodes[name].open]
        names = shut if closed else look.nodes_of(ask, part, now)
        return look.would_do(ask, names)

    def books(self) -> Books:
        """Return the free resources of every node, the running jobs, and the planned ones."""
        return Books(self._capacity, self._running, self._planned)

    # --- deciding -------------------------------------------------------------------------------

    def serve(self, turn: Turn) -> None:
        now, clock = turn.now, self._clock
        self._calculate(now)
        if any(edge <= now for edge in self._edges):
            self._edges = [edge for edge in self._edges if edge > now]
            clock.changed()
        waiting = {queued.job.job_id: queued for queued in turn.queue}
        asks = [self._asks[job_id] for job_id in waiting]
        if self._keeps_deadlines:
            asks = _in_time(turn, waiting, asks, self._seen_at)
        kept = {ask.job_id: why for ask in asks if (why := self._not_yet(ask, now))}
        self._begin_to_age(asks, kept, now)
        line = self._line(asks, kept, now)
        self._lines[turn.vc] = line
        _put_in_order(turn, waiting, line)
        tries = clock.tries(turn.vc)
        look = self._look_now(now, tries=tries)
        if tries or clock.main_due(turn.vc, now):
            look.main(line, self._depth)
        if self.site.backfills and (tries or clock.backfill_due(turn.vc, now)):
            look.backfill(line, self._bf_depth, self._window_s, self._grain_s)
            self._planned = look.planned
        reasons = self._slurm_reasons | look.reasons if tries else self._slurm_reasons
        if tries:
            self.soon |= look.started.keys()
            look.started.clear()
            look.preempted.clear()
        for ran, blocker in look.preempted.values():
            self._make_way(turn, ran, blocker)
        for job_id, (ranked, shares) in look.started.items():
            queued = waiting.pop(job_id)
            self._ranked.pop(job_id, None)
            placement = _placement(
                has=self.site.nodes,
                names=self._names,
                turn=turn,
                shares=shares,
                gpus=queued.job.gpus,
            )
            turn.start(queued, placement, evidence=(("priority", ranked.priority),))
        free = turn.pool.free
        for job_id, queued in waiting.items():
            ask = self._asks[job_id]
            found = PendingReason(kept.get(job_id) or reasons.get(reason_key(ask), PRIORITY))
            if job_id in self._planned:
                found.planned_at, found.planned_on = self._planned[job_id]
            self.reasons[job_id] = found
            turn.wait(queued, _reason(found, queued.job.gpus, free))

    def _make_way(self, turn: Turn, ran: Running, blocker: str) -> None:
        """Preempt a running job for the job `blocker`: cancel it, or put it back to wait, as its
        QOS or partition says."""
        job_id, ask = ran.ask.job_id, self._asks[ran.ask.job_id]
        run, preemption = turn.cluster.runs[job_id], Preemption(self.site)
        self._shares.ran(ran, turn.now)
        if preemption.mode(ask.qos, ran.ask.partitions[0]) == CANCEL:
            turn.cancel(job_id)
            return
        turn.preempt(run, -float(ask.priority), blocker=blocker, reason=Reason.PRIORITY)
        at = preemption.requeued_at(floor(turn.now))
        self._asks[job_id] = replace(ask, shares=(), submit=floor(turn.now), begin=at, accrue=at)
        self.ask(run.job)  # as many GPUs as the core counts
        self._ranked.pop(job_id, None)
        self.reasons[job_id] = PendingReason("BeginTime")
        self._clock.came(run.vc)

    def _look_now(self, now: float, *, tries: bool) -> Passes:
        """Return an object for Slurm's two passes over the present queue, which have not run yet.
        With `tries`, it works on copies, so that running the passes changes nothing in this policy.
        """
        capacity, usage, running = self._capacity, self._usage, self._running
        reasons = self._slurm_reasons
        if tries:
            capacity, usage = capacity.later(capacity.free), usage.copy()
            running, reasons = dict(running), dict(reasons)
        known = self.site, now, capacity, usage, running
        return Passes(*known, reasons=reasons, parts=self._parts)

    def evidence(self, job_id: str, now: float) -> PendingReason | None:
        """Return why a job waits, with the limit or reservation that causes it, and keep these with
        the reason. Return None if the reason is not known."""
        found, ask = self.reasons.get(job_id), self._asks.get(job_id)
        part = self.site.partitions.get(ask.partitions[0]) if ask and ask.partitions else None
        if found is None or ask is None or part is None:
            return found
        if is_limit(found.reason):
            for tres in (False, True):
                hit = first_hit(ask, part, self.site, self._usage, tres=tres)
                found.hit = hit if hit is not None and hit.reason == found.reason else found.hit
            if found.hit is None:
                running = self._running.values()
                found.hit = minutes_hit(
                    found.reason, ask, partition=part, site=self.site, running=running, now=now
                )
            found.set = is_set(found.reason, ask, part, self.site)
        elif found.reason == NOT_AVAILABLE:
            found.reservation = self._look_now(now, tries=False).shut_by(ask, part)
        elif found.reason == "Reservation":
            found.reservation = ask.reservation
        return found

    def _calculate(self, now: float) -> None:
        """Update fair shares, and have priorities computed again, if that is due."""
        at = self._clock.calculation(now)
        if at is not None:
            self._shares.count(self._running.values(), at)
            self._ranked = {}

    def _begin_to_age(self, asks: list[Ask], kept: Mapping[str, object], now: float) -> None:
        """Let the age of jobs count from now on, if they may be considered and no limit prevents
        it. `asks` is updated; jobs in `kept` are left out."""
        if all(ask.accrue is not None or ask.job_id in kept for ask in asks):
            return
        places = {ask.job_id: n for n, ask in enumerate(asks) if ask.job_id not in kept}
        in_turn = sorted((asks[n] for n in places.values()), key=lambda ask: ask.submit)
        for job_id in begin_to_age(in_turn, self.site):
            ask = replace(self._asks[job_id], accrue=float(floor(now)))
            self._asks[job_id] = asks[places[job_id]] = ask

    def _line(self, asks: Iterable[Ask], kept: Mapping[str, object], now: float) -> list[Ranked]:
        """Return the jobs that may be considered, in order, once for each of their partitions, with
        the priorities of the last computation. Jobs in `kept` are left out."""
        found: list[Ranked] = []
        for ask in asks:
            if ask.job_id in kept:
                continue
            known = self._ranked.get(ask.job_id)
            if known is None:
                at = min(now, max(self._clock.calculated, ask.submit))
                known = blaming(
                    ask.job_id, ranks, self.site, ask, self.weights, at, self._shares.fairshare
                )
                self._ranked[ask.job_id] = known
            as_made = bool(known) and known[0].ask is ask
            found += known if as_made else [one._replace(ask=ask) for one in known]
        return in_order(found)

    def _not_yet(self, ask: Ask, now: float) -> str:
        """Return the reason code with which Slurm does not consider a job yet: a dependency or a
        begin time. Return "" if Slurm considers it."""
        for job_id in ask.after:
            tasks = self._arrays.get(job_id, (job_id,))
            if any(task in self._asks and task not in self._over for task in tasks):
                return "Dependency"
        return "BeginTime" if ask.begin is not None and ask.begin > now else ""

    def next_wake(self, now: float) -> float | None:
        begins = [
            ask.begin
            for job_id, why in self.reasons.items()
            if why.reason == "BeginTime" and (ask := self._asks[job_id]).begin is not None
        ]
        times = [self._clock.next(now, backfills=self.site.backfills), *begins, *self._edges]
        return min((at for at in times if at is not None and at > now), default=None)

    def cluster_changed(self, cluster: Cluster) -> None:
        """Do nothing: the nodes are those of the site, and a core that is built from another one
        gets a new site."""

    def order_terms(self, queued: QueuedJob, now: float) -> OrderTerms:
        return (("priority", queued.key),)

    def left_s(self, run: Run, queued: QueuedJob, now: float, level: float | None = None) -> float:
        ran = self._running.get(run.job.job_id)
        return inf if ran is None else max(0.0, ran.until - now)


def _deadlines(asks: Iterable[Ask]) -> set[float]:
    """Return the times from which on waiting jobs can no longer meet their deadlines."""
    return {ask.latest + 1 for ask in asks if ask.latest < inf and not ask.shares}


def _in_time(
    turn: Turn, waiting: dict[str, QueuedJob], asks: Iterable[Ask], seen_at: float
) -> list[Ask]:
    """Return the jobs that can still meet their deadlines. Cancel the others, and remove them from
    `waiting`. Jobs that Slurm still had at `seen_at` count as in time until then."""
    found = []
    for ask in asks:
        if max(seen_at, ask.latest) < floor(turn.now):
            turn.cancel(ask.job_id)
            del waiting[ask.job_id]
        else:
            found.append(ask)
    return found


def _throttled(asks: Mapping[str, Ask], arrays: Mapping[str, list[str]]) -> dict[str, Ask]:
    """Return the waiting tasks of arrays that Slurm keeps back because enough tasks of the array
    run, by id. Each gets the number of running tasks as its limit, because `squeue` prints no limit
    for a single task."""
    return {
        job_id: replace(ask, array_limit=sum(bool(asks[one].shares) for one in arrays[ask.array]))
        for job_id, ask in asks.items()
        if ask.array and ask.reason == ARRAY_FULL and not ask.array_limit
    }


def _as_core_has_them(
    has: Mapping[str, SiteNode], names: Sequence[str], shares: Iterable[Share], run: Run
) -> tuple[Share, ...]:
    """Return the shares of nodes of a run, with GPUs of the types that the core gave it. Where
    Slurm does not show the indices of a job's GPUs, those in its shares are a guess that may name
    other jobs' GPUs."""
    masks = {names[n]: gpus for n, gpus in zip(run.nodes, run.gpus, strict=True)}
    found = []
    for share in shares:
        gpus = _kinds(has[share.node].gpus, masks.get(share.node, 0))
        as_many = sum(n for _, n in gpus) == sum(n for _, n in share.gpus)
        found.append(replace(share, gpus=gpus) if as_many else share)
    return tuple(found)


def _held(
    has: Mapping[str, SiteNode], names: Sequence[str], ask: Ask, run: Run
) -> tuple[Share, ...]:
    """Return the shares of nodes of a run of which only the GPUs are known. CPUs are spread evenly
    over its nodes."""
    cpus = -(-ask.cpus // max(1, len(run.nodes)))
    found = []
    for number, mask in zip(run.nodes, run.gpus, strict=True):
        name = names[number]
        gpus = _kinds(has[name].gpus, mask)
        found.append(Share(name, cpus, ask.memory_mib, gpus))
    return tuple(found)


def _put_in_order(turn: Turn, waiting: Mapping[str, QueuedJob], line: list[Ranked]) -> None:
    """Sort the queue by the present order of `line`, because age and fair share have changed."""
    keys = {ranked.ask.job_id: _key(ranked) for ranked in reversed(line)}
    moved = [q for job_id, q in waiting.items() if q.key != keys.get(job_id, q.key)]
    if moved:
        for queued in moved:
            queued.key = keys[queued.job.job_id]
        turn.queue.replace(list(waiting.values()))


def _placement(
    has: Mapping[str, SiteNode],
    names: Sequence[str],
    turn: Turn,
    shares: Iterable[Share],
    gpus: int,
) -> Placement:
    """Return shares of nodes as a placement with at most `gpus` GPUs. A job that has whole nodes
    gets only as many GPUs as it asked for."""
    numbers = {name: number for number, name in enumerate(names)}
    found: Placement = []
    for share in shares:
        number = numbers[share.node]
        free = turn.cluster.pool_of(number).open_on(number)
        mask = gpu_mask(has[share.node].gpus, free, dict(share.gpus))
        while mask.bit_count() > gpus:
            mask &= mask - 1
        gpus -= mask.bit_count()
        found.append((number, mask))
    return found


def since_calculated(
    rises: Sequence[tuple[float, float]],
    per_s: float,
    calc_s: float,
    likely_s: float = 0.0,
    past_s: float = 0.0,
) -> float:
    """Return how many seconds ago priorities were computed.

    At that time, each job's age was counted in whole seconds. For a job that came later, the age
    was counted when it came.

    Args:
        rises: pairs for each job: by how much its priority, a whole number, would be higher by now,
            and its age in seconds.
        per_s: points that a second of age adds.
        likely_s: the answer where jobs do not show it, because all came later or ages do not count.
        past_s: fraction of a second by which the present time is past a whole second.
    """
    if not per_s:
        return likely_s
    some = rises[:MOST_RISES]

    def agree(back: float) -> tuple[int, float]:
        near = sum(abs(min(back, age) * per_s - over) < 1.0 for over, age in some)
        return near, -abs(back - likely_s)

    whole = {floor(over / per_s - past_s) + n for over, _ in some for n in (-1, 0, 1)}
    backs = [back for n in whole if 0.0 < (back := n + past_s) <= calc_s]
    return max([likely_s, *sorted(backs)], key=agree)


def _reason(pending: PendingReason, gpus: int, free: int) -> Reason:
    """Return the core's reason code for a waiting job: GPUs or other resources are busy, jobs of
    higher priority go first, or (for any other reason of Slurm) a limit is reached. GPUs are busy
    only where fewer are `free` than the job asks for."""
    if pending.reason == RESOURCES:
        return Reason.RESOURCES_BUSY if gpus <= free else Reason.GPUS_BUSY
    behind = pending.reason == PRIORITY
    return Reason.BEHIND_HIGHER_PRIORITY if behind else Reason.LIMIT_REACHED


def _key(ranked: Ranked) -> float:
    """Return the sort key of a job, smallest first: by the tier of its partition, then by
    priority."""
    return -float(ranked.partition.tier * 2**33 + ranked.priority)


def _holding(ask: Ask, shares: tuple[Share, ...]) -> Ask:
    return replace(ask, shares=shares)


def _again(before: Ask, job: Job) -> Ask:
    at = job.submit_time
    return replace(
        before, job_id=job.job_id, submit=at, accrue=None, shares=(), array_limit=0, deadline=None
    )


def _kinds(has: Iterable[tuple[str, int]], mask: int) -> tuple[tuple[str, int], ...]:
    """Return the number of GPUs in a bit mask by type, given the types of a node's GPUs (`has`)."""
    found, first = [], 0
    for kind, count in has:
        taken = (mask >> first & (1 << count) - 1).bit_count()
        if taken:
            found.append((kind, taken))
        first += count
    return tuple(found)


def gpu_mask(has: Iterable[tuple[str, int]], free: int, wanted: Mapping[str, int]) -> int:
    """Return free GPUs of the wanted types as a bit mask. Where too few of a type are free in the
    core, other free GPUs of the node take their place."""
    mask, first, short = 0, 0, 0
    for kind, count in has:
        own = free >> first & (1 << count) - 1
        for _ in range(wanted.get(kind, 0)):
            low = own & -own
            short += not low
            mask |= low << first
            own ^= low
        first += count
    for _ in range(short):
        rest = free & ~mask
        mask |= rest & -rest
    return mask
