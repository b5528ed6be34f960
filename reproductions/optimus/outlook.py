"""Predicts how many epochs a job will still train, and how far that prediction can be trusted.

This is our addition to the published curve: real losses rise and fall, learning rates change in
steps, and some schedules have a fixed end. See `convergence` for the curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from reproductions.optimus.convergence import LEAST, fit_envelope

Floats = NDArray[np.float64]

BLOCKS = 5  # parts of the curve left out in turn, for the interval
TRUSTED = 0.5  # width of the interval over its middle, at most
ASSUMED_EPOCHS = 20.0  # of a job of which nothing is known, as the published code has it


class Source(StrEnum):
    """The source of a predicted number of epochs."""

    SCHEDULE = "schedule"  # the learning-rate schedule ends there
    CURVE = "curve"  # its loss will have converged
    UNKNOWN = "unknown"  # too few points, or a curve that fits anything


@dataclass(frozen=True, slots=True)
class Outlook:
    """The predicted number of epochs that a job has left.

    Attributes:
        epochs: the best guess; an assumption when the source is unknown.
        low, high: the least and greatest prediction when parts of the losses are left out.
        source: what the guess is based on.
    """

    epochs: float
    low: float
    high: float
    source: Source

    @property
    def sure(self) -> bool:
        """Return whether gains may be computed from the prediction. If not, the job is ordered by
        the service that it has received.
        """
        return self.source is not Source.UNKNOWN


def outlook(
    losses: Sequence[float],
    *,
    threshold: float,
    patience: int = 1,
    schedule_epochs: float | None = None,
    rate_changes: Sequence[float] = (),
    warmup: int = 0,
) -> Outlook:
    """Predict the epochs that a job has left, and return the prediction.

    Args:
        losses: losses of the epochs so far, positive.
        threshold: an epoch that improves the loss by less than this share of the largest loss
            counts towards convergence; 0 when the owner does not stop at convergence.
        patience: number of such epochs in a row that end the job.
        schedule_epochs: length of the learning-rate schedule, where it has an end.
        rate_changes: epochs at which the learning rate changed in a step; the curve is fitted from
            the last one on.
        warmup: number of first epochs to leave out.
    """
    done = len(losses)
    steps = np.arange(1.0, done + 1.0)[warmup:]
    values = np.asarray(losses, dtype=np.float64)[warmup:]
    since = max((r for r in rate_changes if r <= done), default=0.0)
    guess = _by_curve(steps, losses=values, since=since, threshold=threshold, patience=patience)
    if schedule_epochs is not None:
        left = max(schedule_epochs - done, 0.0)
        # the schedule says when it ends; a curve that is flat already, that it ends before
        early = guess is not None and guess.high <= done
        return Outlook(0.0 if early else left, 0.0 if early else left, left, Source.SCHEDULE)
    if guess is None:
        return Outlook(ASSUMED_EPOCHS, 0.0, float("inf"), Source.UNKNOWN)
    epochs, low, high = (max(e - done, 0.0) for e in (guess.middle, guess.low, guess.high))
    whole = max(guess.middle - float(steps[0]) + 1, 1.0)
    sure = (guess.high - guess.low) / whole <= TRUSTED
    return Outlook(epochs, low, high, Source.CURVE if sure else Source.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Convergence:
    """The predicted epoch of convergence: by the whole curve (`middle`), and the least and greatest
    by parts of the curve.
    """

    middle: float
    low: float
    high: float


def _by_curve(
    steps: Floats, losses: Floats, since: float, threshold: float, patience: int
) -> _Convergence | None:
    if len(losses) < 2 * LEAST or threshold <= 0:
        return None

    def converges(keep: NDArray[np.bool_]) -> float:
        curve = fit_envelope(steps[keep], losses[keep], since=since)
        return curve.converges_at(threshold, patience=patience)

    everything = np.ones(len(losses), dtype=bool)
    middle = converges(everything)
    ends = [middle]
    for block in np.array_split(np.arange(len(losses)), BLOCKS):
        keep = everything.copy()
        keep[block] = False
        if keep.sum() >= 2 * LEAST:
            ends.append(converges(keep))
    return _Convergence(middle, min(ends), max(ends))
