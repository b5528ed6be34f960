"""One survival curve per job. Every question of how long a job lasts is answered from it.

The curve averages two sources. One is the job's own hazards (`features.survival`), which say when
jobs like it end; users' jobs often are either short or long, which one number cannot say. The other
is how earlier predictions of about the same size turned out (`scheduler.core.durations`), which
says how far hazards are to be believed. Hazards have the weight `OWN`. Both are conditioned on the
time that the job has outlived already, so that the source which held this to be likelier weighs
more from then on.

Claims come on top (`features.repeats`): statements that the job ends within certain bounds, because
its last runs agree or its owner expects so. If a claim holds in eight of ten cases, eight tenths of
the probability are moved within its bounds, unless they lie there already. Claims, too, are
conditioned on the time that the job has outlived.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import log1p

from features import portable
from features.repeats import Claim
from features.survival import EDGES_S
from scheduler.core.receipts import LONGEST_S as LONGEST_S
from scheduler.core.receipts import ClaimMoved

# Weight of a job's own hazards. It was chosen by the pinball losses at submission, after 200 s and
# after an hour, on 5-16 September of Venus.
OWN = 0.65
SHARES = len(EDGES_S) + 2  # numbers as which a curve is kept
LIES = 0.02  # share of a curve within a claim from which on it has its shape
SHAPED = 8  # points within a claim from which on it has their shape
_LOGS = (0.0, *map(log1p, EDGES_S), log1p(LONGEST_S))


@dataclass(frozen=True, slots=True)
class Predicted:
    """A predicted duration (seconds), and the hazards that it came from.

    Attributes:
        seconds: the predicted duration.
        ended: shares of similar jobs that have ended by 0 s, by each of `EDGES_S`, and by
            `LONGEST_S`.
        shift: what the other terms of the score add to the logarithm of each duration.
        most_s: the job's time limit, seconds: whatever the hazards say, it has ended by then.
        claims: bounds on the job's duration from its last runs, or from its owner: see
            `features.repeats`.
    """

    seconds: float
    ended: tuple[float, ...] = ()
    shift: float = 0.0
    most_s: float = LONGEST_S
    claims: tuple[Claim, ...] = ()

    @classmethod
    def of(
        cls,
        seconds: float,
        hazards: Sequence[float],
        shift: float = 0.0,
        most_s: float = LONGEST_S,
        claims: tuple[Claim, ...] = (),
    ) -> Predicted:
        """Return a prediction made from a job's hazards: its chances to end within each stretch of
        time between `EDGES_S`.

        The last hazard is ignored: all jobs have ended by `LONGEST_S`.
        """
        left = accumulate((1.0 - share for share in hazards[:-1]), lambda a, b: a * b)
        return cls(
            seconds=seconds,
            ended=(0.0, *(1.0 - alive for alive in left), 1.0),
            shift=shift,
            most_s=most_s,
            claims=claims,
        )

    def moved(self, seconds: float) -> Predicted:
        """Return this distribution moved to another predicted duration: on the scale of ln(1 +
        seconds), all of it is shifted by the difference."""
        shift = self.shift + log1p(seconds) - log1p(self.seconds)
        return replace(self, seconds=seconds, shift=shift)

    def share_ended(self, seconds: float) -> float:
        """Return the share of similar jobs that last at most `seconds`, 0 to 1."""
        if seconds >= self.most_s:
            return 1.0
        at = log1p(seconds) - self.shift
        place = bisect_right(_LOGS, at)
        if place in (0, len(_LOGS)):
            return self.ended[min(place, len(_LOGS) - 1)]
        low, high = _LOGS[place - 1], _LOGS[place]
        before, after = self.ended[place - 1], self.ended[place]
        return before + (after - before) * (at - low) / (high - low)

    def ends_at(self, levels: Sequence[float]) -> list[float]:
        """Return, for each of the ascending shares of jobs, the seconds by which this share has
        ended, interpolated in the logarithm."""
        found, ended, place = list[float](), self.ended, 1
        for level in levels:
            place = min(bisect_left(ended, level, place), len(ended) - 1)
            low, rise = ended[place - 1], ended[place] - ended[place - 1]
            along = (level - low) / rise if rise > 0 else 1.0
            at = _LOGS[place - 1] + (_LOGS[place] - _LOGS[place - 1]) * min(1.0, max(0.0, along))
            found.append(min(portable.expm1(at + self.shift), self.most_s))
        return found


ALONE = 64  # points of the curve by a job's own hazards


@dataclass(frozen=True, slots=True)
class Curve:
    """The distribution of a job's total duration, as equally likely durations (seconds), ascending.

    Attributes:
        above: for each point, the sum of it and all longer ones.
    """

    points: tuple[float, ...]
    above: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[float]) -> Curve:
        """Return the curve made of these equally likely durations, which must be ascending."""
        return cls(tuple(points), tuple(accumulate(reversed(points)))[::-1])

    @classmethod
    def alone(cls, own: Predicted, outlived_s: float = 0.0) -> Curve:
        """Return the curve from a job's own hazards (chances to end, by time) and claims (stated
        bounds on its duration) only, without the experience from earlier predictions.

        It stays the same as long as the prediction does, whichever jobs end meanwhile.
        """
        return _alone(own, outlived_s)

    def chance(self, seconds: float, elapsed_s: float = 0.0) -> float:
        """Return the chance that a job which has outlived `elapsed_s` lasts longer than
        `seconds`.
        """
        first = bisect_right(self.points, elapsed_s) if elapsed_s > 0 else 0
        count = len(self.points) - first
        if not count:  # it outlived them all: as long again in half the cases
            return min(1.0, (1.0 + elapsed_s) / (1.0 + max(seconds, elapsed_s)))
        return (len(self.points) - max(bisect_right(self.points, seconds), first)) / count

    def expected(self, elapsed_s: float = 0.0) -> float:
        """Return the mean total duration, in seconds, of a job that has outlived `elapsed_s`: twice
        as long if it has outlived every point."""
        first = bisect_right(self.points, elapsed_s) if elapsed_s > 0 else 0
        count = len(self.points) - first
        return self.above[first] / count if count else 2.0 * elapsed_s

    def remaining(self, elapsed_s: float) -> float:
        """Return the mean remaining seconds, at least one, of a job that has outlived
        `elapsed_s`."""
        return max(min(self.expected(elapsed_s), max(LONGEST_S, elapsed_s)) - elapsed_s, 1.0)


@lru_cache(maxsize=4096)
def _alone(own: Predicted, outlived_s: float) -> Curve:
    """Return the curve of a job's total duration from its own prediction only (see `Curve.alone`),
    given that it has outlived `outlived_s` seconds. The result is cached, since similar jobs need
    the same one."""
    levels = [(i + 0.5) / ALONE for i in range(ALONE)]
    passed = own.share_ended(outlived_s) if outlived_s > 0 else 0.0
    left = own.ends_at([passed + (1.0 - passed) * level for level in levels])
    found: Sequence[float] = [max(point, outlived_s) for point in left]
    if own.claims:
        found = claimed(
            all_of=own.ends_at(levels),
            left=found,
            share_left=1.0 - passed,
            claims=own.claims,
            elapsed_s=outlived_s,
            most_s=own.most_s,
        )
    return Curve.of([max(point, outlived_s) for point in found])


def averaged(
    own: Predicted, others: Sequence[float], others_left: float, elapsed_s: float, points: int
) -> list[float]:
    """Return equally likely durations, ascending, of a job that has outlived `elapsed_s`. They are
    a mixture of the job's own hazards and of `others`.

    Args:
        own: the prediction with the job's hazards.
        others: equally likely durations from earlier predictions, of jobs that outlive `elapsed_s`.
        others_left: share of the jobs behind earlier predictions that outlives `elapsed_s`.
        points: how many durations to return; `others` is returned as it is where neither source has
            anything left.
    """
    passed = own.share_ended(elapsed_s) if elapsed_s > 0 else 0.0
    n, of_others = shared(passed, others, others_left, points)
    if not n and of_others is others:
        return list(others)
    found = own.ends_at([passed + (1.0 - passed) * (i + 0.5) / n for i in range(n)])
    found += [min(other, own.most_s) for other in of_others]
    return sorted(max(point, elapsed_s) for point in found)


def shared(
    passed: float, others: Sequence[float], others_left: float, points: int
) -> tuple[int, Sequence[float]]:
    """Return how many of `points` durations are to come from the job's own hazards (its chances to
    end, by time), and the other durations, taken evenly from `others`. Return 0 and `others` where
    neither source has anything left.

    Args:
        passed: share of the job's own distribution that it has outlived.
        others, others_left: as in `averaged`.
    """
    of_own, of_others = OWN * (1.0 - passed), (1.0 - OWN) * others_left
    if of_own + of_others <= 0:
        return 0, others
    n = round(points * of_own / (of_own + of_others))
    rest = points - n
    step = len(others) / rest if rest else 0.0
    return n, [others[int((i + 0.5) * step)] for i in range(rest)]


def claimed(
    all_of: Sequence[float],
    left: Sequence[float],
    share_left: float,
    claims: Sequence[Claim],
    elapsed_s: float,
    most_s: float = LONGEST_S,
    moves: list[ClaimMoved] | None = None,
) -> Sequence[float]:
    """Return equally likely durations of a job, ascending, moved until each claim holds in its
    share of the cases.

    The job has outlived `elapsed_s`. Claims are applied one after the other. A claim that the
    distribution already fulfils changes nothing.

    Args:
        all_of: equally likely durations, as of the job's start.
        left: equally likely durations of the jobs that outlive `elapsed_s`.
        share_left: share of all such jobs that outlives `elapsed_s`.
        most_s: no job lasts longer.
        moves: a list to which the effect of each claim on `left` is appended, if it has any.
    """
    for claim in claims:
        low, high = claim.low_s, min(claim.high_s, most_s)
        if elapsed_s >= high or low >= high:
            share_left = _without_claim(all_of, claim, share_left)
            continue
        within, others = _split(all_of, low, high)
        if claim.share * len(all_of) <= len(within):  # it says no more than is believed already
            continue
        n, lies = len(all_of), len(within) / len(all_of)
        shaped = within if len(within) >= SHAPED else _even(low, high, n)
        outside = (1.0 - claim.share) / (1.0 - lies)
        if elapsed_s <= 0:
            points = _of_some(
                some=shaped, weight=claim.share, others=others, rest=1.0 - claim.share, n=n
            )
            if moves is not None:
                moves.append(ClaimMoved(low, high, points, shaped is not within))
            all_of = left = _joined(
                some=shaped, weight=claim.share, others=others, rest=1.0 - claim.share, n=n
            )
            continue
        near, far = _split(left, low, high)
        going = [point for point in shaped if point > elapsed_s]
        inside = claim.share * len(going) / len(shaped)
        even = len(near) < SHAPED or shaped is not within
        if even:
            near = _even(max(low, elapsed_s), high, n)
        beyond = outside * share_left * len(far) / len(left)
        if moves is not None:
            moves.append(
                ClaimMoved(
                    low,
                    high,
                    _of_some(some=near, weight=inside, others=far, rest=beyond, n=n),
                    even,
                )
            )
        all_of = _joined(
            some=shaped, weight=claim.share, others=others, rest=1.0 - claim.share, n=n
        )
        left = _joined(some=near, weight=inside, others=far, rest=beyond, n=n)
        share_left = inside + beyond
    return left


def _without_claim(all_of: Sequence[float], claim: Claim, share_left: float) -> float:
    """Return the share of all jobs that is left after the bounds of a claim (a statement of how
    long a job lasts) have passed. The more of them were expected to end within the bounds already,
    the less the claim takes away."""
    within, _ = _split(all_of, claim.low_s, claim.high_s)
    lies = len(within) / len(all_of)
    return share_left * min(1.0, (1.0 - claim.share) / (1.0 - lies)) if lies < 1.0 else share_left


def _split(points: Sequence[float], low: float, high: float) -> tuple[list[float], list[float]]:
    """Return the points from `low` to `high`, and all other points, each ascending. `points` must
    be ascending."""
    first, last = bisect_left(points, low), bisect_right(points, high)
    return list(points[first:last]), [*points[:first], *points[last:]]


def _even(low: float, high: float, n: int) -> list[float]:
    """Return `n` durations between `low` and `high`, in seconds, evenly spaced in their logarithms,
    ascending."""
    least, most = log1p(low), log1p(high)
    return [portable.expm1(least + (most - least) * (i + 0.5) / n) for i in range(n)]


def _joined(
    some: Sequence[float], weight: float, others: Sequence[float], rest: float, n: int
) -> list[float]:
    """Return `n` equally likely durations, ascending, drawn from a mixture: from `some` with weight
    `weight`, from `others` with weight `rest`."""
    of_some = _of_some(some=some, weight=weight, others=others, rest=rest, n=n)
    if of_some <= 0:
        return _thinned(others, n)
    return sorted(_thinned(some, of_some) + _thinned(others, n - of_some))


def _of_some(
    some: Sequence[float], weight: float, others: Sequence[float], rest: float, n: int
) -> int:
    """Return how many of `n` points come from `some`, in proportion to the two weights. Return all
    of them if `others` is empty, and 0 if `some` is."""
    total = weight + rest
    of_some = round(n * weight / total) if others and total > 0 else n
    return max(0, of_some) if some else 0


def _thinned(points: Sequence[float], n: int) -> list[float]:
    """Return `n` of the points, picked evenly in their order. If `n` is larger than their number,
    some are picked repeatedly."""
    return [points[int((i + 0.5) * len(points) / n)] for i in range(n)]


def moved(
    own: Predicted, claims: Sequence[Claim], value: float, outlived_s: float = 0.0
) -> list[float]:
    """Return, for each claim (a statement of how long the job lasts) in order, the change that it
    makes to a mean of ln(1 + seconds).

    Args:
        own: the predicted distribution without the claims.
        value: the mean of ln(1 + seconds) without the claims.
        outlived_s: seconds that the job has outlived.
    """
    before, found = list[tuple[float, Claim]](), list[float]()
    passed = own.share_ended(outlived_s) if outlived_s > 0 else 0.0
    for claim in claims:
        low, high = max(claim.low_s, outlived_s), min(claim.high_s, own.most_s)
        if high <= low:
            found.append(0.0)
            continue
        first, last = own.share_ended(low), own.share_ended(high)
        lies = (last - first) / (1.0 - passed) if passed < 1.0 else 0.0
        middle = 0.5 * (log1p(low) + log1p(high))
        if lies > LIES:
            levels = [first + (last - first) * (i + 0.5) / SHAPED for i in range(SHAPED)]
            middle = sum(map(log1p, own.ends_at(levels))) / SHAPED
        for weight, other in before:
            lies += weight * (_overlap(other, low, high) - lies)
        weight = _still(claim, low, own.share_ended(outlived_s) if outlived_s > 0 else 0.0)
        weight = max(0.0, (weight - lies) / (1.0 - lies)) if lies < 1.0 else 0.0
        before.append((weight, claim))
        found.append(weight * (middle - value))
        value += found[-1]
    return found


def _still(claim: Claim, low_s: float, passed: float) -> float:
    """Return the probability with which a claim (bounds on a job's duration) still holds for a job
    that has outlived `low_s`. `passed` is the share of all similar jobs that ended before."""
    length = log1p(claim.high_s) - log1p(claim.low_s)
    holds = claim.share * (log1p(claim.high_s) - log1p(low_s)) / length if length > 0 else 0.0
    fails = (1.0 - claim.share) * (1.0 - passed)
    return holds / (holds + fails) if holds + fails > 0 else 0.0


def _overlap(claim: Claim, low: float, high: float) -> float:
    """Return the share, 0 to 1, of a claim (bounds on a job's duration) that lies between the
    durations `low` and `high`, in seconds. The claim is spread evenly in the logarithm."""
    least, most = log1p(claim.low_s), log1p(claim.high_s)
    both = min(most, log1p(high)) - max(least, log1p(low))
    return max(0.0, both) / (most - least) if most > least else 0.0
