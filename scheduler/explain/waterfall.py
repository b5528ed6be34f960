"""A score drawn as a waterfall: where the bar of each term stands."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.explain.terms import SHOWN_TERMS, Breakdown, factor_of, seconds_of
from scheduler.explain.words import count


@dataclass(frozen=True, slots=True)
class Step:
    """A row of a waterfall: a bar from one running total to the next, in percent of the plot."""

    text: str
    value: str
    contribution: float
    factor: float | None
    total: float
    css: str
    left: float
    width: float

    @property
    def seconds(self) -> float:
        """What the running total stands for."""
        return seconds_of(self.total)


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The rows from the intercept to the score, and the breakdown they come from."""

    breakdown: Breakdown
    steps: tuple[Step, ...]


def waterfall(breakdown: Breakdown, shown: int = SHOWN_TERMS) -> Waterfall:
    """The rows of a breakdown: intercept, leading terms, the rest together, score."""
    leading = breakdown.leading(shown)
    folded, together = breakdown.rest(shown)
    moves = [(t.text, t.value, t.contribution) for t in leading]
    if folded:
        moves.append((f"{count(folded, 'more term')} together", "", together))
    totals = [breakdown.intercept]
    for _, _, contribution in moves:
        totals.append(totals[-1] + contribution)
    low, high = min(totals), max(totals)
    room = (high - low) or 1.0
    low, high = low - 0.06 * room, high + 0.06 * room

    def at(value: float) -> float:
        return 100 * (value - low) / (high - low)

    steps = [_mark("where every job starts", breakdown.intercept, at(breakdown.intercept))]
    for (text, value, contribution), before, after in zip(moves, totals, totals[1:], strict=False):
        left, right = sorted((at(before), at(after)))
        css = "longer" if contribution > 0 else "shorter"
        steps.append(
            Step(text, value, contribution, factor_of(contribution), after, css, left, right - left)
        )
    steps.append(_mark("the estimate", breakdown.score, at(breakdown.score)))
    return Waterfall(breakdown, tuple(steps))


def _mark(text: str, total: float, at: float) -> Step:
    return Step(text, "", total, None, total, "total", max(at - 0.4, 0), 0.8)
