"""How forecasts turned out, and a correction learned from that.

The correction is a quantile tracker (Angelopoulos, Candes and Tibshirani, "Conformal PID control
for time series prediction", NeurIPS 2023; the tracker alone): every promise that was broken
stretches the next ones a little, every one that was kept shrinks them by less, so that in the
long run the promised share is kept whatever the world does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise
from math import exp
from typing import Any

from scheduler.explain.whatif.forecasts import StartForecast

NEAR_S = 3600.0  # promises are near or far
LEVELS = {"p50": 0.5, "p90": 0.9}
# promised wait (p90) at which groups end, seconds; the last is open
GROUPS_S = (300.0, 3600.0, 14_400.0, 43_200.0, 86_400.0)


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast and what came of it; seconds from when it was made.

    Attributes:
        p50, p90: promised; p90 None: beyond the horizon.
        true: what came of it.
    """

    p50: float | None
    p90: float | None
    true: float

    @property
    def certain(self) -> bool:
        """Nothing was left open."""
        return self.p50 == self.p90


def calibration(scored: Sequence[Scored]) -> dict[str, Any]:
    """Coverage and pinball loss: over all, over jobs that had to wait, by promised wait.

    Returns:
        ``{all, waited, open, by_promised_wait: [{from_s, to_s, ...}]}``, each with ``jobs``,
        ``p50``, ``p90`` (share not later than promised) and ``pinball_p50_s``,
        ``pinball_p90_s`` (mean; 0 is perfect). `open` are forecasts that left something open.
        Grouped by what was promised and not by what came: the latter would choose the jobs that
        were late.
    """
    groups = []
    for low, high in pairwise((0.0, *GROUPS_S, None)):
        mine = [s for s in scored if s.true > 0 and _between(s.p90, low, high)]
        groups.append({"from_s": low, "to_s": high} | _figures(mine))
    return {
        "all": _figures(scored),
        "waited": _figures([s for s in scored if s.true > 0]),
        "open": _figures([s for s in scored if not s.certain]),
        "by_promised_wait": groups,
    }


def _between(seconds: float | None, low: float | None, high: float | None) -> bool:
    return seconds is not None and low is not None and low <= seconds < (high or float("inf"))


def _figures(scored: Sequence[Scored]) -> dict[str, Any]:
    figures: dict[str, Any] = {"jobs": len(scored)}
    for name, level in LEVELS.items():
        known = [(p, s.true) for s in scored if (p := getattr(s, name)) is not None]
        figures[name] = _mean([true <= p + 1e-6 for p, true in known])
        figures[f"pinball_{name}_s"] = _mean([pinball(p, true, level) for p, true in known])
        figures[f"{name}_unavailable"] = len(scored) - len(known)
    return figures


def pinball(promised: float, true: float, level: float) -> float:
    """Pinball (quantile) loss; smallest on average for the true quantile."""
    late = true - promised
    return late * level if late > 0 else late * (level - 1.0)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class Tracker:
    """How much to stretch the promises of one level.

    Args:
        level: share of promises to be kept.
        step: how far one broken promise moves ln(stretch), per unit of level.
    """

    def __init__(self, level: float, step: float = 0.1):
        self.level = level
        self.step = step
        self.log = 0.0
        self.learned = 0

    @property
    def stretch(self) -> float:
        """Promised seconds are multiplied by it."""
        return exp(self.log)

    def learn(self, kept: bool, weight: float = 1.0) -> None:
        self.log += self.step * weight * (self.level - kept)
        self.log = max(-1.5, min(1.5, self.log))
        self.learned += 1


@dataclass(slots=True)
class _Batch:
    """What one user was promised within an hour: such jobs are late together."""

    hour: int
    size: int = 0


