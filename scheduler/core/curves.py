"""One survival curve per job: what everything that asks how long a job lasts reads.

It is made of two. The job's own hazards (`features.survival`) say which of its like end where:
users are bimodal, and one number cannot say it. How earlier predictions of about that size turned
out (`scheduler.core.durations`) says how far hazards are to be believed. Their chances are
averaged, `OWN` of the first, and both are conditioned on what the job has outlived: whichever of
the two held that to be likelier weighs more from then on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import expm1, log1p

from features.survival import EDGES_S

# Weight of a job's own hazards. Of pinball losses at submission, after 200 s and after an hour it
# was chosen on 5-16 September of Venus.
OWN = 0.65
LONGEST_S = 1_209_600.0  # nothing is expected to run longer than two weeks
SHARES = len(EDGES_S) + 2  # that a curve is kept as
_LOGS = (0.0, *map(log1p, EDGES_S), log1p(LONGEST_S))


class Predicted(float):
    """A predicted duration (seconds), and the hazards of the job behind it.

    Attributes:
        ended: share of jobs like it that have ended by 0 s, by each of `EDGES_S`, and by
            `LONGEST_S`.
        shift: what other terms of the score add to the logarithm of each duration.
        most_s: its time limit, seconds: whatever the hazards say, it has ended by then.
    """

    __slots__ = ("ended", "most_s", "shift")
    ended: tuple[float, ...]
    shift: float
    most_s: float

    def __new__(
        cls,
        seconds: float,
        ended: tuple[float, ...] = (),
        shift: float = 0.0,
        most_s: float = LONGEST_S,
    ) -> Predicted:
        made = super().__new__(cls, seconds)
        made.ended, made.shift, made.most_s = ended, shift, most_s
        return made

    @classmethod
    def of(
        cls,
        seconds: float,
        hazards: Sequence[float],
        shift: float = 0.0,
        most_s: float = LONGEST_S,
    ) -> Predicted:
        """Return a prediction made of a job's hazards, one for each stretch.

        The last is ignored: all have ended by `LONGEST_S`.
        """
        left = accumulate((1.0 - share for share in hazards[:-1]), lambda a, b: a * b)
        return cls(seconds, (0.0, *(1.0 - alive for alive in left), 1.0), shift, most_s)

    def moved(self, seconds: float) -> Predicted:
        """Return the same curve for another prediction, each duration moved as it is."""
        shift = self.shift + log1p(seconds) - log1p(self)
        return Predicted(seconds, self.ended, shift, self.most_s)

    def share_ended(self, seconds: float) -> float:
        """Return the share of jobs like it that have ended by then."""
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
        """Seconds by which each share, ascending, has ended; straight lines in the logarithm."""
        found, ended, place = list[float](), self.ended, 1
        for level in levels:
            place = min(bisect_left(ended, level, place), len(ended) - 1)
            low, rise = ended[place - 1], ended[place] - ended[place - 1]
            along = (level - low) / rise if rise > 0 else 1.0
            at = _LOGS[place - 1] + (_LOGS[place] - _LOGS[place - 1]) * min(1.0, max(0.0, along))
            found.append(min(max(expm1(at + self.shift), 0.0), self.most_s))
        return found


@dataclass(frozen=True, slots=True)
class Curve:
    """How long a job lasts in all: equally likely durations, seconds, ascending.

    Attributes:
        above: their sums from each on.
    """

    points: tuple[float, ...]
    above: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[float]) -> Curve:
        """Of equally likely durations, ascending."""
        return cls(tuple(points), tuple(accumulate(reversed(points)))[::-1])

    def chance(self, seconds: float, elapsed_s: float = 0.0) -> float:
        """Chance to last longer, of who has outlived `elapsed_s`."""
        first = bisect_right(self.points, elapsed_s) if elapsed_s > 0 else 0
        count = len(self.points) - first
        if not count:  # it outlived them all: as long again in half the cases
            return min(1.0, (1.0 + elapsed_s) / (1.0 + max(seconds, elapsed_s)))
        return (len(self.points) - max(bisect_right(self.points, seconds), first)) / count

    def expected(self, elapsed_s: float = 0.0) -> float:
        """Mean seconds in all, of who has outlived `elapsed_s`."""
        first = bisect_right(self.points, elapsed_s) if elapsed_s > 0 else 0
        count = len(self.points) - first
        return self.above[first] / count if count else 2.0 * elapsed_s

    def remaining(self, elapsed_s: float) -> float:
        """Mean seconds left, of who has outlived `elapsed_s`; a second at least."""
        return max(min(self.expected(elapsed_s), max(LONGEST_S, elapsed_s)) - elapsed_s, 1.0)


def averaged(
    own: Predicted, others: Sequence[float], others_left: float, elapsed_s: float, points: int
) -> list[float]:
    """Equally likely durations of a job that has outlived `elapsed_s`, ascending.

    Args:
        own: its hazards.
        others: those by how predictions turned out, of who has outlived as much.
        others_left: the share of them that does.
    """
    passed = own.share_ended(elapsed_s) if elapsed_s > 0 else 0.0
    of_own, of_others = OWN * (1.0 - passed), (1.0 - OWN) * others_left
    if of_own + of_others <= 0:
        return list(others)
    n = round(points * of_own / (of_own + of_others))
    found = own.ends_at([passed + (1.0 - passed) * (i + 0.5) / n for i in range(n)])
    rest = points - n
    step = len(others) / rest if rest else 0.0
    found += [min(others[int((i + 0.5) * step)], own.most_s) for i in range(rest)]
    return sorted(max(point, elapsed_s) for point in found)
