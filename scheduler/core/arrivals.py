"""Forecasts of how many jobs and GPUs are about to be asked for.

Policies use them to decide whether jobs should share GPUs now (Lucid's mode switch), and the
profiling partition uses them to return nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Protocol

from features.calendar import BIN_S as BIN_S  # the policies take it from here

AHEAD = 5  # forecast bins of ten minutes, as in the published recipe


class ArrivalForecaster(Protocol):
    """A forecaster of the mean number of jobs, and of GPUs asked for, per ten-minute bin over the
    next five bins."""

    def submitted(self, gpus: int, now: float) -> None:
        """Record that a job of `gpus` GPUs arrived."""
        ...

    def jobs(self, now: float) -> float:
        """Return the forecast mean number of jobs that arrive per bin."""
        ...

    def gpus(self, now: float) -> float:
        """Return the forecast mean number of GPUs that arriving jobs ask for per bin."""
        ...

    def remember(self) -> list[tuple[float, int]]:
        """Return the recorded arrivals that later forecasts need, as pairs (time, number of
        GPUs)."""
        ...

    def restore(self, arrivals: list[tuple[float, int]]) -> None:
        """Replace the recorded arrivals by `arrivals`, as `remember` returned them."""
        ...


class TableForecaster:
    """A forecaster that reads its answers from a table: one value per bin from `start` (seconds
    since the epoch).

    Where the table does not have all of the next five bins, `jobs` is infinite, so that packing
    stays on, and `gpus` is 0, so that no node need be kept for profiling.
    """

    in_copies: ClassVar = "shared"  # of a core (`explain.whatif.copies`)

    def __init__(self, start: float, jobs: Sequence[float], gpus: Sequence[float]):
        self._start = start
        self._jobs = list(jobs)
        self._gpus = list(gpus)

    def submitted(self, gpus: int, now: float) -> None:
        """Do nothing: the table is fixed, and learns nothing from arrivals."""

    def remember(self) -> list[tuple[float, int]]:
        return []

    def restore(self, arrivals: list[tuple[float, int]]) -> None:
        """Do nothing: a table has nothing to restore."""

    def jobs(self, now: float) -> float:
        return self._mean(self._jobs, now, beyond=float("inf"))

    def gpus(self, now: float) -> float:
        return self._mean(self._gpus, now, beyond=0.0)

    def _mean(self, values: list[float], now: float, *, beyond: float) -> float:
        first = int((now - self._start) // BIN_S)
        ahead = values[first : first + AHEAD]
        return sum(ahead) / len(ahead) if first >= 0 and len(ahead) == AHEAD else beyond


class RecentForecaster:
    """A forecaster which expects that the next hour is like the last: it returns the mean per bin
    over the past hour (six bins)."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()

    def submitted(self, gpus: int, now: float) -> None:
        self._arrivals.append((now, gpus))

    def remember(self) -> list[tuple[float, int]]:
        return list(self._arrivals)

    def restore(self, arrivals: list[tuple[float, int]]) -> None:
        self._arrivals = deque(arrivals)

    def jobs(self, now: float) -> float:
        self._forget(now)
        return len(self._arrivals) / 6

    def gpus(self, now: float) -> float:
        self._forget(now)
        return sum(gpus for _, gpus in self._arrivals) / 6

    def _forget(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] < now - 6 * BIN_S:
            self._arrivals.popleft()
