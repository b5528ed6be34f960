"""How long similar jobs last, learned from ended jobs and from jobs that still run.

A history of ended jobs alone is biased: of the jobs that a user submitted this morning, the long
ones have not ended yet. So every group (user, template, ...) keeps a discrete hazard instead: for
each stretch (bin) of running time, the share of the jobs that reached it which ended in it. A job
counts in a stretch as soon as it has run through it or ended in it, so a job that has run for five
hours already counts in the prediction of the next one. Cox, "Regression models and life-tables",
JRSS B 1972, section 6.

Newer jobs count more: each count fades by `1 - 1 / memory` when the next is added. Narrow groups
are shrunk to wider ones, stretch by stretch: (ended + k * wider hazard) / (reached + k).

The estimate for a job is a sum: how long all jobs last, and what each narrower group adds. It comes
with a standard error, which is larger for groups with few known jobs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, inf, log, log1p, sqrt
from typing import Any, NamedTuple

from features.spec import FeatureSpec

# Where stretches of running time end, seconds; the last stretch is open.
EDGES_S = (
    15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
    43_200.0, 86_400.0, 172_800.0, 345_600.0,
)  # fmt: skip
BINS = len(EDGES_S) + 1
# Thresholds that have odds, by name. Both are edges.
THRESHOLDS_S = {"1h": 3600.0, "6h": 21_600.0}

# Jobs a group needs in a stretch to weigh as much as the wider group.
SHRINKAGE = 2.0
# From the widest group to the narrowest, and how many jobs each remembers: all jobs; those of
# the VC and GPU count; the user; the user's template. Chosen on 5-12 September of Venus.
LEVELS = ("all", "vc_gpus", "user", "template")
MEMORY = (10_000.0, 30.0, 5.0, 5.0)
OF_VC = 10.0  # a template's where users are unknown, so that it is one of many users'
# Believed before any job has ended: median 600 s, and the longer a job runs, the longer it will.
_MEDIAN_S = 600.0
_LEAST = 1e-3

# The sum, in its order: each level, and what the time limit cuts off.
SUM = (
    FeatureSpec(
        name="like_all_log_s",
        kind="continuous",
        family="survival",
        unit="ln s",
        text="how long jobs last here",
        monotone=1,
    ),
    FeatureSpec(
        name="like_vc_gpus",
        kind="continuous",
        family="survival",
        unit="ln ratio",
        text="how much longer jobs of this VC with as many GPUs last",
        monotone=1,
    ),
    FeatureSpec(
        name="like_user",
        kind="continuous",
        family="survival",
        unit="ln ratio",
        text="how much longer than those this user's jobs last",
        monotone=1,
    ),
    FeatureSpec(
        name="like_template",
        kind="continuous",
        family="survival",
        unit="ln ratio",
        text="how much longer than those jobs of this kind last",
        monotone=1,
    ),
    FeatureSpec(
        name="like_limit",
        kind="continuous",
        family="survival",
        unit="ln ratio",
        text="what the time limit cuts off",
        monotone=1,
    ),
)
SPREAD, ERROR = (
    FeatureSpec(
        name="like_spread",
        kind="continuous",
        family="survival",
        unit="ln s",
        text="how much jobs like this one differ",
    ),
    FeatureSpec(
        name="like_error",
        kind="continuous",
        family="survival",
        unit="ln s",
        text="how little is known of jobs like this one",
    ),
)
SPECS = (*SUM, SPREAD, ERROR)
ODDS = tuple(
    FeatureSpec(
        name=f"like_over_{name}",
        kind="continuous",
        family="odds",
        unit="ln odds",
        text=f"odds that jobs like this one last over {name}",
    )
    for name in THRESHOLDS_S
)
# Entry of a bundle's metadata: the histories that it was trained beside.
HISTORIES = "histories"
# Terms of what the histories say by themselves; the first of the sum is the intercept.
OUTLOOK_TERMS = tuple(spec.name for spec in SUM[1:])


def _midpoints() -> tuple[float, ...]:
    lows, highs = (5.0, *EDGES_S), (*EDGES_S, 1_000_000.0)
    return tuple(log1p(sqrt(low * high)) for low, high in zip(lows, highs, strict=True))


def _prior() -> list[float]:
    lows, highs = (0.0, *EDGES_S), (*EDGES_S, 2e6)
    hazards = [
        1 - exp(-log(2) * (high - low) / (_MEDIAN_S + low))
        for low, high in zip(lows, highs, strict=True)
    ]
    return [min(0.9, max(0.02, hazard)) for hazard in hazards]


_MIDDLE_LOG = _midpoints()
# where stretches begin and end but for the last, which is open, ln(1 + seconds)
_LOW_LOG, _HIGH_LOG = tuple(map(log1p, (5.0, *EDGES_S[:-1]))), tuple(map(log1p, EDGES_S))
_PRIOR = _prior()
_AT = [EDGES_S.index(seconds) for seconds in THRESHOLDS_S.values()]


class Hazard:
    """Counts of one group of jobs: how many reached each bin of running time, and how many ended in
    it. Older jobs count less.

    Attributes:
        sayers: ids of the running jobs of the group that reported their total duration; `Lives`
            updates it.
    """

    __slots__ = ("_ended", "_keep", "_reached", "sayers")

    def __init__(self, memory: float) -> None:
        self.sayers: dict[str, None] = {}
        self._keep = 1.0 - 1.0 / memory
        self._reached = [0.0] * BINS
        self._ended = [0.0] * BINS

    def add(self, bin: int, ended: bool, weight: float = 1.0) -> None:
        """Count a job that ran through the stretch `bin`, or that ended in it (`ended`). `weight`,
        0 to 1, is how much the job counts."""
        keep = 1.0 - weight * (1.0 - self._keep)
        self._reached[bin] = self._reached[bin] * keep + weight
        self._ended[bin] = self._ended[bin] * keep + weight * ended

    def copy(self) -> Hazard:
        made = Hazard.__new__(Hazard)
        made._keep, made.sayers = self._keep, {}
        made._reached, made._ended = self._reached.copy(), self._ended.copy()
        return made

    @property
    def reached(self) -> Sequence[float]:
        """Return, for each stretch, the number of jobs that reached it. Older jobs count less."""
        return self._reached

    @property
    def ended(self) -> Sequence[float]:
        """Return, for each stretch, the number of jobs that ended in it. Older jobs count less."""
        return self._ended

    def shrunk(self, wider: Sequence[float]) -> list[float]:
        """Return this group's hazard in each stretch, shrunk towards `wider`, the hazards of a
        wider group."""
        return [
            (ended + SHRINKAGE * general) / (reached + SHRINKAGE)
            for reached, ended, general in zip(self._reached, self._ended, wider, strict=True)
        ]


# Stands for a level that a job does not have, as a job without a user: nothing is added to it.
ABSENT = Hazard(1.0)


def hazards(groups: Sequence[Hazard | None]) -> list[list[float]]:
    """Return, for each level of LEVELS, the hazards of its group, shrunk towards those of the level
    before.

    Args:
        groups: one group per level. None: no job of the group was ever seen. ABSENT: the job has no
            such group. Either takes the hazards of the level before.
    """
    current, out = _PRIOR, []
    for group in groups:
        if group is not None:
            current = group.shrunk(current)
        out.append(current)
    return out


class History(NamedTuple):
    """How long the jobs of one group lasted, and the distribution that follows for the next job.

    Attributes:
        level: kind of the group, one of `LEVELS` (all, vc_gpus, user, template).
        of: name of the group, in words.
        reached: number of jobs that reached each bin of running time; older jobs count less.
        ended: number of jobs of `reached` that ended in the bin.
        hazards: share of the jobs reaching each bin that ends in it, shrunk to the wider group.
        wider: the hazards of the wider group.
    """

    level: str
    of: str
    reached: tuple[float, ...]
    ended: tuple[float, ...]
    hazards: tuple[float, ...]
    wider: tuple[float, ...]

    def plain(self) -> dict[str, str | list[float]]:
        """Return the history as a JSON object, numbers with four significant digits."""
        return {
            name: value if isinstance(value, str) else [float(f"{v:.4g}") for v in value]
            for name, value in self._asdict().items()
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> History:
        """Return the history in a JSON object of `plain`. Raises ValueError unless it has `BINS`
        stretches of running time."""
        numbers = [tuple(map(float, plain[name])) for name in cls._fields[2:]]
        if any(len(column) != BINS for column in numbers):
            raise ValueError(f"a history has {BINS} stretches of running time")
        return cls(str(plain["level"]), str(plain["of"]), *numbers)


def histories(groups: Sequence[Hazard | None], of: Sequence[str]) -> tuple[History, ...]:
    """Return the history of each level of LEVELS. Levels whose group is ABSENT are left out. A
    group without any job (None) has the hazards of the wider group.

    Args:
        groups: one group per level.
        of: the name of each group, in words.
    """
    levels, found = hazards(groups), list[History]()
    for level, group, who, own, wider in zip(
        LEVELS, groups, of, levels, (_PRIOR, *levels[:-1]), strict=True
    ):
        if group is not ABSENT:
            known = group or ABSENT
            counts = tuple(known.reached), tuple(known.ended)
            found.append(History(level, who, *counts, tuple(own), tuple(wider)))
    return tuple(found)


class Known(NamedTuple):
    """What the histories of its groups say about a job: the feature `values` (of SPECS and ODDS),
    and the `hazards` of its narrowest group."""

    values: tuple[float, ...]
    hazards: tuple[float, ...]


def known(groups: Sequence[Hazard | None], time_limit_s: float | None = None) -> Known:
    """Return the features and hazards that a job has from `groups`, one per level of LEVELS, under
    a time limit."""
    levels = hazards(groups)
    return Known(_values(groups, levels, time_limit_s), tuple(levels[-1]))


def values(groups: Sequence[Hazard | None], time_limit_s: float | None = None) -> tuple[float, ...]:
    """Return the values of the features SPECS and ODDS.

    Args:
        groups: one group per level of LEVELS. None: no job of it was ever seen. ABSENT: the job has
            no such group, which adds nothing.
        time_limit_s: durations beyond it count as this long. The values of SUM add up to the mean
            of ln(1 + seconds) so limited.
    """
    return _values(groups, hazards(groups), time_limit_s)


def beyond(
    hazard: Sequence[float], outlived_log: float, time_limit_s: float | None = None
) -> float:
    """Return the mean of ln(1 + seconds) of the jobs that outlast a moment, by a curve of hazards.

    Args:
        hazard: share of jobs that ends in each stretch of running time, of those that reach it.
            Within a stretch, ends are spread evenly in ln(1 + seconds).
        outlived_log: the moment, as ln(1 + seconds); -inf: the mean of all jobs.
        time_limit_s: durations beyond it count as this long.
    """
    most = log1p(time_limit_s) if time_limit_s and time_limit_s > 0 else inf
    alive, mass, moment = 1.0, 0.0, 0.0
    for share, low, high, middle in zip(hazard, _LOW_LOG, _HIGH_LOG, _MIDDLE_LOG, strict=False):
        ends = alive * share
        alive -= ends
        if outlived_log >= high:
            continue
        if outlived_log > low:
            ends *= (high - outlived_log) / (high - low)
            middle = 0.5 * (outlived_log + high)
        mass += ends
        moment += ends * min(middle, most)
    last = max(_MIDDLE_LOG[-1], outlived_log + log(2.0))  # as long again, of who outlives them all
    mass += alive
    moment += alive * min(last, most)
    return moment / mass if mass > 0 else min(last, most)


def _values(
    groups: Sequence[Hazard | None], levels: list[list[float]], time_limit_s: float | None
) -> tuple[float, ...]:
    means = [_mean_log(level) for level in levels]
    limit = time_limit_s if time_limit_s is not None and time_limit_s > 0 else inf
    narrowest = next(group for group in reversed(groups) if group is not ABSENT)
    logs = _MIDDLE_LOG if limit == inf else [min(log1p(limit), one) for one in _MIDDLE_LOG]
    result = _summary(levels[-1], logs, limit)
    return (
        means[0],
        *(b - a for a, b in pairwise((*means, result.mean_log))),
        result.spread,
        _error(levels[-1], narrowest, logs),
        *(_odds(result.survival[i]) for i in _AT),
    )


class _Summary(NamedTuple):
    """What a curve of hazards gives: mean and standard deviation of ln(1 + seconds), and the
    probability to outlast each edge between stretches."""

    mean_log: float
    spread: float
    survival: list[float]


def _mean_log(hazard: Sequence[float]) -> float:
    """Return the mean of ln(1 + seconds) by a curve of hazards without a time limit. A faster way
    to one figure of `_summary`."""
    alive, mean = 1.0, 0.0
    for share, middle in zip(hazard, _MIDDLE_LOG[:-1], strict=False):
        mass = alive * share
        alive -= mass
        mean += mass * middle
    return mean + alive * _MIDDLE_LOG[-1]


def _summary(hazard: Sequence[float], logs: Sequence[float], limit_s: float) -> _Summary:
    """Return mean and deviation of ln(1 + seconds), and the probability to outlast each edge, by a
    curve of hazards.

    Args:
        hazard: share of jobs that ends in each stretch, of those that reach it.
        logs: the middle of each stretch, ln(1 + seconds), not above the time limit.
        limit_s: the time limit, seconds; infinite if there is none.
    """
    alive, survival = 1.0, []
    mean = square = 0.0
    for share, middle in zip(hazard, logs[:-1], strict=False):
        mass = alive * share
        alive -= mass
        survival.append(alive)
        moment = mass * middle
        mean += moment
        square += moment * middle
    moment = alive * logs[-1]
    mean += moment
    square += moment * logs[-1]
    if limit_s < inf:
        pairs = zip(survival, EDGES_S, strict=True)
        survival = [chance if edge < limit_s else 0.0 for chance, edge in pairs]
    return _Summary(mean, sqrt(max(0.0, square - mean * mean)), survival)


def _error(hazard: Sequence[float], group: Hazard | None, logs: Sequence[float]) -> float:
    """Return the standard error of the mean of ln(1 + seconds), to first order in the share of each
    stretch; `logs` as in `_summary`.

    The variance of a share is that of a beta distribution: of the jobs of `group` that reached the
    stretch, plus `SHRINKAGE` jobs of the wider group.
    """
    reached = group.reached if group is not None else (0.0,) * BINS
    after = logs[-1]  # mean of those that outlive a stretch
    moves = []
    for share, middle in zip(hazard[-2::-1], logs[-2::-1], strict=True):
        moves.append(move := middle - after)
        after += share * move
    moves.reverse()
    variance, alive = 0.0, 1.0
    for share, known, move in zip(hazard, reached, moves, strict=False):
        variance += (alive * move) ** 2 * share * (1.0 - share) / (known + SHRINKAGE + 1.0)
        alive *= 1.0 - share
    return sqrt(variance)


def _odds(chance: float) -> float:
    chance = min(1 - _LEAST, max(_LEAST, chance))
    return log(chance / (1 - chance))


class Lives:
    """The jobs that have not ended, with their groups and, if they run, the stretch of running time
    that each will complete next.

    Every job passes each edge between stretches at most once, so the work per job is O(log(number
    of running jobs)), amortised.
    """

    def __init__(self) -> None:
        self._groups: dict[str, tuple[Hazard, ...]] = {}
        self._bin: dict[str, int] = {}  # the stretch a job is in, of those it is counted in
        self._run: dict[str, int] = {}  # number of the job's present run; absent while it waits
        self._due: list[tuple[float, int, str]] = []
        self._runs = 0
        # how long jobs will have run by their own account, as (last stretch, weight)
        self._stated: dict[str, tuple[int, float]] = {}

    def submit(self, job_id: str, groups: Sequence[Hazard]) -> None:
        self.regroup(job_id, groups)
        self._bin[job_id] = 0

    def regroup(self, job_id: str, groups: Sequence[Hazard]) -> None:
        """Count a waiting job in the groups `groups` from now on, in place of its former ones."""
        stated = self._forget_stated(job_id) if job_id in self._groups else None
        self._groups[job_id] = tuple(group for group in groups if group is not ABSENT)
        if stated is not None:
            self._record_stated(job_id, stated)

    def state(self, job_id: str, total_s: float, weight: float) -> None:
        """Count a running job as lasting `total_s` seconds, the total that it reported, until it
        ends.

        Args:
            weight: weight of that count, 0 to 1.
        """
        self._record_stated(job_id, (bisect_left(EDGES_S, total_s), weight))

    def _record_stated(self, job_id: str, stated: tuple[int, float]) -> None:
        self._stated[job_id] = stated
        for group in self._groups[job_id][1:]:  # of all jobs, one says nothing
            group.sayers[job_id] = None

    def _forget_stated(self, job_id: str) -> tuple[int, float] | None:
        """Forget the duration that a job reported. Return the entry (stretch, weight), or None if
        there was none."""
        for group in self._groups[job_id] if job_id in self._stated else ():
            group.sayers.pop(job_id, None)
        return self._stated.pop(job_id, None)

    def start(self, job_id: str, now: float) -> None:
        self._runs += 1
        self._run[job_id] = self._runs
        self._wait_for(job_id, now)

    def stop(self, job_id: str) -> None:
        """Record that a running job waits again. The stretches that it ran through stay counted,
        and are not counted again when it runs once more."""
        self._run.pop(job_id, None)

    def advance(self, now: float) -> None:
        """Count, in the groups of each running job, every stretch of running time that it completed
        before `now`."""
        due = self._due
        while due and due[0][0] < now:
            at, run, job_id = heapq.heappop(due)
            if self._run.get(job_id) != run:
                continue
            bin = self._bin[job_id]
            start = at - EDGES_S[bin]
            for group in self._groups[job_id]:
                group.add(bin, False)
            self._bin[job_id] = bin + 1
            self._wait_for(job_id, start)

    def as_of(
        self, groups: Sequence[Hazard | None], now: float, but: str = ""
    ) -> Sequence[Hazard | None]:
        """Return the groups as they would be at `now`, with the durations reported by running jobs
        other than `but`. The stored groups do not change.

        The cost grows with the stretches completed since the last event and with the jobs of these
        groups that reported a duration, not with the number of running jobs.
        """
        ahead = self._ahead(now)
        sayers = {j: None for g in groups if g is not None for j in g.sayers if j != but}
        if not ahead and not sayers:
            return groups
        copies = {id(g): g.copy() for g in groups if g is not None and g is not ABSENT}
        for _, _, job_id, bin in ahead:
            for group in self._groups[job_id]:
                copy = copies.get(id(group))
                if copy is not None:
                    copy.add(bin, False)
        for job_id in sayers:
            (final, weight), first = self._stated[job_id], self._bin[job_id]
            for group in self._groups[job_id][1:]:
                copy = copies.get(id(group))
                if copy is not None and final >= first:  # else it has outlived its report
                    for bin in range(first, final):
                        copy.add(bin, False, weight)
                    copy.add(final, True, weight)
        return [copies.get(id(group), group) for group in groups]

    def _ahead(self, now: float) -> list[tuple[float, int, str, int]]:
        """Return (end, number of the run, job id, stretch) of each stretch that a running job
        completed before `now` and that is not counted yet, in the order in which `advance` would
        count them."""
        found: list[tuple[float, int, str, int]] = []
        look = [0]  # what is due lies at the top of the heap
        while look:
            place = look.pop()
            if place >= len(self._due) or self._due[place][0] >= now:
                continue
            look += (2 * place + 1, 2 * place + 2)
            at, run, job_id = self._due[place]
            if self._run.get(job_id) != run:
                continue
            for bin in range(self._bin[job_id], BINS - 1):
                if at >= now:
                    break
                found.append((at, run, job_id, bin))
                if bin + 1 < BINS - 1:
                    at = at - EDGES_S[bin] + EDGES_S[bin + 1]
        return sorted(found)

    def end(self, job_id: str, duration_s: float | None) -> None:
        """Record that a job ended after `duration_s`. If that is None, nothing more is learned than
        the stretches that it ran through."""
        self._forget_stated(job_id)
        groups, bin = self._groups.pop(job_id), self._bin.pop(job_id)
        self._run.pop(job_id, None)
        if duration_s is None:
            return
        # Sharing a GPU, a job may have lived through more than its exclusive duration.
        final = max(bin, bisect_left(EDGES_S, duration_s))
        for group in groups:
            for passed in range(bin, final):
                group.add(passed, False)
            group.add(final, True)

    def _wait_for(self, job_id: str, start: float) -> None:
        bin = self._bin[job_id]
        if bin < BINS - 1:
            heapq.heappush(self._due, (start + EDGES_S[bin], self._run[job_id], job_id))
