"""Estimates the time of a training step from outside: the period with which utilisation, power or
memory repeats.

For every signal and every uninterrupted stretch of samples:
 1. resample evenly, subtract slow drift (a moving mean), clip outliers;
 2. autocorrelate; a lag P is a candidate where the correlation peaks at P *and* 2P and 3P and is
    low halfway between (the comb), so that one chance peak is not enough;
 3. take the shortest candidate that is about as good as the best one, because each multiple of a
    period is a period, too;
 4. sharpen P on its highest resolvable multiple.

The candidates of all stretches and signals are then compared. Confidence is high only if the comb
is clearly stronger than in noise of the same spectrum, and the candidates agree. Periods that a
signal cannot show are not reported: those under three readings, or two updates of the source
(drivers repeat a value until they have a new one), and those with fewer than four repetitions.

The result is the shortest strong cycle. A run that accumulates gradients, or computes a validation
every few steps, may show that cycle rather than one optimiser step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MIN_POINTS = 48
MIN_CYCLES = 4
READINGS_PER_PERIOD = 3.0
UPDATES_PER_PERIOD = 1.9
SAME = 0.05  # periods closer than this are one
CONFIDENT = 0.5  # at or above it the estimate may be used
ALONE = 0.4  # the most that a single stretch is trusted
WEAK = 0.05  # votes below it are noise
PACED = 1.8  # readings repeated more than this many times: the source has its own clock


@dataclass(frozen=True, slots=True)
class Stretch:
    """Samples of one signal without a gap: `t` are seconds and `y` values, both (n,)."""

    name: str
    t: Array
    y: Array


@dataclass(frozen=True, slots=True)
class Candidate:
    """The period found in one stretch of one signal. `strength` is 0 to 1; `paced` says that the
    signal's source updates at an even pace of its own."""

    name: str
    period_s: float
    strength: float  # 0 (noise) to 1
    paced: bool = False  # the source repeats readings until its own clock ticks


@dataclass(frozen=True, slots=True)
class StepTime:
    """The estimated step time.

    Attributes:
        seconds: step time; None when nothing periodic was found.
        confidence: 0 to 1; below 0.5 the figure is a guess.
        signal: name of the signal that showed the period best.
        shortest_s, longest_s: the shortest and the longest period, seconds, that the samples could
            show.
        reason: why this figure or none is given, in one line for the user.
    """

    seconds: float | None
    confidence: float
    signal: str
    shortest_s: float
    longest_s: float
    reason: str


def pace(t: Array, y: Array) -> tuple[float, float]:
    """Return (seconds between our readings, seconds between the source's own updates) of a signal.

    A driver repeats a value until it has a new one. The time between updates is taken from the
    shortest runs of equal readings (the tenth percentile). If those are single readings, the source
    updates at least as often as we read. The time is infinite if the signal changed less than
    twice.
    """
    ours = float(np.median(np.diff(t)))
    changes = np.flatnonzero(np.diff(y))
    if changes.size < 2:
        return ours, float("inf")
    held = float(np.percentile(np.diff(t[changes]), 10))
    return ours, max(ours, held)


def estimate(stretches: Iterable[Stretch]) -> StepTime:
    """Return the step time estimated from stretches of signals inside the steady window."""
    votes: list[Candidate] = []
    shortest, longest, seen = np.inf, 0.0, 0
    for stretch in stretches:
        known = np.isfinite(stretch.y)
        t, y = stretch.t[known], stretch.y[known]
        if t.size < MIN_POINTS:
            continue
        low, high = bounds(t, y)
        if not low < high:
            continue
        seen += 1
        shortest, longest = min(shortest, low), max(longest, high)
        vote = strongest(stretch.name, t, y, low, high=high)
        if vote is not None:
            ours, source = pace(t, y)
            votes.append(replace(vote, paced=source > PACED * ours))
    if not seen:
        return StepTime(
            seconds=None,
            confidence=0.0,
            signal="",
            shortest_s=0.0,
            longest_s=0.0,
            reason="no signal moves often enough to show a step",
        )
    return _vote(votes, float(shortest), float(longest))


