"""Which nodes could sleep: the energy saving of Helios (SC'21), as advice.

Every ten minutes the number of nodes to keep awake is reconsidered. It falls only when the recent
past and the forecast agree that fewer will do; it rises at once when more are in use. Nothing is
switched here: an operator, or a script of theirs, acts on the advice.

The published evaluation read forecasts that were made from later values of the series. Here a
forecast is a function of what had been seen when it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

INTERVAL_S = 600.0

# Mean busy nodes over the next so many intervals, given the series so far (the last value is now).
NodeForecast = Callable[[Sequence[float], int], float]


@dataclass(frozen=True, slots=True)
class CesSettings:
    """When to change the number of awake nodes. Published for each cluster.

    Attributes:
        history: intervals of the past that are averaged.
        horizon: intervals ahead that are forecast; twice as many must not be busier.
        past_drop: the past must have been this much busier than now (nodes).
        ahead_drop: and what is ahead this much less busy than now.
        least: smallest number of nodes worth putting to sleep.
        buffer: nodes kept awake beyond those in use.
        keep: intervals without a further cut after nodes were woken.
    """

    history: int
    horizon: int
    past_drop: float
    ahead_drop: float
    least: float
    buffer: int
    keep: int


PUBLISHED = {
    "venus": CesSettings(3, 18, 0.5, 1.0, 2.0, 5, 12),
    "earth": CesSettings(6, 18, 1.0, 1.0, 5.0, 5, 12),
    "saturn": CesSettings(6, 18, 1.0, 1.0, 1.0, 5, 12),
    "uranus": CesSettings(3, 18, 1.0, 1.0, 1.0, 7, 12),
    "philly": CesSettings(2, 30, 0.1, 0.0, 1.0, 20, 10),
}


class CesReason(StrEnum):
    """Why the number of awake nodes changes, or does not."""

    MORE_IN_USE = "MoreInUse"  # woken: more nodes are in use than are awake
    QUIET = "Quiet"  # put to sleep: past and forecast agree
    JUST_WOKEN = "JustWoken"
    NOT_FALLING = "NotFalling"  # use has not been falling lately
    FORECAST_BUSY = "ForecastBusy"  # as many nodes, or more, will be wanted soon
    TOO_FEW = "TooFew"  # a cut that is not worth it


@dataclass(frozen=True, slots=True)
class CesAdvice:
    """Advice at one moment.

    Attributes:
        time: of the advice, seconds.
        awake: nodes to keep awake.
        change: from the advice before; negative = may be put to sleep.
        reason: why.
        busy: nodes in use.
        past, ahead: mean of the recent past and of the forecast, nodes; ahead is None when it
            was not asked for.
    """

    time: float
    awake: int
    change: int
    reason: CesReason
    busy: float
    past: float
    ahead: float | None = None

    def sentence(self) -> str:
        """The advice in words."""
        ahead = "" if self.ahead is None else f", {self.ahead:.1f} forecast"
        numbers = f"{self.busy:.0f} nodes in use, {self.past:.1f} lately{ahead}"
        if self.change > 0:
            return f"wake {self.change}: {numbers}"
        if self.change < 0:
            return f"{-self.change} may sleep: {numbers}"
        return f"keep {self.awake} awake ({self.reason.value}): {numbers}"


class Ces:
    """The control rule.

    Args:
        nodes: in the cluster; all are awake at first.
        settings: see CesSettings.
        forecast: of busy nodes.
    """

    def __init__(self, nodes: int, settings: CesSettings, forecast: NodeForecast):
        self.nodes = nodes
        self.settings = settings
        self.forecast = forecast
        self.awake = nodes
        self._series: list[float] = []
        self._kept = 0  # intervals left without a cut

    def advise(self, busy: float, now: float) -> CesAdvice:
        """The advice for an interval in which at most `busy` nodes were in use at once."""
        s = self.settings
        self._series.append(busy)
        past = fmean(self._series[-s.history :])
        before, self._kept = self.awake, max(self._kept - 1, 0)
        if self.awake < busy:
            self.awake = min(round(busy) + s.buffer, self.nodes)
            self._kept = s.keep
            change = self.awake - before
            return CesAdvice(now, self.awake, change, CesReason.MORE_IN_USE, busy, past)
        reason, ahead = self._may_cut(busy, past)
        if reason is CesReason.QUIET:
            self.awake = min(round(busy) + s.buffer, self.nodes)
        return CesAdvice(now, self.awake, self.awake - before, reason, busy, past, ahead)

    def _may_cut(self, busy: float, past: float) -> tuple[CesReason, float | None]:
        s = self.settings
        if self._kept:
            return CesReason.JUST_WOKEN, None
        if self.awake - (busy + s.buffer) < s.least:
            return CesReason.TOO_FEW, None
        if past - busy < s.past_drop:
            return CesReason.NOT_FALLING, None
        ahead = self.forecast(self._series, s.horizon)
        later = self.forecast(self._series, 2 * s.horizon)
        if busy - ahead < s.ahead_drop or ahead < later:
            return CesReason.FORECAST_BUSY, ahead
        return CesReason.QUIET, ahead
