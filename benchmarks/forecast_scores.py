"""How forecasts turned out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from scheduler.explain.whatif.forecasts import StartForecast

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


def scored(made: Iterable[tuple[StartForecast, float]]) -> list[Scored]:
    """Forecasts of starts, each with the time of the start."""
    out = []
    for forecast, start in made:
        if forecast.start_p50 is None:
            continue
        p90 = None if forecast.start_p90 is None else forecast.start_p90 - forecast.made_at
        out.append(Scored(forecast.start_p50 - forecast.made_at, p90, start - forecast.made_at))
    return out
