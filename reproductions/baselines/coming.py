"""Lucid's forecast of arrivals by a bundle's model: the mean of the next five intervals.

The forecast decides when `lucid` packs (`quiet_jobs`) and when a node lent for profiling returns.
Where no bundle has such a model, and in the first day of arrivals, another forecaster is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from models.bundle.arrivals import DAY_BINS, WINDOWS, ArrivalModel, Floats
from scheduler.core.arrivals import BIN_S, ArrivalForecaster

KEPT = max(WINDOWS) + 6  # bins that the model looks back on
LEAD = "soon"


@dataclass(slots=True)
class Models:
    """Holds what all forecasters of a policy share.

    Attributes:
        arrivals: the model of arrivals in use; None: there is no model.
        arrived: submissions before the first that a forecaster is notified of, each with its number
            of GPUs.
    """

    arrivals: ArrivalModel | None = None
    arrived: Sequence[tuple[float, int]] = ()


class Coming:
    """A forecaster of arrivals by the model in use, from the submissions that it has been notified
    of and those before.

    Args:
        models: holds the model in use, and the submissions before.
        otherwise: the forecaster that is used where the model cannot be.
    """

    def __init__(self, models: Models, otherwise: ArrivalForecaster):
        self._models, self._otherwise = models, otherwise
        self._arrivals: deque[tuple[float, int]] = deque()
        self._first: int | None = None  # bin from which on arrivals are known
        self._made: dict[str, tuple[ArrivalModel, int, float]] = {}
        if models.arrived:
            self.restore(list(models.arrived))

    def submitted(self, gpus: int, now: float) -> None:
        self._otherwise.submitted(gpus, now)
        self._arrivals.append((now, gpus))
        if self._first is None:
            self._first = int(now // BIN_S)
        while self._arrivals[0][0] < now - KEPT * BIN_S:
            self._arrivals.popleft()

    def remember(self) -> list[tuple[float, int]]:
        return list(self._arrivals)

    def restore(self, arrivals: list[tuple[float, int]]) -> None:
        self._otherwise.restore(arrivals)
        self._arrivals = deque(arrivals)
        self._first = int(arrivals[0][0] // BIN_S) if arrivals else None
        self._made.clear()

    def jobs(self, now: float) -> float:
        mean = self._mean("jobs", now)
        return self._otherwise.jobs(now) if mean is None else mean

    def gpus(self, now: float) -> float:
        mean = self._mean("gpus", now)
        return self._otherwise.gpus(now) if mean is None else mean

    def _mean(self, series: str, now: float) -> float | None:
        """Return the mean of the model's forecast of one series of arrivals, made at the end of the
        last complete interval; None if there is no model of it, or arrivals are known for less than
        a day."""
        model, last = self._models.arrivals, int(now // BIN_S)
        if model is None or f"{series}@{LEAD}" not in model.models or self._first is None:
            return None
        first = max(self._first, last - KEPT)
        if last - first < DAY_BINS:
            return None
        made = self._made.get(series)
        if made is None or made[:2] != (model, last):
            forecast = model.forecast(self._counts(first, last), first * BIN_S, series, LEAD)
            made = self._made[series] = model, last, forecast.mean
        return made[2]

    def _counts(self, first: int, last: int) -> dict[str, Floats]:
        """Return the arrivals in each interval from number `first` to `last` - 1: series "jobs" and
        "gpus".
        """
        known = list(self._arrivals)
        some = known[bisect_left(known, (first * BIN_S, -inf)) :]
        places = np.array([int(at // BIN_S) - first for at, _ in some], np.int64)
        gpus, within = np.array([count for _, count in some], np.float64), places < last - first
        return {
            "jobs": np.bincount(places[within], minlength=last - first).astype(np.float64),
            "gpus": np.bincount(places[within], gpus[within], last - first).astype(np.float64),
        }
