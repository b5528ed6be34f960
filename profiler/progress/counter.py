"""One thing that a job counts: which number it printed when, and how often it began again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from profiler.progress.formats import Mark

POINTS = 64  # kept of a cycle; every second goes when there are twice as many
CYCLES = 16  # kept of those that are over
SPANS = 8  # units of which it is known when their number came first, and last
SOON = 0.6  # of a unit: the number of the first did not come at its end
AGAIN_S = 5.0  # after which a bar that is done is another one
LATE = 8  # lower readings in a row: it was set back, and is no line of a rank that lags

Point = tuple[float, float]  # seconds since the job began, number


@dataclass(slots=True)
class Counter:
    """Readings of one kind of number that a job prints.

    Attributes:
        mark: the last mark that was read.
        points: (seconds, number) since it last began again, thinned.
        cycles: of each time it went up before: the first point, one half way, the last.
        resets: how often the number began again from the start.
        zero: the number 0 was seen, so numbering begins there.
        totals: one more than how often the total that it was given changed.
        seen_s: when it was read last.
    """

    mark: Mark
    points: list[Point] = field(default_factory=list)
    cycles: deque[tuple[Point, Point, Point]] = field(default_factory=lambda: deque(maxlen=CYCLES))
    resets: int = 0
    setbacks: int = 0
    zero: bool = False
    totals: int = 1
    seen_s: float = 0.0
    step: float = inf  # least difference of two numbers
    _first_s: float = 0.0  # when the present number came first
    _spans: deque[float] = field(default_factory=lambda: deque(maxlen=SPANS))
    _every: int = 1
    _skipped: int = 0
    _lower: int = 0

    def add(self, mark: Mark, at: float) -> None:
        """Add a reading, made at `at` seconds."""
        if self.mark.of is not None and mark.of is not None and mark.of != self.mark.of:
            self.totals += 1
        if mark.of is None:
            mark = mark._replace(of=self.mark.of)
        before_s, self.seen_s = self.seen_s, at
        self.mark = mark
        begins = not mark.based or (mark.unit == "epoch" and not mark.exact)
        self.zero = self.zero or (mark.n == 0 and begins)  # whatever its format says
        if not self.points:
            self.points.append((at, mark.n))
            self._first_s = at
            return
        last = self.points[-1][1]
        bar = mark.format == "tqdm" and (mark.unit == "step" or mark.exact)
        if bar and mark.n == last == mark.of and at > before_s + AGAIN_S:
            self.resets += 1  # a bar so short that only its end is printed
        if mark.n >= last:
            self._lower = 0
            if mark.n > last and not self._straggles(mark.n, at):
                self.step = min(self.step, mark.n - last)
                if at > self._first_s:
                    self._spans.append((before_s - self._first_s) / (at - self._first_s))
                self._first_s = at
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
        """Return how many units are done."""
        return self.done_at(self.n)

    def done_at(self, n: float) -> float:
        """Return how many units (steps, epochs, folds) were complete when `n` was first printed.

        Numbering from 0 adds one. An epoch or fold loses the share of it still to run (`within`).
        """
        if self.mark.unit in ("epoch", "fold"):
            n -= self.within()
        return n + 1.0 if self.zero else n

    def within(self) -> float:
        """Return the share of a unit that is still to be done when its number is first printed. It
        is 1 if the number is printed at the unit's beginning, 0 if printed at its end, and in
        between if printed repeatedly.
        """
        if not self.mark.ends:
            return 1.0
        if self.mark.exact or not self._spans:
            return 0.0
        (first_s, first), (last_s, last) = self.points[0], self.points[-1]
        counted = 1.0 - self.zero
        if (
            not self.cycles
            and first == counted
            and first_s < SOON * (last_s - first_s) / (last - first or inf)
        ):
            return 1.0  # it came too soon for the end of the first
        return sum(self._spans) / len(self._spans)

    def closed(self) -> bool:
        """Return whether it is known if a number is printed at the beginning, in the middle or at
        the end of its unit.
        """
        return not self.mark.ends or self.mark.sure or self.mark.exact or bool(self._spans)

    def of(self) -> float | None:
        """Return how many units there are, or None. Where counting starts at 0, the total is mostly
        the last number. Where no total is printed and counting began again, it is the highest
        number reached.
        """
        if self.mark.of is not None:
            return self.mark.of + self.zero
        if self.mark.unit == "step" and self.cycles:
            top = max(last for _, _, (_, last) in self.cycles)
            return top + self.step if self.zero else top
        return None

    def at(self, when: float) -> float:
        """Return the number at a moment, interpolated between two readings; before the first and
        after the last reading it is theirs."""
        (before_s, before), *_ = self.points
        for at, n in self.points:
            if at > when:
                return before + (n - before) * max(0.0, when - before_s) / (at - before_s or 1.0)
            before_s, before = at, n
        return before

    def _begin_again(self, at: float, n: float) -> None:
        points = self.points
        self.cycles.append((points[0], points[len(points) // 2], points[-1]))
        self.points = [(at, n)]
        self._first_s = at
        self._every, self._skipped, self._lower = 1, 0, 0

    def _straggles(self, n: float, at: float) -> bool:
        """Return whether a number is that of a lagging rank: still near the end of the last
        cycle, just after a new one began.
        """
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
