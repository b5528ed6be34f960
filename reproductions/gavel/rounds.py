"""Gavel's rounds: they turn shares of time into turns on GPUs.

In every round, the jobs that are furthest behind their share of a GPU type run on that type. The
time that jobs received is counted since the shares were last computed. Narayanan et al., OSDI'20,
section 5.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from reproductions.allocation.allocation import Allocation, Node
from reproductions.allocation.policy import ActiveJob

Combination = tuple[str, ...]  # one job, or two on the same GPUs
Shares = Mapping[Combination, Sequence[float]]  # of time on each GPU type

NEVER_HAD = 1e9  # priority per unit of share of a job that had no time at all


@dataclass(frozen=True, slots=True)
class Turn:
    """A job or pair of jobs on a GPU type for one round. `priority` 0 means that it runs on GPUs
    which no job is entitled to.
    """

    jobs: Combination
    type: int
    priority: float


@dataclass(frozen=True, slots=True)
class Gang:
    """What a round needs to know of a job: how many GPUs it needs, and on which types it can
    run.
    """

    gpus: int
    runs: Sequence[bool]


@dataclass(slots=True)
class Rounds:
    """The time that each job or pair of jobs has received and is owed on each GPU type.

    Args:
        types: number of GPU types; the first is filled first.
        round_s: length of a round in seconds. Every job starts as if it had already received half a
            round on every type.
        idle_taken: whether GPUs which no job is entitled to go to any job that fits (work
            conserving).
        shuffle: seed with which the order of types is shuffled each round, so that no type is
            preferred; None: the order is fixed.
    """

    types: int
    round_s: float
    idle_taken: bool = True
    shuffle: int | None = None
    shares: Shares = field(default_factory=dict)
    _received: dict[tuple[Combination, int], float] = field(default_factory=dict)
    _deficit: dict[tuple[Combination, int], float] = field(default_factory=dict)
    _since: float = 0.0
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._random.seed(self.shuffle)

    def reset(self, shares: Shares, now: float) -> None:
        """Replace the shares by newly computed ones. Time that is still owed is kept, and the count
        of received time starts again.
        """
        owed: dict[tuple[Combination, int], float] = {}
        half = self.round_s / 2
        for jobs in shares:
            for kind in range(self.types):
                had = self._received.get((jobs, kind), half) - half
                due = self.shares.get(jobs, (0.0,) * self.types)[kind] * (now - self._since)
                owed[jobs, kind] = self._deficit.get((jobs, kind), 0.0) + due - had
        self._deficit, self._received = owed, {}
        self.shares, self._since = shares, now

    def ran(self, turn: Turn, seconds: float) -> None:
        """Add `seconds` to the time that the jobs of a turn have received."""
        key = turn.jobs, turn.type
        self._received[key] = self._received.get(key, self.round_s / 2) + seconds

    def priority(self, jobs: Combination, kind: int, total: float) -> float:
        """Return the share of time that jobs are due on type `kind` divided by the share that they
        received. `total` is the time that all jobs together received on that type.
        """
        share = self.shares[jobs][kind] if jobs in self.shares else 0.0
        received = self._received.get((jobs, kind), self.round_s / 2)
        return share * total / received if received else share * NEVER_HAD

    def choose(self, gangs: Mapping[str, Gang], free: Sequence[int]) -> list[Turn]:
        """Return the turns of the next round: which jobs and pairs run on which type.

        Args:
            gangs: every job that may run, by job id, in order of arrival.
            free: number of free GPUs of each type.
        """
        whole = [jobs for jobs in self.shares if len(jobs) > 1 and all(j in gangs for j in jobs)]
        combinations: list[Combination] = [(job,) for job in gangs] + whole
        left = list(free)
        busy: set[str] = set()
        turns: list[Turn] = []
        kinds = list(range(self.types))
        if self.shuffle is not None:
            self._random.shuffle(kinds)
        for kind in kinds:
            for priority, jobs in self._queue(combinations, kind):
                if not left[kind]:
                    break
                gang = gangs[jobs[0]]
                if (priority <= 0 and not self._takes_idle(jobs)) or gang.gpus > left[kind]:
                    continue
                if any(job in busy or not gangs[job].runs[kind] for job in jobs):
                    continue
                left[kind] -= gang.gpus
                busy.update(jobs)
                turns.append(Turn(jobs, kind, priority))
        return turns

    def _takes_idle(self, jobs: Combination) -> bool:
        """Return whether these jobs may take GPUs which no job is entitled to. A pair may not,
        since both are faster alone.
        """
        return self.idle_taken and len(jobs) == 1

    def _queue(
        self, combinations: Collection[Combination], kind: int
    ) -> list[tuple[float, Combination]]:
        """Return (priority, jobs) for a type, sorted by priority, then time owed, then share, each
        highest first; ties stay in the given order.
        """
        half = self.round_s / 2
        total = sum(self._received.get((jobs, kind), half) for jobs in combinations)
        entries = []
        for jobs in combinations:
            share = self.shares[jobs][kind] if jobs in self.shares else 0.0
            owed = self._deficit.get((jobs, kind), 0.0)
            entries.append((self.priority(jobs, kind, total), owed, share, jobs))
        entries.sort(key=lambda entry: entry[:3], reverse=True)
        return [(priority, jobs) for priority, _, _, jobs in entries]


def still_ahead(turns: Sequence[Turn], kind: int) -> str | None:
    """Return the id of the last job that got GPUs of type `kind`, which the waiting jobs name as
    the one before them; None if no job got any.
    """
    return next((turn.jobs[0] for turn in reversed(turns) if turn.type == kind), None)


def place(
    turns: Sequence[Turn],
    active: Mapping[str, ActiveJob],
    nodes: Sequence[Node],
    types: Sequence[str],
) -> dict[Combination, Allocation]:
    """Return an allocation for every turn. Large jobs are placed first. A job stays on its nodes if
    they are of the right type and its GPUs are free; the others are placed on nodes by index.
    """
    free = [node.gpus for node in nodes]
    placed: dict[Combination, Allocation] = {}
    sizes = sorted({active[turn.jobs[0]].job.gpus for turn in turns}, reverse=True)
    for size in sizes:
        same = [turn for turn in turns if active[turn.jobs[0]].job.gpus == size]
        for turn in same:
            for job in turn.jobs:
                held = active[job].allocation
                if (
                    turn.jobs not in placed
                    and held is not None
                    and _stays(held, turn, free, nodes, types=types)
                ):
                    placed[turn.jobs] = held
                    _take(free, held)
        for turn in same:
            if turn.jobs not in placed:
                placed[turn.jobs] = found = _first_fit(size, turn, free, nodes, types=types)
                _take(free, found)
    return placed


def _stays(
    held: Allocation, turn: Turn, free: Sequence[int], nodes: Sequence[Node], types: Sequence[str]
) -> bool:
    return nodes[held.nodes[0]].gpu_type == types[turn.type] and all(
        free[node] >= count for node, count in zip(held.nodes, held.gpus, strict=True)
    )


def _take(free: list[int], gpus: Allocation) -> None:
    for node, count in zip(gpus.nodes, gpus.gpus, strict=True):
        free[node] -= count


def _first_fit(
    size: int, turn: Turn, free: Sequence[int], nodes: Sequence[Node], types: Sequence[str]
) -> Allocation:
    """Return an allocation on the first node with room for all GPUs; otherwise on as many nodes as
    needed, by index.
    """
    here = [n.index for n in nodes if n.gpu_type == types[turn.type] and free[n.index]]
    whole = [node for node in here if free[node] >= size]
    chosen: list[tuple[int, int]] = []
    for node in whole[:1] or here:
        if size:
            chosen.append((node, min(size, free[node])))
            size -= chosen[-1][1]
    return Allocation(tuple(node for node, _ in chosen), tuple(count for _, count in chosen))