def bounds(t: Array, y: Array) -> tuple[float, float]:
    """Return the shortest and the longest period, seconds, that these samples (times `t`, values
    `y`) can show."""
    ours, source = pace(t, y)
    shortest = max(READINGS_PER_PERIOD * ours, UPDATES_PER_PERIOD * source)
    return shortest, float(t[-1] - t[0]) / MIN_CYCLES


def strongest(name: str, t: Array, y: Array, low: float, high: float) -> Candidate | None:
    """Return the most strongly repeating period of one stretch between `low` and `high` seconds, or
    None when there is none."""
    spacing = float(np.median(np.diff(t)))
    grid = np.arange(t[0], t[-1], spacing)
    even = _flatten(np.interp(grid, t, y), round(high / spacing))
    if not np.any(even):
        return None
    correlation = autocorrelation(even, round(3.6 * high / spacing))
    first, last = max(2, int(low / spacing)), int(high / spacing)
    peaks = [
        k
        for k in range(first, min(last, correlation.size - 2) + 1)
        if correlation[k] > 0 and correlation[k - 1] < correlation[k] >= correlation[k + 1]
    ]
    if not peaks:
        return None
    scored = [(_comb(correlation, _summit(correlation, k)), k) for k in peaks]
    top = max(scored)[0]
    if top <= 0:
        return None
    lag = min(k for score, k in scored if score >= 0.8 * top)
    score = next(s for s, k in scored if k == lag)
    refined = _sharpen(correlation, _summit(correlation, lag))
    noise = _noise_level(even)
    strength = float(np.clip((score - noise) / (1.0 - noise), 0.0, 1.0))
    return Candidate(name, refined * spacing, strength)


