"""The two passes of slurmctld over its queue: the main scheduler and backfill.

After job_scheduler.c and backfill.c of Slurm 22.05. The main pass takes jobs by partition tier and
priority. Once a job of a partition does not fit, the rest of that partition waits, and so do jobs
of lower partitions that would use its nodes. Backfill considers every job in that order. It plans
nodes (whole nodes, for the time limit) for each job that cannot start, and starts jobs that delay
none of the planned ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from operator import attrgetter
from typing import Any, NamedTuple

from scheduler.slurm.twin.capacity import Capacity, choose, suits
from scheduler.slurm.twin.limits import Hit, Usage, first_hit, is_kept, is_limit
from scheduler.slurm.twin.preemption import Preemption
from scheduler.slurm.twin.priority import Multifactor
from scheduler.slurm.twin.site import (
    Ask,
    AssocKey,
    Partition,
    Reservation,
    Running,
    Share,
    Site,
)

RESOURCES, PRIORITY, LICENSES = "Resources", "Priority", "Licenses"
NOT_AVAILABLE, DOWN = "ReqNodeNotAvail", "PartitionDown"
ARRAY_FULL = "JobArrayTaskLimit"
# what is tested again whenever the queue is made
CLOSED = frozenset((
    DOWN, "PartitionTimeLimit", "PartitionNodeLimit", "AccountNotAllowed",
    "QOSNotAllowed", ARRAY_FULL, "Dependency", "BeginTime",
))  # fmt: skip
WINDOW_S = 30.0  # of ends that are taken together, at first
TRIES = 64  # to plan one job
# of a request, what decides when and where it could start on given nodes of a partition
_WANTS = attrgetter(
    "qos",
    "nodes",
    "max_nodes",
    "cpus",
    "min_cpus",
    "memory_mib",
    "per_cpu",
    "per_gpu",
    "gpus",
    "gpus_per_node",
    "features",
    "req_nodes",
    "exclusive",
    "gres",
)
# waits for what others have or for their turn, not for a limit or a hold
CAPACITY = frozenset((RESOURCES, PRIORITY))


class Ranked(NamedTuple):
    """A job in one of its partitions, with its priority there."""

    ask: Ask
    partition: Partition
    priority: int


@dataclass(slots=True)
class PendingReason:
    """Why a job waits, as Slurm's reason code.

    Attributes:
        hit: the limit that it would exceed, where that is the reason.
        set: whether the site is known to have the limit that the reason code names.
        reservation: the reservation that keeps it from its nodes.
        planned_at, planned_on: when and on which nodes backfill would start it, by time limits.
    """

    reason: str
    hit: Hit | None = None
    reservation: str = ""
    planned_at: float | None = None
    planned_on: frozenset[str] = frozenset()
    set: bool = False


class Space:
    """The nodes that backfill has planned for jobs, by time. No other job may use any part of them
    at that time."""

    def __init__(self, now: float, window_s: float, grain_s: float) -> None:
        self.window_s = window_s
        self._grain = grain_s
        # begin, end, nodes that are kept: in order, without gaps
        self._slots: list[tuple[float, float, frozenset[str]]] = [
            (now, now + window_s, frozenset())
        ]

    def plan(self, at: float, limit_s: float, nodes: frozenset[str]) -> None:
        """Plan nodes for a job from `at` for `limit_s` seconds, rounded to whole time steps."""
        begin, end = self._steps(at, at + limit_s)
        begin = max(self._slots[0][0], begin)
        end = max(end, begin + self._grain)
        found: list[tuple[float, float, frozenset[str]]] = []
        for since, until, kept in self._slots:
            low, high = max(since, begin), min(until, end)
            cut = (
                [(since, low, kept), (low, high, kept | nodes), (high, until, kept)]
                if low < high
                else [(since, until, kept)]
            )
            for one in cut:
                if one[0] < one[1] and found and found[-1][2] == one[2]:
                    found[-1] = found[-1][0], one[1], one[2]
                elif one[0] < one[1]:
                    found.append(one)
        self._slots = found

    def _steps(self, *moments: float) -> tuple[float, ...]:
        return tuple(one // self._grain * self._grain for one in moments)

    def open(self, at: float, until: float, names: Sequence[str]) -> tuple[list[str], float | None]:
        """Return those of `names` that are planned for no job from `at` until `until`, inclusive.
        Also return the next time at which it is worth asking again, because more of them may be
        open; None for never.

        That time is the end of the first planned stretch after which a node becomes open that was
        not so far. Stretches that begin after the first one beyond `until` are not examined.
        """
        left, later = set(names), None
        for place, (since, end, kept) in enumerate(self._slots):
            following = self._slots[place + 1][2] if place + 1 < len(self._slots) else None
            if end > at and later is None and following is not None:
                later = end if set(names) - following - (left - kept) else None
            if end > at:
                if since > until:
                    break
                left -= kept
        return [name for name in names if name in left], later

    def taken(self, at: float, until: float) -> set[str]:
        """Return the names of the nodes that are planned for jobs at any time between `at` and
        `until`."""
        begin, end = self._steps(at, until)
        return {n for b, e, nodes in self._slots if b < end and e > begin for n in nodes}

    def step_after(self, at: float) -> float:
        """Return the end of the time step in which `at` lies; `at` itself if a step ends there."""
        return -(-at // self._grain) * self._grain


@dataclass(slots=True)
class Passes:
    """One run of both passes over the queue.

    Attributes:
        reasons: reason codes of waiting jobs, by `reason_key`. Slurm has one for all waiting tasks
            of an array, and keeps it until it finds another. A job that is missing has none.
        started: jobs to start now, in order, each with its place.
        planned: jobs that backfill plans to start later, each with time and nodes.
        preempted: runs that make way, by job id, each with the job for which it does.
        parts: maps each heterogeneous job to its number of components. Only backfill starts them,
            when all can start.
    """

    site: Site
    now: float
    capacity: Capacity
    usage: Usage
    running: dict[str, Running]
    reasons: dict[str, str] = field(default_factory=dict)
    started: dict[str, tuple[Ranked, tuple[Share, ...]]] = field(default_factory=dict)
    planned: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    preempted: dict[str, tuple[Running, str]] = field(default_factory=dict)
    licences: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)  # of arrays, that run
    parts: Mapping[str, int] = field(default_factory=dict)
    _ready: dict[str, dict[str, tuple[float, Ranked, tuple[Share, ...]]]] = field(
        default_factory=dict
    )  # components, by heterogeneous job: from when each could run, and where
    _empty: Capacity = field(init=False)  # never taken of
    _preemption: Preemption = field(init=False)
    _suiting: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _open: dict[str, list[str]] = field(default_factory=dict)  # nodes by partition
    # by what is wanted: when and where it could start, until another job starts
    _tried: dict[tuple[object, ...], tuple[float, tuple[Share, ...]] | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        self.now = floor(self.now)  # time(NULL)
        self._empty, self._preemption = Capacity.of(self.site), Preemption(self.site)
        self.licences = dict(self.site.licences)
        for run in self.running.values():
            self._count(run.ask, 1)

    def _count(self, ask: Ask, sign: int) -> None:
        for name, count in ask.licences:
            self.licences[name] = self.licences.get(name, 0) - sign * count
        if ask.array:
            self.tasks[ask.array] = self.tasks.get(ask.array, 0) + sign

    def _set_reason(self, ask: Ask, reason: str) -> None:
        self.reasons[reason_key(ask)] = reason

    def _clear_reason(self, ask: Ask, wanted: Callable[[str], bool]) -> None:
        if wanted(self.reasons.get(reason_key(ask), "")):
            del self.reasons[reason_key(ask)]

    # --- the main pass ------------------------------------------------------------------------

    def main(self, line: Sequence[Ranked], depth: int) -> None:
        """Make the pass of the main scheduler over at most `depth` jobs of `line`."""
        failed: set[str] = set()
        closed: set[str] = set()
        rejected: set[tuple[str, str]] = set()  # arrays, of which a task waits
        for ranked in line[:depth]:
            ask, part = ranked.ask, ranked.partition
            if ask.job_id in self.started or (ask.array, part.name) in rejected:
                continue
            if het_job(ask) in self.parts:  # left to backfill, and all of its partition behind it
                failed.add(f"reservation {ask.reservation}" if ask.reservation else part.name)
                closed |= frozenset() if ask.reservation else part.nodes
                continue
            self._clear_reason(ask, lambda reason: reason in CLOSED)
            if not blaming(ask.job_id, self._try, ranked, failed, closed) and ask.array:
                rejected.add((ask.array, part.name))

    def _try(self, ranked: Ranked, failed: set[str], closed: set[str]) -> bool:
        """Start a job where it fits, or record the reason why it waits. Return whether it started.

        If it lacks resources, the nodes that later jobs may not take are added to `closed`: those
        that the job names or, where it names none, all of its partition. In the second case, its
        partition or reservation is added to `failed`.
        """
        ask, part = ranked.ask, ranked.partition
        reason = closed_to(ask, part) or self._array_full(ask)
        if reason:
            self._set_reason(ask, reason)
            return False
        turn = f"reservation {ask.reservation}" if ask.reservation else part.name
        if turn in failed:
            if ask.reservation or self.reasons.get(reason_key(ask), RESOURCES) == RESOURCES:
                self._set_reason(ask, PRIORITY)
            return False
        names = [n for n in self.nodes_of(ask, part, self.now) if n not in closed]
        reason = self._blocked_by(ask, part)
        placed = None if reason else self._placed(ranked, names)
        if placed is not None:
            self.start(ranked, placed)
            return True
        reason = reason or self._lacking(ask, part)
        self._set_reason(ask, reason)
        if reason == RESOURCES and ask.req_nodes:
            closed |= ask.req_nodes
        elif reason == RESOURCES:
            failed.add(turn)
            closed |= frozenset() if ask.reservation else part.nodes
        return False

    def _blocked_by(self, ask: Ask, part: Partition) -> str:
        """Return the code of the limit, licence or reservation that keeps a job from starting,
        however many nodes are free. Return "" if there is none.
        """
        if hit := first_hit(ask, part, self.site, self.usage, tres=False):
            return hit.reason
        if any(self.licences.get(name, 0) < count for name, count in ask.licences):
            return LICENSES
        if ask.reservation and not any(r.name == ask.reservation for r in self._active()):
            return "Reservation"
        hit = first_hit(ask, part, self.site, self.usage, tres=True)
        return hit.reason if hit is not None else ""

    # --- backfill -----------------------------------------------------------------------------

    def backfill(self, line: Sequence[Ranked], depth: int, window_s: float, grain_s: float) -> None:
        """Make the backfill pass over at most `depth` jobs of `line`.

        Args:
            window_s: how far ahead starts are planned, seconds.
            grain_s: step to which planned times are rounded, seconds (`bf_resolution`).
        """
        space = Space(self.now, window_s, grain_s)
        rejected: set[tuple[str, str]] = set()
        split: dict[str, str] = {}  # arrays of which a task began, and in which partition
        for ranked in line[:depth]:
            ask, part = ranked.ask, ranked.partition
            if ask.job_id in self.started or (ask.array, part.name) in rejected:
                continue
            if split.get(ask.array, part.name) != part.name:
                continue  # its place in line was the task's that began
            if not blaming(ask.job_id, self._fill, ranked, space) and ask.array:
                rejected.add((ask.array, part.name))
            elif ask.array and ask.job_id in self.started:
                split[ask.array] = part.name
        for of, ready in self._ready.items():
            if len(ready) == self.parts[of] and all(at <= self.now for at, _, _ in ready.values()):
                for _, ranked, placed in ready.values():
                    self.start(ranked, placed)

    def _fill(self, ranked: Ranked, space: Space) -> bool:
        """Start a job if that delays no planned job; otherwise plan its start. Return whether
        either was possible."""
        ask, part = ranked.ask, ranked.partition
        if not self._may_begin(ask, part):
            return False
        ready = self._ready.setdefault(het_job(ask), {}) if het_job(ask) in self.parts else None
        others = (at for job_id, (at, _, _) in (ready or {}).items() if job_id != ask.job_id)
        found = self._earliest(ask, part, space, max(others, default=self.now))
        if found is None:
            return False
        at, placed = found
        if hit := first_hit(ask, part, self.site, self.usage, tres=True):
            self._set_reason(ask, hit.reason)
            return False
        if ready is None and at <= self.now:
            there: tuple[Share, ...] | None = placed
            if self._candidates(ask, part):
                there = self._placed(ranked, [share.node for share in placed])
            if there is not None:
                self.start(ranked, there)
            return there is not None
        nodes = frozenset(share.node for share in placed)
        space.plan(at, ask.limit_s(part), nodes)
        known = self.planned.get(ask.job_id)
        if known is None or at < known[0]:
            self.planned[ask.job_id] = at, nodes
            if ready is not None:
                ready[ask.job_id] = at, ranked, placed
        return True

    def _may_begin(self, ask: Ask, part: Partition) -> bool:
        """Return whether backfill looks for nodes for a job. If not, record the reason why the job
        waits, except where it lacks licences or its reservation has not begun."""
        self._clear_reason(ask, lambda reason: reason in CLOSED)
        if reason := closed_to(ask, part):
            self._set_reason(ask, reason)
            return False
        self._clear_reason(ask, lambda reason: is_limit(reason) and not is_kept(reason))
        if reason := self._array_full(ask):
            self._set_reason(ask, reason)
            return False
        if hit := first_hit(ask, part, self.site, self.usage, tres=False):
            self._set_reason(ask, hit.reason)
            return False
        if any(self.licences.get(name, 0) < count for name, count in ask.licences):
            return False
        return not ask.reservation or any(r.name == ask.reservation for r in self._active())

    def _earliest(
        self, ask: Ask, part: Partition, space: Space, at: float
    ) -> tuple[float, tuple[Share, ...]] | None:
        """Return the earliest time from `at` on at which a job would start, by time limits, and the
        shares of nodes that it gets. Return None where it would not start within the planned time.
        """
        limit_s = ask.limit_s(part)
        wants = part.name, het_job(ask) != "", _WANTS(ask)
        for _ in range(TRIES):
            suiting = set(self.nodes_of(ask, part, at))
            found, later = space.open(at, at + limit_s, self._unreserved(ask, part, at))
            freed = [
                space.step_after(r.end) + 1
                for r in self.site.reservations
                if r.start < at + limit_s and r.end > at and r.nodes & part.nodes
            ]
            later = min([*freed, *([later] if later is not None else [])], default=None)
            names = tuple(name for name in found if name in suiting)
            if (*wants, names) not in self._tried:
                self._tried[*wants, names] = self._will_run(ask, part, names)
            known = self._tried[*wants, names]
            if known is not None:
                start, placed = max(known[0], at), known[1]
                if later is None or start <= later:
                    if start > self.now + space.window_s:
                        return None
                    nodes = {share.node for share in placed}
                    if start <= self.now or not nodes & space.taken(start, start + limit_s):
                        return start, placed
                    later = start
            if later is None or later <= at:
                return None
            at = later
        return None

    def _will_run(
        self, ask: Ask, part: Partition, names: Sequence[str]
    ) -> tuple[float, tuple[Share, ...]] | None:
        """Return when and where a job could start on some of these nodes, as running jobs are
        preempted or reach their time limits. Return None if it never fits.

        As in Slurm, ends of running jobs are taken in groups: those within half a minute, then
        within twice as long each time.
        """
        placed = choose(ask, self.capacity, self._given(ask, part, names), self.site)
        if placed is not None:
            return self.now, placed
        if choose(ask, self._empty, names, self.site) is None:
            return None
        capacity, making_way = self.capacity.later(names), set()
        for run in self._candidates(ask, part):
            capacity.take(run.ask.shares, -1)
            making_way.add(run.ask.job_id)
        placed = choose(ask, capacity, names, self.site) if making_way else None
        if placed is not None:
            return self.now, placed
        wanted = set(names)
        leaving = sorted(
            (run for job_id, run in self.running.items() if job_id not in making_way),
            key=lambda run: (run.until, run.listed),
        )
        ours = [any(share.node in wanted for share in run.ask.shares) for run in leaving]
        window_s, end = WINDOW_S, 0.0
        for place, run in enumerate(leaving):
            if not ours[place]:  # what comes after it is taken with what came before
                continue
            end = end or run.until + WINDOW_S - run.until % WINDOW_S
            capacity.take(run.ask.shares, -1)
            following = leaving[place + 1].until if place + 1 < len(leaving) else inf
            if following <= end + window_s and any(ours[place + 1 :]):
                continue
            window_s *= 2
            while end + window_s < following < inf:
                window_s *= 2
            placed = choose(ask, capacity, names, self.site)
            if placed is not None:
                return max(run.until, self.now + 1), placed
        return None

    # --- preemption ---------------------------------------------------------------------------

    def _candidates(self, ask: Ask, part: Partition) -> list[Running]:
        """Return the runs that can be preempted for a job; [] for a part of a heterogeneous job."""
        if het_job(ask):
            return []
        there = (run for job_id, run in self.running.items() if job_id not in self.started)
        return self._preemption.candidates(ask, part, there, self.now)

    def _placed(self, ranked: Ranked, names: Sequence[str]) -> tuple[Share, ...] | None:
        """Return the shares of nodes that a job gets now on some of these nodes, or None where it
        does not fit. Runs are preempted for it where that is allowed."""
        ask = ranked.ask
        names = self._given(ask, ranked.partition, names)
        placed = choose(ask, self.capacity, names, self.site)
        if placed is not None:
            return placed
        candidates = self._candidates(ask, ranked.partition)
        room = self._preemption.room(ask, candidates, self.capacity, names)
        if room is None:
            return None
        placed, gone = room
        for run in gone:
            job_id = run.ask.job_id
            self.preempted[job_id] = self.running.pop(job_id), ask.job_id
            self.capacity.take(run.ask.shares, -1)
            self.usage.add(run.ask, self.site, -1)
            self._count(run.ask, -1)
        return placed

    def _given(self, ask: Ask, part: Partition, names: Sequence[str]) -> Sequence[str]:
        """Return those of the given nodes on which the partition's limit (`MaxCPUsPerNode`) leaves
        enough CPUs for a job."""
        most = part.cpus_per_node
        if most is None:
            return names
        used = dict.fromkeys(names, 0)
        for run in self.running.values():
            if part.name in run.ask.partitions:
                for share in run.ask.shares:
                    used[share.node] = used.get(share.node, 0) + share.cpus
        each = max(ask.min_cpus, -(-ask.cpus // max(1, ask.nodes)))
        return [name for name in names if used[name] + each <= most]

    # --- what they ask ------------------------------------------------------------------------

    def start(self, ranked: Ranked, placed: tuple[Share, ...]) -> None:
        """Start a job on the given shares of nodes, and count its resources as used."""
        ask = ranked.ask
        ran = _with(ask, ranked.partition.name, placed)
        self.capacity.take(placed)
        self.usage.add(ran, self.site)
        self._tried.clear()
        until = self.now + ask.limit_s(ranked.partition)
        self.running[ask.job_id] = Running(ran, self.now, until, listed(ask, self.running))
        self._count(ran, 1)
        self.started[ask.job_id] = ranked, placed
        self.reasons.pop(reason_key(ask), None)

    def _array_full(self, ask: Ask) -> str:
        full = ask.array_limit and self.tasks.get(ask.array, 0) >= ask.array_limit
        return ARRAY_FULL if full else ""

    def _active(self) -> Iterable[Reservation]:
        return (one for one in self.site.reservations if one.start <= self.now < one.end)

    def nodes_of(self, ask: Ask, part: Partition, at: float) -> list[str]:
        """Return the nodes that suit a job and are open to it from `at` for its time limit, the
        lowest weight first."""
        key = ask.job_id, part.name
        if key not in self._suiting:
            self._suiting[key] = {
                name for name in self._there(part) if suits(ask, self.site.nodes[name])
            }
        return [n for n in self._unreserved(ask, part, at) if n in self._suiting[key]]

    def _there(self, part: Partition) -> list[str]:
        """Return the open nodes of a partition, the lowest weight first."""
        if part.name not in self._open:
            nodes = self.site.nodes
            there = (name for name in part.nodes if name in nodes and nodes[name].open)
            self._open[part.name] = sorted(there, key=self.site.order.__getitem__)
        return self._open[part.name]

    def _unreserved(self, ask: Ask, part: Partition, at: float) -> list[str]:
        """Return the open nodes that no reservation keeps from a job that starts at `at` and runs
        for its time limit. If the job asks for a reservation, return only nodes of that one."""
        until = at + ask.limit_s(part)
        shut: set[str] = set()
        only: frozenset[str] | None = None
        for one in self.site.reservations:
            if one.name == ask.reservation:
                only = one.nodes
            elif one.start < until and at < one.end:
                shut |= one.nodes
        return [n for n in self._there(part) if n not in shut and (only is None or n in only)]

    def _lacking(self, ask: Ask, part: Partition) -> str:
        """Return the reason code of a job that does not fit now: Resources if it would fit on empty
        nodes, otherwise that its nodes are not available.
        """
        names = self.nodes_of(ask, part, self.now)
        fits = choose(ask, self._empty, names, self.site) is not None
        return RESOURCES if fits else NOT_AVAILABLE

    def shut_by(self, ask: Ask, part: Partition) -> str:
        """Return the name of the reservation that keeps a job from its nodes; "" for none."""
        until = self.now + ask.limit_s(part)
        suits_it = set(self.would_do(ask, self._there(part)))
        kept = (
            one
            for one in self.site.reservations
            if one.nodes & suits_it and one.start < until and self.now < one.end
        )
        return next((one.name for one in kept if one.name != ask.reservation), "")

    def would_do(self, ask: Ask, names: Iterable[str]) -> list[str]:
        """Return the given nodes that could run their part of a job if they were empty. For a job
        without a limit on its number of nodes, return those that could run the whole job, if there
        are any in its partitions."""
        found = [name for name in names if self._does(ask, name)]
        if ask.nodes != 1 or ask.max_nodes:
            return found
        alone = replace(ask, max_nodes=1)
        by_itself = [name for name in found if self._does(alone, name)]
        known = self.site.partitions
        there = {n for part in ask.partitions if part in known for n in known[part].nodes}
        if by_itself or any(self._does(alone, name) for name in there & self.site.nodes.keys()):
            return by_itself
        return found

    def _does(self, ask: Ask, name: str) -> bool:
        node = self.site.nodes[name]
        if not suits(ask, node) or (ask.req_nodes and ask.nodes == 1 and name not in ask.req_nodes):
            return False
        each = ask.gpus if ask.gpus_per_node else tuple((kind, 1) for kind, n in ask.gpus if n)
        in_all = ask.max_nodes == 1 and not ask.gpus_per_node
        cpus = ask.cpus if ask.max_nodes == 1 else ask.min_cpus
        one = replace(
            ask,
            nodes=1,
            max_nodes=1,
            cpus=cpus,
            min_cpus=min(ask.min_cpus, cpus),
            req_nodes=frozenset(),
            gpus=ask.gpus if in_all else each,
            gpus_per_node=not in_all,
            features="",
        )
        return choose(one, self._empty, [name], self.site) is not None


class JobFault(Exception):
    """Raised when a computation failed for one job. Other jobs can be planned without it."""

    def __init__(self, job_id: str, error: Exception) -> None:
        super().__init__(f"job {job_id}: {type(error).__name__} {error}"[:200])
        self.job_id = job_id


def blaming(job_id: str, call: Callable[..., Any], *args: Any) -> Any:
    """Return the result of `call`, which computes something about a job. Raise JobFault where the
    call raises an error."""
    try:
        return call(*args)
    except JobFault:
        raise
    except Exception as error:
        raise JobFault(job_id, error) from error


def closed_to(ask: Ask, part: Partition) -> str:
    """Return the reason code with which a partition does not take a job at all; "" where it
    does."""
    if not part.up:
        return DOWN
    limit_s = ask.limit_s(part)
    if part.max_time_s is not None and limit_s > part.max_time_s:
        return "PartitionTimeLimit"
    most = part.max_nodes
    if (most is not None and ask.nodes > most) or ask.nodes > len(part.nodes):
        return "PartitionNodeLimit"
    # a job that does not say how many looks as one that asks for one, and is given the least
    if ask.nodes < part.min_nodes and ask.reason == "PartitionNodeLimit":
        return "PartitionNodeLimit"
    return _not_allowed(ask, part)


def _not_allowed(ask: Ask, part: Partition) -> str:
    allowed = part.accounts is None or ask.account in part.accounts
    if not allowed or ask.account in part.no_accounts:
        return "AccountNotAllowed"
    allowed = part.all_qos is None or ask.qos in part.all_qos
    return "" if allowed and ask.qos not in part.no_qos else "QOSNotAllowed"


def listed(ask: Ask, running: Mapping[str, Running]) -> float:
    """Return the time since which Slurm has a record of a job that begins now. For a task of an
    array, that is the start of the task before it; otherwise the submission."""
    if not ask.array:
        return ask.submit
    tasks = (run.start for run in running.values() if run.ask.array == ask.array)
    return max(tasks, default=ask.submit)


def het_job(ask: Ask) -> str:
    """Return the id of the heterogeneous job of which a job is a component (``12`` for ``12+1``);
    "" for any other job."""
    head, plus, _ = ask.job_id.partition("+")
    return head if plus and "~" not in ask.job_id else ""


def reason_key(ask: Ask) -> str:
    """Return the key under which a job's reason code is kept. All tasks of an array share one."""
    return ask.array or ask.job_id


