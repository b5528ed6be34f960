"""The history that a prediction rests on: how long the jobs of a group lasted, and what that makes
of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from features.survival import EDGES_S, History
from scheduler.core.curves import Predicted
from scheduler.core.durations import LONG_S
from scheduler.explain.words import duration, listed

SHOWN_ODDS = 0.005  # below it, and above the rest, a chance is not written


@dataclass(frozen=True, slots=True)
class Next:
    """What a history makes of the next job, of those that outlive as much.

    Attributes:
        p50_s, p90_s: half of them, and nine in ten, last no longer, seconds in all.
        odds: chance to last longer than some seconds, by these seconds.
    """

    p50_s: float
    p90_s: float
    odds: tuple[tuple[float, float], ...]


def survivors(hazards: Sequence[float], outlived_s: float = 0.0) -> list[float]:
    """Return the share that outlives each of `EDGES_S`, of those that outlive `outlived_s`; 1
    where that is longer."""
    lasts = Predicted.of(0.0, hazards)
    left = 1.0 - lasts.share_ended(outlived_s)
    if left <= 0:
        return [float(edge < outlived_s) for edge in EDGES_S]
    return [min(1.0, (1.0 - lasts.share_ended(edge)) / left) for edge in EDGES_S]


def next_of(history: History, outlived_s: float = 0.0) -> Next:
    """Return what a history makes of the next job that outlives `outlived_s`."""
    lasts = Predicted.of(0.0, history.hazards)
    passed = lasts.share_ended(outlived_s) if outlived_s > 0 else 0.0
    levels = [passed + (1.0 - passed) * level for level in (0.5, 0.9)]
    p50_s, p90_s = (max(outlived_s, seconds) for seconds in lasts.ends_at(levels))
    left = max(1.0 - passed, 1e-12)
    odds = tuple(
        (seconds, min(1.0, (1.0 - lasts.share_ended(seconds)) / left))
        for _, seconds in LONG_S
        if seconds > outlived_s
    )
    return Next(p50_s, p90_s, odds)


def next_words(history: History, outlived_s: float = 0.0) -> str:
    """ "Of the next, half last over 25 min and one in ten over 6 h; of a hundred, 31 over 1 h"."""
    found = next_of(history, outlived_s)
    who = f"Of those that outlive {duration(outlived_s)}" if outlived_s > 0 else "Of the next"
    text = f"{who}, half last over {duration(found.p50_s)}, one in ten over {duration(found.p90_s)}"
    odds = [
        f"{100 * chance:.0f} over {duration(seconds)}"
        for seconds, chance in found.odds
        if SHOWN_ODDS <= chance <= 1.0 - SHOWN_ODDS
    ]
    return f"{text}; of a hundred, {listed(odds)}." if odds else f"{text}."


def known_words(history: History) -> str:
    """How much a history knows: "18 jobs, the older ones counting less"."""
    jobs = sum(history.ended)
    if jobs < 0.05 and max(history.reached) < 0.05:
        return "None of them was seen yet: it says what the wider group says."
    runs = max(0.0, max(history.reached) - jobs)
    going = f", and {runs:.1f} that run" if runs >= 0.05 else ""
    return f"{jobs:.1f} ended jobs{going}, the older ones counting less."


def rests_on_words(histories: Sequence[History]) -> str:
    """ "ada's jobs named like train: 4.2 ended jobs ... Of the next, half last over 25 min ...".

    Of the narrowest history that knows any job; "" of none.

    Args:
        histories: of a job, the widest first.
    """
    known = [one for one in histories if max(one.reached) > 0]
    if not known:
        return ""
    last = known[-1]
    return f"{last.of}: {known_words(last)} {next_words(last)}"
