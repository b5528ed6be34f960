"""How much is about to arrive: what Lucid's mode switch and profiling partition read."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from models.bundle.arrivals import BIN_S as BIN_S  # the policies take it from here
from models.bundle.arrivals import DAY_BINS, HISTORY_BINS, ArrivalForecast, ArrivalModel

AHEAD = 5  # bins of ten minutes, as in the published recipe


class ArrivalForecaster(Protocol):
    """Mean arrivals per ten-minute bin over the next five bins."""

    def submitted(self, gpus: int, now: float) -> None:
        """A job of `gpus` GPUs arrived."""
        ...

    def jobs(self, now: float) -> float:
        """Jobs per bin."""
        ...

    def gpus(self, now: float) -> float:
        """GPUs asked for per bin."""
        ...


class TableForecaster:
    """A forecast made beforehand: one value per bin from `start` (seconds since the epoch).

    Past its end packing stays on (`jobs` is infinite) and no node need be kept for profiling
    (`gpus` is 0).
    """

    def __init__(self, start: float, jobs: Sequence[float], gpus: Sequence[float]):
        self._start = start
        self._jobs = list(jobs)
        self._gpus = list(gpus)

    def submitted(self, gpus: int, now: float) -> None:
        """Nothing to learn."""

    def jobs(self, now: float) -> float:
        return self._mean(self._jobs, now, beyond=float("inf"))

    def gpus(self, now: float) -> float:
        return self._mean(self._gpus, now, beyond=0.0)

    def _mean(self, values: list[float], now: float, *, beyond: float) -> float:
        first = int((now - self._start) // BIN_S)
        ahead = values[first : first + AHEAD]
        return sum(ahead) / len(ahead) if first >= 0 and len(ahead) == AHEAD else beyond


class RecentForecaster:
    """The next hour looks like the last: arrivals of the past six bins, nothing else."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()

    def submitted(self, gpus: int, now: float) -> None:
        self._arrivals.append((now, gpus))

    def jobs(self, now: float) -> float:
        self._forget(now)
        return len(self._arrivals) / 6

    def gpus(self, now: float) -> float:
        self._forget(now)
        return sum(gpus for _, gpus in self._arrivals) / 6

    def _forget(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] < now - 6 * BIN_S:
            self._arrivals.popleft()


class BundleForecaster:
    """Forecasts by the arrivals model of a bundle, from the arrivals it was notified of.

    Until it has seen a day, the model has nothing to compare with: then the next hour is taken to
    look like the last.

    Args:
        model: with the lead "soon" for both series; None until there is one (`use`).
        start: first time arrivals are counted from, seconds since the epoch; None: the first job.
    """

    def __init__(self, model: ArrivalModel | None = None, start: float | None = None) -> None:
        self._model = model
        self._recent = RecentForecaster()
        self._first = None if start is None else int(start // BIN_S)
        self._counts: dict[str, list[float]] = {"jobs": [], "gpus": []}
        self._made: dict[str, tuple[int, ArrivalForecast]] = {}

    def use(self, model: ArrivalModel) -> None:
        """Forecast with another model from now on, from the same arrivals."""
        self._model = model
        self._made.clear()

    def submitted(self, gpus: int, now: float) -> None:
        self._recent.submitted(gpus, now)
        place = self._reach(now)
        if place >= 0:
            self._counts["jobs"][place] += 1
            self._counts["gpus"][place] += gpus
            # a job reported late changes a bin that has been read
            if place < len(self._counts["jobs"]) - 1:
                self._made.clear()

    def jobs(self, now: float) -> float:
        made = self.latest("jobs", now)
        return self._recent.jobs(now) if made is None else made.mean

    def gpus(self, now: float) -> float:
        made = self.latest("gpus", now)
        return self._recent.gpus(now) if made is None else made.mean

    def latest(self, series: str, now: float) -> ArrivalForecast | None:
        """The forecast for the five bins after the last complete one.

        None before a day is seen, and when the model has none for the series.
        """
        complete = self._reach(now)
        if complete < DAY_BINS or self._first is None:
            return None
        if self._model is None or f"{series}@soon" not in self._model.models:
            return None
        made = self._made.get(series)
        if made is None or made[0] != self._first + complete:
            counts = {name: np.array(bins[:complete]) for name, bins in self._counts.items()}
            forecast = self._model.forecast(counts, self._first * BIN_S, series, "soon")
            made = self._made[series] = self._first + complete, forecast
        return made[1]

    def _reach(self, now: float) -> int:
        """Position of the bin of `now`, after making room for it and forgetting what is too old."""
        place = int(now // BIN_S)
        if self._first is None:
            self._first = place
        missing = place - self._first + 1 - len(self._counts["jobs"])
        if missing > HISTORY_BINS:  # a long silence: nothing older is read
            self._first, missing = place - HISTORY_BINS, HISTORY_BINS + 1
            self._counts = {name: [] for name in self._counts}
        excess = max(0, len(self._counts["jobs"]) + missing - 2 * HISTORY_BINS)
        for bins in self._counts.values():
            bins.extend([0.0] * missing)
            del bins[:excess]
        self._first += excess
        return place - self._first