class Correction:
    """Stretches promises by what became of earlier ones, of near and far promises each by itself.

    It learns as soon as the outcome is known: a promise is broken when its time has passed. What it
    learns from weighs 1 over the size of its batch so far, of near and far promises together: a
    hundred jobs sent before the first outcome is known teach as much as one job, a hundred each
    sent after the outcome of the one before as much as five (1 + 1/2 + ... + 1/100).
    """

    def __init__(self, step: float = 0.1):
        self.trackers = {
            (name, group): Tracker(level, step)
            for name, level in LEVELS.items()
            for group in ("near", "far")
        }
        # (job, level) -> time, group, batch
        self._open: dict[tuple[str, str], tuple[float, str, _Batch]] = {}
        self._latest: dict[str, _Batch] = {}  # by user
        self._due: list[tuple[float, str, str]] = []

    @property
    def stretches(self) -> dict[str, float]:
        """What promises are multiplied by now, by level and group."""
        return {f"{name} {group}": t.stretch for (name, group), t in self.trackers.items()}

    @property
    def learned(self) -> int:
        """Promises it learned from."""
        return sum(t.learned for (name, _), t in self.trackers.items() if name == "p90")

    def corrected(self, made: StartForecast) -> StartForecast:
        """The forecast with its start stretched; one that left nothing open stays as it is.

        The end moves as the start does.
        """
        p50, p90 = made.start_p50, made.start_p90
        if p50 is None or p90 is None or p50 == p90:
            return made
        group = _group(made.made_at, p90)
        new50, new90 = (
            made.made_at + (at - made.made_at) * self.trackers[name, group].stretch
            for name, at in (("p50", p50), ("p90", p90))
        )
        new90 = max(new50, new90)
        return replace(
            made,
            start_p50=new50,
            start_p90=new90,
            end_p50=None if made.end_p50 is None else made.end_p50 + new50 - p50,
            end_p90=None if made.end_p90 is None else made.end_p90 + new90 - p90,
        )

    def promised(self, job_id: str, made: StartForecast, user: str = "") -> None:
        """A forecast, as it was shown to a user, is to be scored."""
        if made.start_p50 is None or made.start_p90 is None or made.start_p50 == made.start_p90:
            return
        group, hour = _group(made.made_at, made.start_p90), int(made.made_at // 3600)
        batch = self._latest.get(user)
        if batch is None or batch.hour != hour:
            batch = self._latest[user] = _Batch(hour)
        batch.size += 1
        for name, at in (("p50", made.start_p50), ("p90", made.start_p90)):
            self._open[job_id, name] = at, group, batch
            heappush(self._due, (at, job_id, name))

    def started(self, job_id: str, at: float) -> None:
        """A job got its GPUs."""
        self.passed(at)
        for name in LEVELS:
            promised = self._open.pop((job_id, name), None)
            if promised is not None:
                self._learn(name, promised, at <= promised[0])

    def forget(self, job_id: str) -> None:
        """A job left without having started, or is not what was foreseen."""
        for name in LEVELS:
            self._open.pop((job_id, name), None)

    def passed(self, now: float) -> None:
        """Time has passed: promises for times before `now` are broken."""
        while self._due and self._due[0][0] < now:
            at, job_id, name = heappop(self._due)
            promised = self._open.get((job_id, name))
            if promised is not None and promised[0] == at:
                del self._open[job_id, name]
                self._learn(name, promised, False)

    def _learn(self, name: str, promised: tuple[float, str, _Batch], kept: bool) -> None:
        _, group, batch = promised
        self.trackers[name, group].learn(kept, 1.0 / batch.size)


def _group(made_at: float, p90: float) -> str:
    return "near" if p90 - made_at < NEAR_S else "far"


def scored(made: Iterable[tuple[StartForecast, float]]) -> list[Scored]:
    """Forecasts of starts, each with the time of the start."""
    out = []
    for forecast, start in made:
        if forecast.start_p50 is None:
            continue
        p90 = None if forecast.start_p90 is None else forecast.start_p90 - forecast.made_at
        out.append(Scored(forecast.start_p50 - forecast.made_at, p90, start - forecast.made_at))
    return out
