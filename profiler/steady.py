"""Finds the steady part of a run, without warm-up, compilation and data loading.

Several signals are cut at once into stretches of constant level by optimal partitioning (Jackson et
al. 2005; the L2 cost of Killick et al. 2012), so that a boundary falls on a sample and not on a
guess. Then:
 1. the core is the last stretch long enough to stand for the run (of a run that ended by itself:
    the longest that is neither its beginning nor its end);
 2. the window reaches back to the first stretch of a level that it holds, so that phases which
    come back (an evaluation after each epoch) belong to it, and what comes only once before it
    does not;
 3. where a signal climbs into the window on a ramp, the window begins at the ramp's end.
A window whose halves disagree is returned as not steady, with the signal that moves.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MAX_POINTS = 1500  # longer recordings are averaged down to this: 0.13 s at T_prof = 200 s
MIN_SECONDS = 5.0  # a shorter window is no evidence of anything steady
MIN_SAMPLES = 20
FLOOR = 0.02  # of a signal's range: changes below it are not a phase
LIKE = 0.05  # of a signal's range: levels closer than this are the same phase come back
DRIFT = 0.15  # halves of a steady window differ by at most this share of the mean,
DRIFT_OF_RANGE = 0.10  # and this share of the signal's whole range
RAMP = 0.9  # a hinge has to leave at most this share of a step's squared error
CORE = 0.10  # of the run: a shorter stretch at its end does not stand for it


@dataclass(frozen=True, slots=True)
class Window:
    """The steady window: the part of a run that its profile is averaged over.

    Attributes:
        start_s, end_s: seconds since the command started.
        samples: number of readings inside.
        steady: whether the window is long enough and its halves agree. If not, `reason` says why,
            and the averages describe no steady state.
        boundaries_s: every change of level found in the run.
    """

    start_s: float
    end_s: float
    samples: int
    steady: bool
    reason: str
    boundaries_s: tuple[float, ...] = ()


def find_window(
    t: npt.ArrayLike,
    signals: Mapping[str, npt.ArrayLike],
    *,
    ended: bool = False,
    min_seconds: float = MIN_SECONDS,
) -> Window:
    """Return the steady window of a recording.

    Args:
        t: time of each reading, seconds, increasing, shape (n,).
        signals: name -> readings, shape (n,); NaN where unknown. Their units do not matter.
        ended: whether the command ended by itself, so that its last readings may show it shutting
            down.
        min_seconds: shortest window that counts as steady.
    """
    times = np.asarray(t, dtype=np.float64)
    if times.size == 0:
        return Window(start_s=0.0, end_s=0.0, samples=0, steady=False, reason="no samples")
    rows, usable = _prepare(times, signals)
    whole = (float(times[0]), float(times[-1]), times.size)
    if not usable:
        return Window(*whole, False, "no signal was recorded")
    if times.size < MIN_SAMPLES or times[-1] - times[0] < min_seconds:
        return Window(*whole, False, f"too short: {times[-1] - times[0]:.1f} s of samples")
    coarse, edges = _thin(rows)
    cuts = change_points(coarse)
    at = np.append(times[edges[:-1]], times[-1])
    first, last = Stretches(coarse, cuts, at).window(ended, min_seconds)
    begin, end = int(edges[first]), int(edges[last])
    begin = _after_ramp(times, rows, begin, end)
    bounds = tuple(round(float(at[c]), 3) for c in cuts)
    span = (float(times[begin]), float(times[end - 1]), end - begin)
    short = span[1] - span[0] < 0.9 * min_seconds or end - begin < MIN_SAMPLES
    # of a run that never stays long, the later half says what moves
    moving = _drift(usable, slice(begin // 2 if short else begin, end))
    if moving:
        return Window(*span, False, f"still changing: {moving}", bounds)
    if short:
        return Window(*span, False, "no stretch of the run was steady for long enough", bounds)
    return Window(*span, True, "levels stay", bounds)


def _prepare(times: Array, signals: Mapping[str, npt.ArrayLike]) -> tuple[Array, dict[str, Array]]:
    """Return two things: an array (n, k) of the varying signals, each divided by its noise late in
    the run; and all signals by name. Gaps are filled by interpolation. Signals with fewer than two
    known values are left out.
    """
    usable: dict[str, Array] = {}
    scaled: list[Array] = []
    for name, values in signals.items():
        y = np.array(values, dtype=np.float64)
        known = np.isfinite(y)
        if known.sum() < 2:
            continue
        y = np.interp(times, times[known], y[known])
        usable[name] = y
        spread = float(np.ptp(y))
        if spread == 0.0:
            continue
        # the last third is the likeliest to be steady; its spread is what counts as noise
        late = y[-max(2, y.size // 3) :]
        noise = max(float(np.std(late)), FLOOR * spread)
        scaled.append((y - y.mean()) / noise)
    if usable and not scaled:
        scaled.append(np.zeros(times.size))
    return (np.column_stack(scaled) if scaled else np.empty((times.size, 0))), usable


def _thin(rows: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return (averages of neighbouring rows, at most MAX_POINTS; edges of the averaged groups, as
    indices of `rows`, one more than groups)."""
    n = rows.shape[0]
    group = -(-n // MAX_POINTS)
    edges = np.append(np.arange(0, n, group), n)
    sums = np.add.reduceat(rows, edges[:-1], axis=0)
    return sums / np.diff(edges)[:, None], edges


def change_points(rows: Array) -> list[int]:
    """Return the boundaries between stretches of constant level of several signals, as indices of
    the rows. The start of the first stretch and the end of the last are left out.

    Minimises the squared error of piecewise constant levels plus 3 k log n for each boundary (k
    signals of unit noise) exactly, by dynamic programming in O(n^2 k) numpy operations. With noise
    that is correlated or periodic it finds more boundaries than there are phases of the run;
    `find_window` ignores the superfluous ones.

    Args:
        rows: the signals, (n, k), with noise of about unit variance.
    """
    n, k = rows.shape
    cost_per_cut = 3.0 * k * np.log(max(n, 2))
    sums = np.vstack([np.zeros(k), np.cumsum(rows, axis=0)])
    squares = np.concatenate([[0.0], np.cumsum((rows * rows).sum(axis=1))])
    best = np.zeros(n + 1)
    best[0] = -cost_per_cut
    previous = np.zeros(n + 1, dtype=np.int64)
    for end in range(1, n + 1):
        lengths = end - np.arange(end)
        level = sums[end] - sums[:end]
        cost = squares[end] - squares[:end] - (level * level).sum(axis=1) / lengths
        total = best[:end] + cost + cost_per_cut
        choice = int(np.argmin(total))
        best[end], previous[end] = total[choice], choice
    cuts: list[int] = []
    end = n
    while previous[end] > 0:
        end = int(previous[end])
        cuts.append(end)
    return cuts[::-1]


class Stretches:
    """The stretches of constant level in a run, and which of them have the same level."""

    def __init__(self, rows: Array, cuts: list[int], at: Array) -> None:
        self.at = at
        self.bounds = list(itertools.pairwise([0, *cuts, rows.shape[0]]))
        levels = np.array([rows[begin:end].mean(axis=0) for begin, end in self.bounds])
        near = np.abs(levels[:, None] - levels[None]) <= LIKE * np.ptp(rows, axis=0) + 1e-12
        self.alike = near.all(axis=2)

    def seconds(self, k: int) -> float:
        begin, end = self.bounds[k]
        return float(self.at[end] - self.at[begin])

    def total(self, k: int) -> float:
        """Return the seconds that the run spent at the level of the stretch `k`, in this stretch or
        others."""
        return sum(self.seconds(int(j)) for j in np.flatnonzero(self.alike[k]))

    def window(self, ended: bool, min_seconds: float) -> tuple[int, int]:
        """Return (start, end) of the steady window, as indices of the rows; `end` is the row after
        the last.

        Args:
            ended: whether the command ended by itself.
            min_seconds: length that the core of the window must have.
        """
        core = self._core(ended, min_seconds)
        first = self._reach_back(core)
        last = len(self.bounds) - 1
        if ended:
            inside = np.arange(first, core + 1)
            last = max(k for k in range(core, last + 1) if self.alike[k, inside].any())
        return self.bounds[first][0], self.bounds[last][1]

    def _core(self, ended: bool, min_seconds: float) -> int:
        count = len(self.bounds)
        enough = max(min_seconds, CORE * float(self.at[-1] - self.at[0]))
        if ended and count > 2:
            middle = [k for k in range(1, count - 1) if self.total(k) >= enough]
            if middle:
                longest = max(self.total(k) for k in middle)
                return max(k for k in middle if self.total(k) >= 0.999 * longest)
        for k in reversed(range(count)):
            if self.total(k) >= enough:
                return k
        return count - 1

    def _reach_back(self, core: int) -> int:
        """Return the index of the first stretch of the window that ends with the stretch `core`. An
        earlier stretch belongs to the window if its level occurs in it.

        A level that lasts less than a tenth of the window in all is ignored: it is a coincidence of
        the warm-up.
        """
        first = core
        while True:
            span = float(self.at[self.bounds[core][1]] - self.at[self.bounds[first][0]])
            earlier = [
                k
                for k in range(first)
                if self.alike[k, first : core + 1].any() and self.total(k) >= CORE * span
            ]
            if not earlier:
                return first
            first = earlier[0]


def _after_ramp(times: Array, rows: Array, begin: int, end: int) -> int:
    """Return the row at which a ramp into the window ends; `begin` if there is none. Only signals
    that a ramp fits better than a step count.

    Where a signal climbs, the cut into constant levels puts the window's start halfway up. So
    around the start, a line up to a bend with a constant after it is fitted for every possible
    bend, and compared with a step.

    Args:
        rows: unaveraged scaled signals, shape (n, k).
        begin, end: first row of the window, and the row after its last.
    """
    reach = min(begin // 2, (end - begin) // 2)
    if reach < 10:
        return begin
    t, y = times[begin - reach : begin + reach] - times[begin], rows[begin - reach : begin + reach]
    step = sum(((part - part.mean(0)) ** 2).sum(0) for part in (y[:reach], y[reach:]))
    places = range(0, reach, max(1, reach // 100))
    left = np.empty((len(places), y.shape[1]))
    for row, place in enumerate(places):
        bend = np.minimum(t - t[reach + place], 0.0)
        slope, scatter = bend - bend.mean(), y - y.mean(0)
        left[row] = (scatter**2).sum(0) - (slope @ scatter) ** 2 / (slope @ slope)
    ramps = left.min(axis=0) < RAMP * np.asarray(step)
    bends = [places[int(np.argmin(left[:, k]))] for k in np.flatnonzero(ramps)]
    return begin + max(bends, default=0)


def _drift(signals: Mapping[str, Array], inside: slice) -> str:
    """Return a text about the first signal whose means over the halves of the window differ by more
    than allowed, and by more than three standard errors: its name and both means. Return "" if
    there is none."""
    for name, y in signals.items():
        part = y[inside]
        half = part.size // 2
        change = abs(part[:half].mean() - part[half:].mean())
        allowed = min(DRIFT * abs(float(part.mean())), DRIFT_OF_RANGE * float(np.ptp(y)))
        spread = [
            np.var([b.mean() for b in np.array_split(h, 5)], ddof=1)
            for h in (part[:half], part[half:])
        ]
        if change > allowed and change > 3 * float(np.sqrt(sum(spread) / 5)):
            return f"{name} went from {part[:half].mean():.4g} to {part[half:].mean():.4g}"
    return ""
