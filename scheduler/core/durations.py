"""From one predicted duration to a distribution, learned from how earlier predictions turned out.

A prediction of a training job's duration is off by a factor of several, mostly because a few jobs
run a hundred times longer than similar ones. This module keeps the ratios of true to predicted
duration of jobs that have ended, for predictions of about the same size. The distribution of a new
job is its prediction times those ratios (a conformal argument: past and future ratios are
exchangeable as long as the predictor is the same). For a running job, only the ratios that it has
not outlived count. Jobs that still run count as having lasted at least so long (Kaplan-Meier),
since jobs that ended already are the shorter ones. Any estimator can be used, or none; with true
durations, the ratios are all 1.

Policies decide by these distributions, and forecasts sample from them.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from itertools import accumulate, pairwise
from math import ceil, log, log1p, nan
from statistics import NormalDist
from typing import Any

from features import portable
from features.repeats import Claim
from features.survival import EDGES_S as STRETCHES_S
from scheduler.core.curves import (
    LONGEST_S,
    OWN,
    SHARES,
    Curve,
    Predicted,
    averaged,
    claimed,
    shared,
)
from scheduler.core.decisions import Evidence
from scheduler.core.receipts import ClaimMoved, Receipt

# bounds between ranges of predicted duration: a minute, five, twenty, an hour, four, twelve
EDGES_S = (60.0, 300.0, 1200.0, 3600.0, 14_400.0, 43_200.0)
# The chance that a job lasts longer than each of these is recorded: schedules depend on it.
LONG_S = (("over_1h", 3600.0), ("over_6h", 21_600.0), ("over_1d", 86_400.0))
TYPICAL_S = 600.0  # taken for a job that nothing predicts

CLAIMED = 3  # numbers in a claim: lower and upper bound, and how often such claims hold

STATED_POINTS = 200  # points in the distribution of a duration that a job states itself

FINE = 64  # quantiles from which futures are drawn and ends read: more than decisions use
CURVES = 5000  # curves that are kept
EVEN = 256  # quantiles of the ratios, from which curves are made

# Curves, by what each was made of. The ratios are kept too: a key holds only their id, which is
# valid only while they exist.
_CURVES: dict[tuple[Any, ...], tuple[tuple[float, ...], Curve]] = {}

Quantiles = Sequence[float]  # total durations, seconds, at levels (i + 1/2) / n


@dataclass(frozen=True, slots=True)
class Stated:
    """A predicted duration that rests on what the job itself states: its progress, or its command.

    Its distribution follows from its own error, and not from how other predictions turned out.

    Attributes:
        error: standard deviation of ln(true / predicted).
        without_s: the prediction without the job's own statement, seconds. When the job ends, its
            true duration is compared with this prediction.
    """

    seconds: float
    error: float = 0.0
    without_s: float | Predicted = 0.0


Duration = float | Predicted | Stated  # as it is predicted


def seconds_of(predicted: Duration) -> float:
    """Return a predicted duration of any kind as seconds."""
    return predicted.seconds if isinstance(predicted, Predicted | Stated) else predicted


def plain(predicted: Duration) -> tuple[float, ...]:
    """Return the fields of a predicted duration as a flat tuple of numbers; `of_plain` reads
    them."""
    if isinstance(predicted, Stated):
        return predicted.seconds, predicted.error, *plain(predicted.without_s)
    if isinstance(predicted, Predicted):
        claims = [
            number
            for claim in predicted.claims
            for number in (claim.low_s, claim.high_s, claim.share)
        ]
        shape = predicted.shift, predicted.most_s, *predicted.ended
        return predicted.seconds, *shape, *claims
    return (predicted,)


def of_plain(row: Sequence[float]) -> Duration:
    """Return the predicted duration from the numbers that `plain` returned."""
    first = 3 + SHARES  # of the numbers of its claims
    if len(row) > 1 and not (len(row) >= first and (len(row) - first) % CLAIMED == 0):
        return Stated(row[0], row[1], _other(row[2:]))
    return _other(row)


def _other(row: Sequence[float]) -> float | Predicted:
    """Return a predicted duration of any kind other than `Stated`, from the numbers that `plain`
    returned."""
    if len(row) == 1:
        return row[0]
    first = 3 + SHARES
    ends = range(first, len(row), CLAIMED)
    claims = tuple(Claim(row[at], row[at + 1], row[at + 2]) for at in ends)
    return Predicted(
        seconds=row[0], ended=tuple(row[3:first]), shift=row[1], most_s=row[2], claims=claims
    )


@dataclass(slots=True)
class _Ratios:
    """The last `window` values of ln(true / predicted) for predictions of one size, and the
    distribution computed from them and from a prior. The prior counts less as more jobs have ended.
    """

    window: int
    recent: deque[float] = field(default_factory=deque)
    ascending: list[float] = field(default_factory=list)
    stale: int = 0
    grid: tuple[float, ...] = ()  # the distribution at even quantiles, as exp(ratio)
    above: tuple[float, ...] = ()  # sum of the grid from each point on
    even: tuple[float, ...] = ()  # as the grid, finer, by straight lines between what was seen
    fresh: tuple[float, ...] = ()  # `FINE` quantiles of those, of a job that has not run yet
    seen: int = 0  # ended jobs behind them, with what the prior is worth

    def add(self, ratio: float) -> None:
        self.recent.append(ratio)
        insort(self.ascending, ratio)
        if len(self.recent) > self.window:
            del self.ascending[bisect_right(self.ascending, self.recent.popleft()) - 1]
        self.stale += 1


@dataclass(slots=True, kw_only=True)
class RangeMemory:
    """A plain record of what was learned from predictions of about one size.

    Attributes:
        recent: ln(true / predicted) of the last jobs that ended, the oldest first.
        grid, even: coarse and fine quantiles of true / predicted duration, as last computed.
        seen: number of ended jobs (with the prior's worth) behind those quantiles.
        stale: number of jobs that have ended since.
    """

    recent: list[float]
    grid: tuple[float, ...]
    even: tuple[float, ...]
    seen: int
    stale: int


@dataclass(slots=True, kw_only=True)
class DurationMemory:
    """A plain record of what a duration distribution has learned.

    Attributes:
        edges_s: bounds, in seconds, that separate predictions into ranges of about one size.
        ranges: what was learned, for each range.
        going: for each range, the running jobs by id: ln(1 + predicted), time of the start, and
            speed.
    """

    edges_s: tuple[float, ...]
    ranges: list[RangeMemory]
    going: list[dict[str, tuple[float, float, float]]]


_Lasts = Callable[["DurationDistribution", Duration, float], list[float]]


def _kept(lasts: _Lasts) -> _Lasts:
    """Return a method like `lasts` that caches its last result, since the quantiles and the mean of
    a job are computed one after the other."""

    @wraps(lasts)
    def kept(self: DurationDistribution, predicted: Duration, elapsed_s: float) -> list[float]:
        even = self._range(predicted).even
        made_of, of, since_s, found = self._latest
        if made_of is not even or of is not predicted or since_s != elapsed_s:
            found = lasts(self, predicted, elapsed_s)
            self._latest = even, predicted, elapsed_s, found
        return found

    return kept


class DurationDistribution:
    """The distribution of a job's total and remaining duration, given its prediction.

    Args:
        spread: standard deviation of ln(true / predicted) assumed before any job has ended.
        weight: number of ended jobs that this assumption counts as, in each range of predictions.
        window: number of ratios remembered in each range.
        points: number of quantiles by which a distribution is described.
        tail: number of ended jobs that the following assumption counts as, in `quantiles` of
            running jobs: a job that has lasted for t will last for another t in half the cases.
    """

    def __init__(
        self,
        *,
        spread: float = 1.5,
        weight: int = 20,
        window: int = 1000,
        points: int = 40,
        tail: float = 2.0,
    ):
        prior = NormalDist(0.0, spread)
        self._prior = [prior.inv_cdf((i + 0.5) / weight) for i in range(weight)] if weight else []
        self._points = points
        self._tail = tail
        self._ranges = [_Ratios(window) for _ in range(len(EDGES_S) + 1)]
        # by range and job: ln(1 + predicted), began, speed
        self._going: list[dict[str, tuple[float, float, float]]] = [{} for _ in self._ranges]
        self.refreshed = 0  # how often a distribution has changed
        self._latest: tuple[object, Duration, float, list[float]] = (), nan, 0.0, []  # see `_kept`
        for ratios in self._ranges:
            self._refresh(ratios)

    def began(self, job_id: str, predicted_s: Duration, now: float, speed: float = 1.0) -> None:
        """Record that a job with this prediction runs from `now` on, at `speed` times the speed it
        has alone."""
        predicted = seconds_of(unstated(predicted_s))
        self._going[bisect_right(EDGES_S, predicted)][job_id] = log1p(predicted), now, speed

    def over(self, job_id: str) -> None:
        """Record that a job no longer runs, so that its running time no longer counts."""
        for going in self._going:
            going.pop(job_id, None)

    def learn(
        self, predicted_s: Duration | None, duration_s: float, now: float | None = None
    ) -> None:
        """Learn that a job predicted at `predicted_s` (None: not predicted) ran for `duration_s`
        seconds. With `now`, the running jobs recorded by `began` count as lasting longer than their
        time so far."""
        predicted = seconds_of(unstated(TYPICAL_S if predicted_s is None else predicted_s))
        place = bisect_right(EDGES_S, predicted)
        ratios, going = self._ranges[place], self._going[place].values()
        ratios.add(log1p(max(0.0, duration_s)) - log1p(predicted))
        if ratios.stale * 20 > len(ratios.recent):
            self._refresh(
                ratios,
                sorted(log1p(max(0.0, (now - began) * by)) - log for log, began, by in going)
                if now is not None
                else (),
            )

    def remember(self) -> DurationMemory:
        """Return a plain record of all that was learned."""
        ranges = [
            RangeMemory(
                recent=list(one.recent),
                grid=one.grid,
                even=one.even,
                seen=one.seen,
                stale=one.stale,
            )
            for one in self._ranges
        ]
        going = [dict(going) for going in self._going]
        return DurationMemory(edges_s=EDGES_S, ranges=ranges, going=going)

    def restore(self, memory: DurationMemory) -> None:
        """Restore what `remember` returned. Raise ValueError where the record has other ranges of
        predictions."""
        if memory.edges_s != EDGES_S:
            raise ValueError(f"durations are kept apart at {EDGES_S}, not at {memory.edges_s}")
        for ratios, known in zip(self._ranges, memory.ranges, strict=True):
            ratios.recent, ratios.ascending = deque(known.recent), sorted(known.recent)
            if len(known.grid) != self._points or len(known.even) != EVEN:
                self._refresh(ratios)
                continue
            ratios.grid, ratios.even = known.grid, known.even
            ratios.seen, ratios.stale = known.seen, known.stale
            _derive(ratios)
        self._going = [dict(going) for going in memory.going]
        self.refreshed += 1

    def take_over(self, other: DurationDistribution) -> None:
        """Replace what was learned, and the running jobs, by those of `other`; both share them from
        then on."""
        self._ranges, self.refreshed, self._going = other._ranges, other.refreshed, other._going

    def total_s(self, predicted_s: Duration, outlived_s: float = 0.0) -> float:
        """Return the mean total seconds of jobs predicted at `predicted_s` that outlive
        `outlived_s`."""
        return outlived_s + self.expected_s(predicted_s, outlived_s)

    def expected_s(self, predicted_s: Duration, elapsed_s: float = 0.0) -> float:
        """Return the mean remaining seconds, at least one, of a job predicted at `predicted_s` that
        has run for `elapsed_s`."""
        if isinstance(predicted_s, Predicted):
            return self.curve(predicted_s, elapsed_s).remaining(elapsed_s)
        ratios, scale = self._range(predicted_s), 1.0 + seconds_of(predicted_s)
        first = bisect_right(ratios.grid, (1.0 + elapsed_s) / scale)
        count = len(ratios.grid) - first
        if not count:  # it outlived everything seen: expect as long again
            again = predicted_s.error if isinstance(predicted_s, Stated) else 1.0
            return max(again * elapsed_s, 1.0)
        mean = scale * ratios.above[first] / count - 1.0
        return max(min(mean, LONGEST_S) - elapsed_s, 1.0)

    def falls_for_s(self, predicted_s: Duration, elapsed_s: float) -> float:
        """Return for how many seconds from now `expected_s` only decreases as the job runs, unless
        the learned distribution changes. Return 0 for a job that has outlived the whole
        distribution."""
        if isinstance(predicted_s, Predicted):
            points = self.curve(predicted_s, elapsed_s).points
            first = bisect_right(points, elapsed_s)
            stretch = bisect_right(STRETCHES_S, elapsed_s)
            ends = (*points[first : first + 1], *STRETCHES_S[stretch : stretch + 1])
            return min(ends) - elapsed_s if first < len(points) else 0.0
        grid, scale = self._range(predicted_s).grid, 1.0 + seconds_of(predicted_s)
        first = bisect_right(grid, (1.0 + elapsed_s) / scale)
        return scale * grid[first] - 1.0 - elapsed_s if first < len(grid) else 0.0

    def quantile_s(self, predicted_s: Duration, level: float, outlived_s: float = 0.0) -> float:
        """Return the total seconds that a share `level` of the jobs predicted at `predicted_s` do
        not exceed. Only jobs that outlive `outlived_s` count."""
        if isinstance(predicted_s, Predicted):
            points = self.curve(predicted_s, outlived_s).points
            first = bisect_right(points, outlived_s) if outlived_s else 0
            if first == len(points):
                return self.total_s(predicted_s, outlived_s)
            return _at(points[first:] if first else points, level)
        grid, seconds = self._range(predicted_s).grid, seconds_of(predicted_s)
        first = bisect_right(grid, (1.0 + outlived_s) / (1.0 + seconds)) if outlived_s else 0
        if first == len(grid):  # it outlived everything seen: as `expected_s` has it
            return self.total_s(predicted_s, outlived_s)
        return _scaled(seconds, _at(grid[first:] if first else grid, level))

    def quantile_at(self, level: float) -> Callable[[Duration, float], float]:
        """Return a function that computes `quantile_s` at one level, faster for many predictions.
        Its answers are valid until a learned distribution changes."""
        ratios = [_at(one.grid, level) for one in self._ranges]

        def quantile_s(predicted_s: Duration, outlived_s: float = 0.0) -> float:
            if outlived_s or isinstance(predicted_s, Stated | Predicted):
                return self.quantile_s(predicted_s, level, outlived_s)
            return _scaled(predicted_s, ratios[bisect_right(EDGES_S, predicted_s)])

        return quantile_s

    def quantiles(
        self, predicted_s: Duration | None, elapsed_s: float = 0.0, limit_s: float | None = None
    ) -> Quantiles:
        """Return quantiles of the total duration, in seconds, of a job that has run for
        `elapsed_s`. None exceeds `limit_s`.

        A negative `elapsed_s` (the job's start was timed by a clock that is ahead) counts as 0.
        """
        elapsed_s = max(0.0, elapsed_s)
        predicted = TYPICAL_S if predicted_s is None else predicted_s
        found = self._lasts(predicted, elapsed_s)
        longest = max(LONGEST_S, 1.5 * elapsed_s) if limit_s is None else limit_s
        return sorted(max(min(point, longest), elapsed_s) for point in found)

    def curve(self, predicted: Predicted, elapsed_s: float = 0.0) -> Curve:
        """Return the distribution of a job's total duration. It is conditioned on the last of
        `STRETCHES_S` before `elapsed_s`, so that it can be cached; pass `elapsed_s` itself to the
        curve's methods."""
        passed, even = bisect_right(STRETCHES_S, elapsed_s), self._range(predicted).even
        key = (
            id(even),
            predicted.ended,
            predicted.shift,
            predicted.most_s,
            predicted.seconds,
            predicted.claims,
            passed,
        )
        made_of, curve = _CURVES.get(key, ((), None))
        if curve is None or made_of is not even:
            curve = Curve.of(self._lasts(predicted, STRETCHES_S[passed - 1] if passed else 0.0))
            if len(_CURVES) >= CURVES:
                _CURVES.clear()
            _CURVES[key] = even, curve
        return curve

    @_kept
    def _lasts(self, predicted: Duration, elapsed_s: float) -> list[float]:
        """Return equally likely durations, seconds, ascending, of a job that has outlived
        `elapsed_s`."""
        return self._made_of(predicted, elapsed_s)

    def receipt(
        self, predicted_s: Duration | None, elapsed_s: float = 0.0, limit_s: float | None = None
    ) -> Receipt:
        """Return the inputs from which `quantiles`, with the same arguments, are computed."""
        elapsed_s = max(0.0, elapsed_s)
        predicted = TYPICAL_S if predicted_s is None else predicted_s
        longest = max(LONGEST_S, 1.5 * elapsed_s) if limit_s is None else limit_s
        others, outlived = self._by_ratios(predicted, elapsed_s)
        scale = 1.0 + seconds_of(predicted)
        if not (isinstance(predicted, Predicted) and predicted.ended):
            ratios = tuple((1.0 + other) / scale for other in others)
            return Receipt(
                outlived_s=elapsed_s,
                predicted_s=seconds_of(predicted),
                most_s=longest,
                ratios=ratios,
            )
        passed = predicted.share_ended(elapsed_s) if elapsed_s > 0 else 0.0
        n, chosen = shared(passed, others, 1.0 - outlived, FINE)
        moves = list[ClaimMoved]()
        self._made_of(predicted, elapsed_s, moves)
        return Receipt(
            outlived_s=elapsed_s,
            predicted_s=predicted.seconds,
            most_s=longest if chosen is others else min(longest, predicted.most_s),
            ratios=tuple((1.0 + other) / scale for other in chosen),
            own=n,
            ended=predicted.ended,
            shift=predicted.shift,
            claims=tuple(moves),
        )

    def _by_ratios(self, predicted: Duration, elapsed_s: float) -> tuple[list[float], float]:
        """Return equally likely durations, ascending, computed from how earlier predictions turned
        out. Also return the share of all such jobs that do not last longer than `elapsed_s`."""
        ratios, scale, n = self._range(predicted), 1.0 + seconds_of(predicted), FINE
        outlived = _share_below(ratios.even, (1.0 + elapsed_s) / scale) if elapsed_s > 0 else 0.0
        left = ratios.seen * (1.0 - outlived)
        own = round(n * left / (left + self._tail * outlived)) if outlived else n
        levels = (outlived + (1.0 - outlived) * (i + 0.5) / own for i in range(own))
        above = (at_level(ratios.even, level) for level in levels) if outlived else ratios.fresh
        found = [scale * ratio - 1.0 for ratio in above]
        rest = n - own
        found += [(1.0 + elapsed_s) * rest / (rest - i - 0.5) - 1 for i in range(rest)]
        return sorted(max(point, elapsed_s) for point in found), outlived

    def _made_of(
        self, predicted: Duration, elapsed_s: float, moves: list[ClaimMoved] | None = None
    ) -> list[float]:
        """Return equally likely durations, ascending, computed from earlier predictions, the job's
        own hazards (chances to end, by time) and its claims (stated bounds on its duration). The
        effect of each claim is appended to `moves`; see `claimed`."""
        found, outlived = self._by_ratios(predicted, elapsed_s)
        if not (isinstance(predicted, Predicted) and predicted.ended):
            return found
        ratios, scale, n = self._range(predicted), 1.0 + predicted.seconds, FINE
        both = averaged(
            own=predicted, others=found, others_left=1.0 - outlived, elapsed_s=elapsed_s, points=n
        )
        if not predicted.claims:
            return both
        fresh = averaged(
            own=predicted,
            others=[scale * r - 1.0 for r in ratios.fresh],
            others_left=1.0,
            elapsed_s=0.0,
            points=n,
        )
        passed = predicted.share_ended(elapsed_s) if elapsed_s > 0 else 0.0
        share_left = OWN * (1.0 - passed) + (1.0 - OWN) * (1.0 - outlived)
        most_s = predicted.most_s
        ends = claimed(
            all_of=fresh,
            left=both,
            share_left=share_left,
            claims=predicted.claims,
            elapsed_s=elapsed_s,
            most_s=most_s,
            moves=moves,
        )
        return [max(point, elapsed_s) for point in ends]

    def described(self, predicted_s: Duration, outlived_s: float = 0.0) -> Evidence:
        """Return the distribution around a predicted duration as evidence of a decision:
        percentiles and mean in seconds, and the chances of lasting longer than each of `LONG_S`."""
        found = self.quantiles(predicted_s, outlived_s)
        levels = (("p10_s", 0.1), ("p50_s", 0.5), ("p90_s", 0.9))
        spread = tuple((name, at_level(found, level)) for name, level in levels)
        lasts = Curve.of(found)
        odds = tuple((name, lasts.chance(seconds)) for name, seconds in LONG_S)
        return (*spread, ("mean_s", self.total_s(predicted_s, outlived_s)), *odds)

    def alone(self, predicted_s: Duration, outlived_s: float = 0.0) -> Curve | None:
        """Return the distribution of a job's duration if it follows from the job's own prediction
        alone, whichever jobs end. Return None for a prediction without hazards, such as a plain
        number, which has no distribution of its own."""
        if isinstance(predicted_s, Stated):
            return Curve.of(self._lasts(predicted_s, outlived_s))
        if isinstance(predicted_s, Predicted) and predicted_s.ended:
            return Curve.alone(predicted_s, outlived_s)
        return None

    def _range(self, predicted_s: Duration) -> _Ratios:
        if isinstance(predicted_s, Stated):
            return _of_error(round(max(predicted_s.error, 0.01), 2), self._points)
        return self._ranges[bisect_right(EDGES_S, seconds_of(predicted_s))]

    def _believed(self, ratios: _Ratios) -> list[float]:
        """Return the observed values of ln(true / predicted), ascending, with those of the prior,
        until enough jobs have ended."""
        seen = ratios.ascending
        if not ratios.window:
            return seen
        merged = seen if len(seen) > 10 * len(self._prior) else sorted(seen + self._prior)
        return merged or [0.0]

    def _refresh(self, ratios: _Ratios, lasted: Sequence[float] = ()) -> None:
        """Compute the distribution of a set of ratios again. `lasted` are values that running jobs
        have reached."""
        _describe(ratios, self._believed(ratios), self._points, lasted)
        self.refreshed += 1


@lru_cache(maxsize=512)
def _of_error(error: float, points: int) -> _Ratios:
    """Return a fixed set of ratios (true over predicted duration), in which ln(true / predicted)
    has the standard deviation `error`. Nothing is learned from jobs."""
    off = NormalDist(0.0, error)
    found = _Ratios(0)
    found.ascending = [off.inv_cdf((i + 0.5) / STATED_POINTS) for i in range(STATED_POINTS)]
    _describe(found, found.ascending, points)
    return found


def _describe(
    ratios: _Ratios, ascending: Sequence[float], points: int, lasted: Sequence[float] = ()
) -> None:
    left = _left(ascending, lasted)
    levels = _levels(ascending, points, left, lasted)
    ratios.grid = tuple(portable.exp(one, portable.RATIO) for one in levels)
    ratios.even, ratios.seen = _between(ascending, left), len(ascending)
    ratios.stale = 0
    _derive(ratios)


def _derive(ratios: _Ratios) -> None:
    """Compute the fields of a set of ratios that follow from its quantiles: `above` and `fresh`."""
    ratios.above = tuple(accumulate(reversed(ratios.grid)))[::-1]
    ratios.fresh = tuple(at_level(ratios.even, (i + 0.5) / FINE) for i in range(FINE))


def _left(ended: Sequence[float], lasted: Sequence[float]) -> list[float]:
    """Return, for each of the ascending ends, the share of jobs that lasts longer (Kaplan-Meier).

    Args:
        ended: ascending values at which jobs ended.
        lasted: ascending values that still running jobs have reached.
    """
    n, before, left, found = len(ended), 0, 1.0, list[float]()
    for i, at in enumerate(ended):
        while before < len(lasted) and lasted[before] < at:
            before += 1
        left *= 1.0 - 1.0 / (n - i + len(lasted) - before)
        found.append(left)
    return found


def _levels(
    ended: Sequence[float], points: int, left: Sequence[float], lasted: Sequence[float]
) -> list[float]:
    """Return `points` evenly spaced quantiles of a distribution. `left` is the share of jobs that
    lasts beyond each of `ended`. Quantiles beyond the last end get the largest value."""
    found = list[float]()
    for at, share in zip(ended, left, strict=True):
        while len(found) < points and 1.0 - share > (len(found) + 0.5) / points + 1e-12:
            found.append(at)
    return found + [max((*ended[-1:], *lasted[-1:]))] * (points - len(found))


def _between(ended: Sequence[float], left: Sequence[float]) -> tuple[float, ...]:
    """Return `EVEN` evenly spaced quantiles as ratios of true to predicted duration, interpolated
    by straight lines between the middles of the steps. Where some jobs last beyond the last end, a
    job that has lasted for t is taken to last for another t in half the cases."""
    levels = [1.0 - 0.5 * (before + after) for before, after in pairwise((1.0, *left))]
    goes_on = 1.0 - levels[-1] if left[-1] > 0 else 0.0

    def at(level: float) -> float:
        beyond = log(goes_on / (1.0 - level)) if goes_on > 1.0 - level else 0.0
        return portable.exp(_straight(levels, ended, level) + beyond, portable.RATIO)

    return tuple(at((i + 0.5) / EVEN) for i in range(EVEN))


def _straight(levels: Sequence[float], values: Sequence[float], level: float) -> float:
    """Return the value at `level`, interpolated by straight lines between the ascending `levels`
    and their `values`. Beyond the ends, return the first or the last value."""
    place = bisect_right(levels, level)
    if place in (0, len(levels)):
        return values[min(place, len(levels) - 1)]
    low, high = levels[place - 1], levels[place]
    rise = (values[place] - values[place - 1]) / (high - low)
    return values[place - 1] + rise * (level - low)


def _share_below(even: Sequence[float], value: float) -> float:
    """Return the share, 0 to 1, of a distribution that lies below `value`, interpolated by straight
    lines between its evenly spaced quantiles."""
    place = bisect_right(even, value)
    if place in (0, len(even)):
        return place / len(even)
    low, high = even[place - 1], even[place]
    return (place - 0.5 + (value - low) / (high - low)) / len(even)


def unstated(predicted_s: Duration) -> float | Predicted:
    """Return the prediction without the job's own statement (its progress or command)."""
    return predicted_s.without_s if isinstance(predicted_s, Stated) else predicted_s


def at_level(quantiles: Quantiles, level: float) -> float:
    """Return the quantile at a level between 0 and 1, interpolated linearly. Beyond the first and
    last, it is constant."""
    place = level * len(quantiles) - 0.5
    low = int(place) if place > 0 else 0
    if low >= len(quantiles) - 1:
        return quantiles[-1]
    share = max(0.0, place - low)
    return quantiles[low] * (1.0 - share) + quantiles[low + 1] * share


def _at(grid: Sequence[float], level: float) -> float:
    """Return the smallest value of an ascending grid that a share `level` of the grid does not
    exceed."""
    return grid[min(ceil(level * len(grid)), len(grid)) - 1]


def _scaled(predicted_s: float, ratio: float) -> float:
    return max((1.0 + predicted_s) * ratio - 1.0, 0.0)
