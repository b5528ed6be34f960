"""Compares two policies on the same draws (runs of both with the same seed, and so with the
same jobs): how often one is ahead, by how much, and whether it may be chance.

All intervals of the report are computed here, from the logarithm of the ratio of two figures of the
same draw, so that both bounds make sense even for ratios far from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from pipeline.student import bound
from pipeline.tables import Floats
from scheduler.core.plural import count
from scheduler.explain.words import percent

SURE = 5  # draws from which on there is a verdict
CHANCE = 0.95
SAME = 5e-4  # ratios closer to one are the same on a draw
AHEAD, BEHIND, LEVEL, OPEN = "ahead", "behind", "level", ""


@dataclass(frozen=True)
class Paired:
    """A figure of one policy compared with another's, draw by draw.

    Attributes:
        ratios: figure of our policy / figure of the other, (draws,).
        better: -1 if a lower figure is better, +1 if a higher one is.
        ratio: geometric mean of the ratios. low, high: its 95 % interval; None with a single draw.
        verdict: ahead or behind if the interval does not contain 1, level if it does. It is empty
            with fewer draws than `SURE`, or while more are running.
    """

    ratios: Floats
    better: int
    ratio: float
    low: float | None
    high: float | None
    verdict: str

    @property
    def ahead(self) -> int:
        """Return the number of draws in which our policy is better."""
        return int((self.better * (self.ratios - 1) > SAME).sum())

    @property
    def same(self) -> int:
        """Return the number of draws in which both policies are the same."""
        return int((abs(self.ratios - 1) <= SAME).sum())

    @property
    def tally(self) -> str:
        """Return how often our policy is ahead, in words: "ahead in 13 of 15 draws"."""
        text = f"ahead in {self.ahead} of {count(len(self.ratios), 'draw')}"
        return f"{text}, the same in {self.same}" if self.same else text

    @property
    def change(self) -> str:
        """Return the mean change of our policy's figure, compared with the other's, in words: "−39
        %"."""
        return change(self.ratio)

    @property
    def interval(self) -> str:
        """Return the interval of the change: "−50 % to −20 %"; "" for a single draw."""
        if self.low is None or self.high is None:
            return ""
        return f"{change(self.low)} to {change(self.high)}"


def change(ratio: float) -> str:
    """Return in words how much a ratio differs from 1: "−39 %", "+12 %", "×4.2", "the same"."""
    if ratio >= 3:
        return f"×{ratio:.2g}" if ratio < 100 else f"×{ratio:.0f}"
    if abs(ratio - 1) < 0.005:
        return "the same"
    return f"{'+' if ratio > 1 else '−'}{percent(abs(ratio - 1))}"


def paired(ours: Floats, theirs: Floats, better: int = -1, *, coming: int = 0) -> Paired | None:
    """Return a figure compared between two policies on the same draws. Return None if it cannot be
    compared, for example if a draw lacks it.

    Args:
        ours, theirs: figure of our policy and of the other in each draw, in the same order.
        coming: number of draws that are still running; above 0, there is no verdict.
    """
    if len(ours) != len(theirs) or not len(ours) or not better:
        return None
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    if min(ours.min(), theirs.min()) <= 0:
        return None
    logs = np.log(ours / theirs)
    mean = float(logs.mean())
    if len(logs) < 2:
        return Paired(
            ratios=np.exp(logs), better=better, ratio=exp(mean), low=None, high=None, verdict=OPEN
        )
    half = bound(CHANCE, len(logs) - 1) * float(logs.std(ddof=1)) / sqrt(len(logs))
    verdict = LEVEL
    if coming or len(logs) < SURE:
        verdict = OPEN
    elif abs(mean) > half and exp(abs(mean)) - 1 > SAME:
        verdict = AHEAD if (mean > 0) == (better > 0) else BEHIND
    return Paired(
        ratios=np.exp(logs),
        better=better,
        ratio=exp(mean),
        low=exp(mean - half),
        high=exp(mean + half),
        verdict=verdict,
    )
