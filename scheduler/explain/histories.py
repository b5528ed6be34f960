"""The history on which a prediction rests: how long the jobs of a group lasted, and what that
predicts for the next one."""

from __future__ import annotations

from collections.abc import Sequence

from features.survival import EDGES_S, History
from scheduler.core.curves import Predicted
from scheduler.core.durations import LONG_S
from scheduler.explain.answer import Known, Next


def survivors(hazards: Sequence[float], outlived_s: float = 0.0) -> list[float]:
    """Return, for each duration of `EDGES_S`, the share of jobs that last longer, among those that
    last longer than `outlived_s`. `hazards` are the chances to end within each stretch of time."""
    lasts = Predicted.of(0.0, hazards)
    left = 1.0 - lasts.share_ended(outlived_s)
    if left <= 0:
        return [float(edge < outlived_s) for edge in EDGES_S]
    return [min(1.0, (1.0 - lasts.share_ended(edge)) / left) for edge in EDGES_S]


def next_of(history: History, outlived_s: float = 0.0) -> Next:
    """Return the distribution of the next job's duration that a history predicts, given that this
    job lasts longer than `outlived_s` seconds."""
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


def known(history: History, outlived_s: float = 0.0) -> Known:
    """Return the number of jobs in a history, and the duration that it predicts for the next job,
    given that this one lasts longer than `outlived_s` seconds.
    """
    reached = max(history.reached)
    return Known(history.of, sum(history.ended), reached, next_of(history, outlived_s))


def rests_on(histories: Sequence[History]) -> Known | None:
    """Return a summary of the narrowest history that contains a job, ended or running, or None if
    all are empty.

    Args:
        histories: the histories of the groups to which a job belongs, the widest group first.
    """
    found = [one for one in histories if max(one.reached) > 0]
    return known(found[-1]) if found else None