def ranks(
    site: Site,
    ask: Ask,
    weights: Multifactor,
    now: float,
    fairshare: Mapping[AssocKey, float] | None = None,
) -> list[Ranked]:
    """Return one `Ranked` for each of a job's partitions, with its priority there.

    Args:
        fairshare: fair shares by association; None: those of the site.
    """
    found: list[Ranked] = []
    for name in ask.partitions:
        part = site.partitions.get(name)
        if part is not None:
            weighs = site.weighs
            priority = weights.terms(ask, part, now, fairshare).total if weighs else ask.priority
            found.append(Ranked(ask, part, priority))
    return found


def as_shown(ask: Ask, site: Site) -> list[Ranked]:
    """Return a waiting job in its only partition, with the priority that Slurm shows. Return [] for
    a job that is held, runs, or names not exactly one partition that there is."""
    part = site.partitions.get(ask.partitions[0]) if len(ask.partitions) == 1 else None
    return (
        [] if part is None or ask.shares or ask.priority <= 1 else [Ranked(ask, part, ask.priority)]
    )


def in_order(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Return jobs in the order in which Slurm considers them."""
    return sorted(
        ranked,
        key=lambda one: (
            not one.ask.reservation,
            -one.partition.tier,
            -one.priority,
            one.ask.turn,
        ),
    )


def _with(ask: Ask, partition: str, shares: tuple[Share, ...]) -> Ask:
    others = tuple(name for name in ask.partitions if name != partition)
    return replace(ask, shares=shares, partitions=(partition, *others))
