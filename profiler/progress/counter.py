"""One thing a job counts: when it was where, how often it began again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from profiler.progress.formats import Mark

POINTS = 64  # kept of a cycle; every second goes when there are twice as many
CYCLES = 16  # kept of those that are over
LATE = 8  # lower readings in a row: it was set back, and is no line of a rank that lags

Point = tuple[float, float]  # seconds since the job began, number


@dataclass(slots=True)
class Counter:
    """Readings of one kind of mark.

    Attributes:
        mark: its last one.
        points: (seconds, number) since it last began again, thinned.
        cycles: of each time it went up before: the first point, one half way, the last.
        resets: how often it began again.
        zero: the number 0 was seen, so numbering begins there.
        totals: how many different totals it was given.
    """

    mark: Mark
    points: list[Point] = field(default_factory=list)
    cycles: deque[tuple[Point, Point, Point]] = field(default_factory=lambda: deque(maxlen=CYCLES))
    resets: int = 0
    setbacks: int = 0
    zero: bool = False
    totals: int = 1
    seen_s: float = 0.0
    _every: int = 1
    _skipped: int = 0
    _lower: int = 0

    def add(self, mark: Mark, at: float) -> None:
        """A reading at `at` seconds."""
        if self.mark.of is not None and mark.of is not None and mark.of != self.mark.of:
            self.totals += 1
        if mark.of is None:
            mark = mark._replace(of=self.mark.of)
        self.mark, self.seen_s = mark, at
        self.zero = self.zero or (mark.n == 0 and not mark.based)
        if not self.points:
            self.points.append((at, mark.n))
            return
        last = self.points[-1][1]
        if mark.n >= last:
            self._lower = 0
            if mark.n > last and not self._straggles(mark.n, at):
                self._append(at, mark.n)
        elif mark.n <= 0.5 * last:
            self._begin_again(at, mark.n)
            self.resets += 1
        else:
            self._lower += 1  # another rank lags, or a checkpoint was loaded
            if self._lower >= LATE:
                self._begin_again(at, mark.n)
                self.setbacks += 1

    @property
    def n(self) -> float:
        return self.points[-1][1]

    @property
    def done(self) -> float:
        """Units that are done."""
        return self.done_at(self.n)

    def done_at(self, n: float) -> float:
        """Units done when the number was `n`."""
        if self.mark.unit in ("epoch", "fold") and not self.mark.ends:
            n -= 1.0
        return n + 1.0 if self.zero else n

    def of(self) -> float | None:
        """How many units there are. Counted from 0, the total is mostly the last number."""
        return None if self.mark.of is None else self.mark.of + self.zero

    def _begin_again(self, at: float, n: float) -> None:
        points = self.points
        self.cycles.append((points[0], points[len(points) // 2], points[-1]))
        self.points = [(at, n)]
        self._every, self._skipped, self._lower = 1, 0, 0

    def _straggles(self, n: float, at: float) -> bool:
        """A rank that lags is still at the end of the last cycle."""
        if not self.cycles or len(self.points) > 1:
            return False
        (first_s, _), _, (last_s, top) = self.cycles[-1]
        return n >= 0.9 * top and at - self.points[0][0] < 0.2 * (last_s - first_s)

    def _append(self, at: float, n: float) -> None:
        points = self.points
        if len(points) > 1 and points[-2][0] == at:
            points[-1] = (at, n)  # of the numbers that came at once, the first and the last
            return
        self._skipped += 1
        if self._skipped < self._every and len(points) > 1:
            points[-1] = (at, n)
            return
        self._skipped = 0
        points.append((at, n))
        if len(points) >= 2 * POINTS:
            self.points = [*points[:-1:2], points[-1]]
            self._every *= 2