def _flatten(y: Array, longest: int) -> Array:
    """Return the signal with slow changes (longer than `longest` samples) removed, outliers
    clipped, and unit variance. Return zeros if it is constant."""
    width = max(5, min(y.size, 2 * longest) | 1)
    kernel = np.ones(width) / width
    padded = np.pad(y, width // 2, mode="reflect") if width // 2 < y.size else y
    drift = (
        np.convolve(padded, kernel, mode="valid")[: y.size] if padded.size > y.size else y.mean()
    )
    flat = y - drift
    low, high = np.percentile(flat, [1, 99])
    flat = np.clip(flat, low, high)
    flat -= flat.mean()
    spread = float(flat.std())
    return flat / spread if spread > 1e-9 * max(1.0, float(np.abs(y).max())) else np.zeros_like(y)


def autocorrelation(y: Array, lags: int) -> Array:
    """Return the unbiased autocorrelation at lags 0 to `lags`, by FFT; it is 1 at lag 0."""
    n = y.size
    lags = min(lags, n - 2)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(y, size)
    raw = np.fft.irfft(spectrum * np.conj(spectrum), size)[: lags + 1]
    found: Array = raw / (n - np.arange(lags + 1))
    found /= found[0]
    return found


def _at(correlation: Array, lag: float) -> float:
    place = min(max(lag, 0.0), correlation.size - 1.0)
    low = int(place)
    high = min(low + 1, correlation.size - 1)
    return float(correlation[low] + (place - low) * (correlation[high] - correlation[low]))


def _summit(correlation: Array, k: int) -> float:
    """Return the position of the peak at lag `k` of a correlation, refined to a fraction of a lag:
    the top of the parabola through the peak and its neighbours."""
    left, mid, right = correlation[k - 1], correlation[k], correlation[k + 1]
    bend = left - 2 * mid + right
    return k + float(0.5 * (left - right) / bend) if bend < 0 else float(k)


def _comb(correlation: Array, lag: float) -> float:
    """Return how clearly a lag is a period: half of (mean correlation at its first three multiples,
    less that halfway between them). Near 1 for a clear period, near 0 for none."""
    multiples = [m for m in (1, 2, 3) if m * lag < correlation.size - 1]
    teeth = np.mean([_near(correlation, m * lag) for m in multiples])
    gaps = np.mean([_at(correlation, (m - 0.5) * lag) for m in multiples])
    return float(teeth - gaps) / 2


def _near(correlation: Array, lag: float) -> float:
    """Return the highest correlation within 4 % of a lag. Training steps vary that much."""
    reach = max(1, int(0.04 * lag))
    middle = round(lag)
    part = correlation[max(1, middle - reach) : middle + reach + 1]
    return float(part.max()) if part.size else 0.0


def _sharpen(correlation: Array, lag: float) -> float:
    """Return a more exact value of the period whose first guess is `lag`, in samples. It is
    measured over as many repetitions as can be followed from peak to peak."""
    found = lag
    height = _near(correlation, lag)
    for multiple in range(2, 40):
        middle = multiple * found
        reach = max(1, int(min(0.25 * found, 0.04 * middle + 1)))
        low, high = round(middle) - reach, round(middle) + reach
        if high >= correlation.size - 1:
            break
        k = low + int(np.argmax(correlation[low : high + 1]))
        if k in (low, high) or correlation[k] < 0.5 * height:
            break
        found = _summit(correlation, k) / multiple
    return found


def _noise_level(y: Array) -> float:
    """Return the highest `_comb` score that pure noise with this signal's correlation time would
    reach by chance."""
    short = autocorrelation(y, min(y.size - 2, 200))
    first_negative = int(np.argmax(short <= 0)) or short.size
    memory = 1.0 + 2.0 * float((short[1:first_negative] ** 2).sum())
    return float(min(0.9, 3.0 * np.sqrt(memory / y.size) / np.sqrt(3)))


def _vote(votes: list[Candidate], shortest: float, longest: float) -> StepTime:
    """Return the step time on which the candidates agree, within each signal first, then among
    signals. `seconds` is None if no period is stronger than noise.

    Stretches that find the same period raise the confidence (1 - product of doubts). Stretches of
    the same signal that find another period lower it. One stretch alone, however clear, stays below
    CONFIDENT: a chance period does not come back, steps do. So does one signal alone whose source
    updates at an even pace of its own, since a period caused by sampling would come back, too.
    """
    strong = [vote for vote in votes if vote.strength > WEAK]
    if not strong:
        return StepTime(
            seconds=None,
            confidence=0.0,
            signal="",
            shortest_s=shortest,
            longest_s=longest,
            reason="no period stands out of the noise",
        )
    best: tuple[float, list[Candidate]] = (-1.0, [])
    for centre in strong:
        group = [v for v in strong if abs(v.period_s / centre.period_s - 1) <= SAME]
        names = {v.name for v in group}
        doubt = float(np.prod([1.0 - v.strength for v in group]))
        voices = [v.strength for v in strong if v.name in names]
        share = sum(v.strength for v in group) / sum(voices)
        sure = (1.0 - doubt) * share
        # a source with its own even clock shows fast steps as slow aliases, again and again alike
        alias = len(names) == 1 and all(v.paced for v in group)
        if len(group) == 1 or alias:
            sure = min(sure, ALONE)
        best = max(best, (sure, group), key=lambda pair: pair[0])
    confidence, group = best
    # a rhythm of another signal that is as sure of itself is a reason for doubt
    rivals = [
        v.strength for v in strong if v not in group and v.name not in {g.name for g in group}
    ]
    confidence *= 1.0 - 0.5 * max(rivals, default=0.0)
    weight = sum(v.strength for v in group)
    seconds = sum(v.period_s * v.strength for v in group) / weight
    leader = max(group, key=lambda v: v.strength)
    reason = f"{len(group)} of {len(strong)} stretches agree"
    return StepTime(
        seconds=seconds,
        confidence=round(confidence, 4),
        signal=leader.name,
        shortest_s=shortest,
        longest_s=longest,
        reason=reason,
    )
