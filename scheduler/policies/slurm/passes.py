"""The two passes of slurmctld over its queue: the main scheduler and backfill.

After job_scheduler.c and backfill.c of Slurm 22.05. The main pass goes by partition tier and
priority; once a job of a partition does not fit, the rest of that partition waits, and so do jobs
of lower partitions for its nodes. Backfill looks at every job in that order, gives each that cannot
start the nodes it will start on (whole nodes, for its time limit), and starts what delays none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from scheduler.policies.slurm.capacity import Capacity, choose, suits
from scheduler.policies.slurm.limits import Hit, Usage, first_hit
from scheduler.policies.slurm.priority import Multifactor, Terms
from scheduler.policies.slurm.site import Ask, Partition, Reservation, Share, Site

RESOURCES, PRIORITY, LICENSES = "Resources", "Priority", "Licenses"
# waits for what others have or for their turn, not for a limit or a hold
CAPACITY = frozenset((RESOURCES, PRIORITY))


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs, until its limit at the latest."""

    ask: Ask
    until: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A job in one of its partitions, at its place in line."""

    ask: Ask
    partition: Partition
    priority: int
    terms: Terms


@dataclass(slots=True)
class PendingReason:
    """Why a job waits, in Slurm's word.

    Attributes:
        hit: the limit, where it is one.
        reservation: that keeps it from its nodes.
        planned_at, planned_on: when backfill would start it, by time limits, and where.
    """

    reason: str
    hit: Hit | None = None
    reservation: str = ""
    planned_at: float | None = None
    planned_on: tuple[str, ...] = ()


@dataclass(slots=True)
class Planned:
    """Nodes that a job will have from `start` to `end`; nobody else then has any of them."""

    start: float
    end: float
    nodes: frozenset[str]


@dataclass(slots=True)
class Passes:
    """One look at the queue.

    Attributes:
        started: jobs to start now, in order, and where.
        reasons: of those that wait.
    """

    site: Site
    now: float
    capacity: Capacity
    usage: Usage
    running: dict[str, Running]
    started: dict[str, tuple[Ranked, tuple[Share, ...]]] = field(default_factory=dict)
    reasons: dict[str, PendingReason] = field(default_factory=dict)
    licences: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)  # of arrays, that run

    def __post_init__(self) -> None:
        self.licences = dict(self.site.licences)
        for run in self.running.values():
            self._count(run.ask, 1)

    def _count(self, ask: Ask, sign: int) -> None:
        for name, count in ask.licences:
            self.licences[name] = self.licences.get(name, 0) - sign * count
        if ask.array:
            self.tasks[ask.array] = self.tasks.get(ask.array, 0) + sign

    # --- the passes ---------------------------------------------------------------------------

    def main(self, line: Sequence[Ranked], depth: int) -> None:
        """The main scheduler."""
        failed: set[str] = set()
        closed: set[str] = set()
        for ranked in line[:depth]:
            ask, part = ranked.ask, ranked.partition
            if ask.job_id in self.started:
                continue
            kept = self.kept_from(ask, part)
            behind = (
                part.name in failed
            )  # licences are counted when nodes are, so not behind others
            if kept is not None and not (behind and kept.reason == LICENSES):
                self._wait(ask, kept)
                continue
            if behind:
                self._wait(ask, PendingReason(PRIORITY))
                continue
            names = self.nodes_of(ask, part, self.now)
            placed = choose(ask, self.capacity, [n for n in names if n not in closed], self.site)
            if placed is not None:
                self.start(ranked, placed)
                continue
            self._wait(ask, self._lacking(ask, part, names))
            if ask.req_nodes:
                closed |= ask.req_nodes
            else:
                failed.add(part.name)
                closed |= part.nodes

    def backfill(self, line: Sequence[Ranked], depth: int, window_s: float) -> None:
        """Backfill."""
        planned: list[Planned] = []
        seen: set[str] = set()
        ends = sorted({run.until for run in self.running.values()})
        for ranked in line[:depth]:
            ask, part = ranked.ask, ranked.partition
            if ask.job_id in self.started or self.kept_from(ask, part) is not None:
                continue
            found = self._earliest(ask, part, planned, ends, window_s)
            if found is None:
                continue
            at, placed = found
            nodes = frozenset(share.node for share in placed)
            if at <= self.now:
                self.start(ranked, placed)
                ends = sorted({*ends, self.running[ask.job_id].until})
                continue
            limit_s = ask.limit_s(part)
            planned.append(Planned(at, at + limit_s, nodes))
            known = self.reasons.setdefault(ask.job_id, PendingReason(PRIORITY))
            if ask.job_id not in seen or at < (known.planned_at or at + 1):
                known.planned_at, known.planned_on = at, tuple(sorted(nodes))
            seen.add(ask.job_id)

    def _earliest(
        self,
        ask: Ask,
        part: Partition,
        planned: Sequence[Planned],
        ends: Sequence[float],
        window_s: float,
    ) -> tuple[float, tuple[Share, ...]] | None:
        """When a job would start at the earliest, and where, by time limits."""
        limit_s = ask.limit_s(part)
        times = {self.now, *(one.end for one in planned), *ends}
        times |= {one.end for one in self.site.reservations}
        capacity = self.capacity.later()
        leaving = sorted(self.running.values(), key=lambda run: run.until)
        gone = 0
        for at in sorted(t for t in times if self.now <= t <= self.now + window_s):
            while gone < len(leaving) and leaving[gone].until <= at:
                capacity.take(leaving[gone].ask.shares, -1)
                gone += 1
            busy = {
                name
                for one in planned
                if one.start < at + limit_s and at < one.end
                for name in one.nodes
            }
            names = [n for n in self.nodes_of(ask, part, at) if n not in busy]
            placed = choose(ask, capacity, names, self.site)
            if placed is not None:
                return at, placed
        return None

    # --- what they ask ------------------------------------------------------------------------

    def start(self, ranked: Ranked, placed: tuple[Share, ...]) -> None:
        """A job starts."""
        ask = ranked.ask
        ran = _with(ask, ranked.partition.name, placed)
        self.capacity.take(placed)
        self.usage.add(ran, self.site)
        self.running[ask.job_id] = Running(ran, self.now + ask.limit_s(ranked.partition))
        self._count(ran, 1)
        self.started[ask.job_id] = ranked, placed
        self.reasons.pop(ask.job_id, None)

    def _wait(self, ask: Ask, found: PendingReason) -> None:
        """Of several partitions, the one in which it comes nearest to starting tells."""
        before = self.reasons.get(ask.job_id)
        if before is None or before.reason not in CAPACITY:
            self.reasons[ask.job_id] = found

    def kept_from(self, ask: Ask, part: Partition) -> PendingReason | None:
        """What keeps a job from being looked at, whatever is free; None: nothing."""
        if not part.up:
            return PendingReason("PartitionDown")
        limit_s = ask.limit_s(part)
        if part.max_time_s is not None and limit_s > part.max_time_s:
            return PendingReason("PartitionTimeLimit")
        most = part.max_nodes
        if (most is not None and ask.nodes > most) or ask.nodes > len(part.nodes):
            return PendingReason("PartitionNodeLimit")
        if ask.array_limit and self.tasks.get(ask.array, 0) >= ask.array_limit:
            return PendingReason("JobArrayTaskLimit")
        if hit := first_hit(ask, part, self.site, self.usage):
            return PendingReason(hit.reason, hit)
        if any(self.licences.get(name, 0) < count for name, count in ask.licences):
            return PendingReason(LICENSES)
        if ask.reservation and not any(r.name == ask.reservation for r in self._active()):
            return PendingReason("Reservation", reservation=ask.reservation)
        return None

    def _active(self) -> Iterable[Reservation]:
        return (one for one in self.site.reservations if one.start <= self.now < one.end)

    def nodes_of(self, ask: Ask, part: Partition, at: float) -> list[str]:
        """Nodes a job may have from `at` for its limit, lowest weight first."""
        until = at + ask.limit_s(part)
        shut: set[str] = set()
        only: frozenset[str] | None = None
        for one in self.site.reservations:
            if one.name == ask.reservation:
                only = one.nodes
            elif one.start < until and at < one.end:
                shut |= one.nodes
        found = [
            name
            for name in part.nodes
            if (node := self.site.nodes.get(name)) is not None
            and node.open
            and name not in shut
            and (only is None or name in only)
            and suits(ask, node)
        ]
        return sorted(found, key=self.site.order.__getitem__)

    def _lacking(self, ask: Ask, part: Partition, names: Sequence[str]) -> PendingReason:
        """Why a job that could be looked at does not fit now."""
        everything = Capacity.of(self.site)
        if choose(ask, everything, names, self.site) is not None:
            return PendingReason(RESOURCES)
        kept = [
            one
            for one in self.site.reservations
            if one.nodes & part.nodes and one.start < self.now + ask.limit_s(part)
        ]
        name = kept[0].name if kept else ""
        return PendingReason("ReqNodeNotAvail", reservation=name)


def line_up(site: Site, asks: Iterable[Ask], weights: Multifactor, now: float) -> list[Ranked]:
    """Jobs in the order they are looked at, once for each of their partitions."""
    found: list[Ranked] = []
    for ask in asks:
        for name in ask.partitions:
            part = site.partitions.get(name)
            if part is not None:
                terms = weights.terms(ask, part, now)
                priority = terms.total if site.weighs else ask.priority
                found.append(Ranked(ask, part, priority, terms))
    found.sort(key=lambda one: (-one.partition.tier, -one.priority, one.ask.submit))
    return found


def _with(ask: Ask, partition: str, shares: tuple[Share, ...]) -> Ask:
    others = tuple(name for name in ask.partitions if name != partition)
    return replace(ask, shares=shares, partitions=(partition, *others))
