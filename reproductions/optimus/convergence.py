"""Predicts how many epochs a job has left from its losses so far (Optimus, EuroSys'18).

The loss of stochastic gradient descent falls like l(k) = 1 / (b0 k + b1) + b2. For a fixed b2, the
inverted curve is linear in b0 and b1, so it is fitted by non-negative least squares for each b2 of
a sweep. `fit` is the curve as published. `fit_envelope` is our variant for real losses, which rise
and fall: it fits the recent half of the running minimum instead of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]

SWEEP = 60  # values of b2 tried
LEAST = 3  # points a curve needs


class TooFewPoints(ValueError):
    """Raised when a curve is to be fitted through fewer than three points."""


@dataclass(frozen=True, slots=True)
class LossCurve:
    """The curve l(k) = scale * (1 / (b0 (k - origin) + b1) + b2).

    Attributes:
        b0, b1, b2: the parameters, none negative.
        scale: the largest loss, by which losses were divided before the fit.
        origin: the epoch or step from which the curve counts.
        residual: root mean square error of the fit, as a share of `scale`.
    """

    b0: float
    b1: float
    b2: float
    scale: float
    origin: float
    residual: float

    def loss(self, k: float | Floats) -> Floats:
        """Return the predicted loss at epoch (or step) k."""
        inverse = self.b0 * (np.asarray(k, dtype=np.float64) - self.origin) + self.b1
        return np.asarray(self.scale * (1.0 / np.maximum(inverse, 1e-12) + self.b2))

    def converges_at(self, threshold: float, *, patience: int = 1) -> float:
        """Return the first epoch (or step) k after which an epoch improves the loss by less than
        `threshold` of `scale`; infinity for a threshold of zero.

        l(k) - l(k+1) is about b0 / (b0 k + b1)^2. `patience` is the number of such epochs in a row
        that must pass.
        """
        if threshold <= 0:
            return float("inf")
        if self.b0 <= 0:
            return self.origin + patience
        u = self.b0 * 0.5 + np.sqrt(self.b0**2 / 4 + self.b0 / threshold)  # b0 (k+1) + b1
        k = (u - self.b1) / self.b0 - 1
        return float(self.origin + max(np.ceil(k), 0) + patience)


def smooth(losses: Floats, *, points: int | None = None) -> tuple[Floats, Floats]:
    """Average losses and remove outliers. Return (steps, losses), as the fit needs them.

    Args:
        losses: losses of steps 1, 2, ..., (n,).
        points: average equal stretches down to at most this many points; None keeps all.

    A point outside the range of its two neighbours by more than their distance is replaced by their
    mean. The step of a stretch is that of its middle.
    """
    values = np.asarray(losses, dtype=np.float64)
    steps = np.arange(1, len(values) + 1, dtype=np.float64)
    if points is not None and len(values) > points:
        cuts = np.linspace(0, len(values), points + 1).astype(int)[:-1]
        sizes = np.diff(np.append(cuts, len(values)))
        steps = np.add.reduceat(steps, cuts) / sizes
        values = np.add.reduceat(values, cuts) / sizes
    if len(values) > 2:
        before, after = values[:-2], values[2:]
        low, high = np.minimum(before, after), np.maximum(before, after)
        slack = high - low
        out = (values[1:-1] < low - slack) | (values[1:-1] > high + slack)
        values = values.copy()
        values[1:-1] = np.where(out, (before + after) / 2, values[1:-1])
    return steps, values


def fit(steps: Floats, losses: Floats) -> LossCurve:
    """Return the curve with the least squared error, all points weighted equally.

    Args:
        steps: epochs or steps, rising, (n,).
        losses: positive, (n,).

    Rows of the linear problem are weighted by (l - b2)^2, which turns the residual of 1/(l - b2)
    into one of the loss, to first order. Raises TooFewPoints for fewer than three points,
    ValueError for losses that are not positive and finite.
    """
    if len(losses) < LEAST:
        raise TooFewPoints(f"a loss curve needs {LEAST} points, has {len(losses)}")
    if not (np.isfinite(losses).all() and (losses > 0).all()):
        raise ValueError("losses must be positive numbers")
    scale, origin = float(losses.max()), float(steps[0])
    k, loss = steps - origin, losses / scale
    best: LossCurve | None = None
    for b2 in np.linspace(0.0, loss.min(), SWEEP, endpoint=False).tolist():
        above = loss - b2
        weight = above**2
        (b0, b1), _ = nnls(np.stack([k * weight, weight], axis=1), above)
        if b1 <= 0:
            continue  # infinite at its first point
        residual = float(np.sqrt(np.mean((1.0 / (b0 * k + b1) - above) ** 2)))
        if best is None or residual < best.residual:
            best = LossCurve(
                b0=float(b0), b1=float(b1), b2=b2, scale=scale, origin=origin, residual=residual
            )
    assert best is not None  # b2 = 0 with b1 > 0 is always feasible for positive losses
    return best


def fit_envelope(steps: Floats, losses: Floats, *, since: float = 0.0) -> LossCurve:
    """Return the curve through the recent half of the losses' running minimum.

    A warm-up, noise, or a step of the learning rate makes losses rise, which breaks the published
    fit. The running minimum never rises, and its recent half shows the present trend.

    Args:
        steps, losses: as for `fit`.
        since: step of the last change of the learning rate. Earlier points are left out as soon as
            there are enough later ones.
    """
    best_so_far = np.minimum.accumulate(losses)
    window = steps >= since
    if window.sum() < LEAST:
        window = np.ones(len(steps), dtype=bool)
    steps, best_so_far = steps[window], best_so_far[window]
    half = min(len(steps) // 2, max(len(steps) - LEAST, 0))
    return fit(steps[half:], best_so_far[half:])
