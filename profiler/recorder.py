"""Samples a run in a thread of its own, at two rates, within a budget of CPU time.

The slow rate (10 Hz if not chosen) reads all signals; the fast one (50 Hz, on a GPU 100; in bursts
on long runs) reads the few signals in which single training steps show. The recorder measures its
own CPU time. Over its budget it first halves the fast rate, then turns it off, then lowers the slow
rate to 5 Hz, and adds a note. A halved rate is doubled again when the budget allows.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiler.errors import BadOption
from profiler.samplers import Device, Reading, Sampler

Array = npt.NDArray[np.float64]
MIN_HZ, MAX_HZ = 1.0, 20.0
FAST_HZ: dict[Device, float] = {"gpu": 100.0, "cpu": 50.0}
# of one core, over any two seconds; bursts keep the mean of a long run below half of it. Where
# the job computes on a GPU, a core is seldom what it lacks.
BUDGET: dict[Device, float] = {"gpu": 0.05, "cpu": 0.02}
ADAPT_EVERY_S = 2.0
JITTER = 0.3
GIVE_UP_S = 60.0  # of readings that fail; a reset of a driver takes less


@dataclass
class Series:
    """Readings over time: entry i of each of `columns` was read at second `t[i]`."""

    t: list[float] = field(default_factory=list)
    columns: dict[str, list[float]] = field(default_factory=dict)

    def add(self, t: float, reading: Reading) -> None:
        before = len(self.t)
        self.t.append(t)
        for key, value in reading.items():
            self.columns.setdefault(key, [np.nan] * before).append(value)
        for column in self.columns.values():
            if len(column) == before:
                column.append(np.nan)

    def arrays(self) -> tuple[Array, dict[str, Array]]:
        """Return the seconds since the start, and every column as float64. All are equally long."""
        count = len(self.t)  # the thread may be adding while a live view reads
        return (
            np.array(self.t[:count]),
            {key: np.array(column[:count]) for key, column in list(self.columns.items())},
        )

    def table(self) -> pa.Table:
        t, columns = self.arrays()
        return pa.table({"t_s": t, **columns})


class Recorder:
    """Reads `sampler` about the processes that `pids()` names until stopped.

    Attributes:
        slow, fast: the readings at the slow and at the fast rate; times are seconds since `origin`
            (time.monotonic()).
        cpu_s: CPU seconds of the sampling thread.
        gaps: readings that failed.
        error: why sampling ended before `stop`; None if it did not.
        notes: changes of the rates to stay within the budget, and how many readings failed.
    """

    def __init__(
        self,
        sampler: Sampler,
        pids: Callable[[], Sequence[int]],
        *,
        hz: float = 10.0,
        fast_hz: float = 50.0,
        origin: float | None = None,
        burst_s: float | None = None,
        burst_every_s: float = 25.0,
        budget: float = 0.02,
    ) -> None:
        if not MIN_HZ <= hz <= MAX_HZ:
            raise BadOption(f"--hz {hz:g}: sampling runs from {MIN_HZ:g} to {MAX_HZ:g} Hz")
        self.sampler, self.pids = sampler, pids
        self.hz, self.fast_hz, self.budget = hz, max(fast_hz, 0.0), budget
        self.most_fast_hz = self.fast_hz
        self.burst_s, self.burst_every_s = burst_s, burst_every_s
        self.origin = time.monotonic() if origin is None else origin
        self.slow, self.fast = Series(), Series()
        self.cpu_s = 0.0
        self.gaps, self._in_a_row, self._failed = 0, 0, ""
        self.error: str | None = None
        self._seen: Sequence[int] = ()
        self.notes: list[str] = []
        self._jitter = random.Random(0)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._record, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End sampling and wait for its thread. A second call does nothing."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failed:
            self.notes.append(f"{self.gaps} readings failed, at last with {self._failed}")
            self._failed = ""

    @property
    def share(self) -> float:
        """Return the CPU time of sampling so far as a share of one core; 0 before the second
        reading at the slow rate."""
        span = self.slow.t[-1] - self.slow.t[0] if len(self.slow.t) > 1 else 0.0
        return self.cpu_s / span if span > 0 else 0.0

    def _record(self) -> None:
        began_cpu = time.thread_time()
        next_slow = next_fast = checked = time.monotonic()
        checked_cpu, fast_s = began_cpu, 0.0
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= next_slow:
                self._add(self.slow, self._read)
                if self._in_a_row >= GIVE_UP_S * self.hz:
                    self.error = f"sampling stopped, all readings fail: {self._failed}"
                    return
                next_slow = max(next_slow + 1 / self.hz, now)
            if self.fast_hz and now >= next_fast:
                before = time.thread_time()
                self._add(self.fast, lambda: self.sampler.read_fast(self._seen))
                fast_s += time.thread_time() - before
                # uneven on purpose: even samples would show a fast step as a slow alias
                pause = self._jitter.uniform(1 - JITTER, 1 + JITTER) / self.fast_hz
                next_fast = self._after_burst(max(next_fast + pause, now))
            self.cpu_s = time.thread_time() - began_cpu
            if now - checked >= ADAPT_EVERY_S:
                used = time.thread_time() - checked_cpu
                self._adapt(used / (now - checked), fast_s / (now - checked))
                checked, checked_cpu, fast_s = now, time.thread_time(), 0.0
            due = min(next_slow, next_fast) if self.fast_hz else next_slow
            time.sleep(max(0.0, due - time.monotonic()))  # a third of Event.wait's cost

    def _read(self) -> Reading:
        self._seen = self.pids()
        found = self.sampler.read(self._seen)
        self._in_a_row = 0
        return found

    def _add(self, series: Series, read: Callable[[], Reading]) -> None:
        """Call `read` and add the reading to `series`. If it fails, count a gap instead: a broken
        source must not end the run."""
        now = time.monotonic()
        try:
            series.add(now - self.origin, read())
        except Exception as error:
            self.gaps += 1
            self._in_a_row += series is self.slow
            self._failed = f"{type(error).__name__}: {error}"

    def _after_burst(self, due: float) -> float:
        """Return the time of the next reading at the fast rate: `due` if that lies in a burst (a
        short time of fast readings), otherwise the beginning of the next burst."""
        if self.burst_s is None:
            return due
        phase = (due - self.origin) % self.burst_every_s
        return due if phase < self.burst_s else due - phase + self.burst_every_s

    def _adapt(self, share: float, fast_share: float) -> None:
        """Lower a sampling rate if sampling costs more than the budget. Raise it again when the
        budget allows, for example after a job's start, when the driver answers slowly.

        Args:
            share: CPU time of sampling, as a share of one core.
            fast_share: the part of it at the fast rate.
        """
        if share <= self.budget:
            room = share + fast_share <= 0.9 * self.budget
            if 0 < self.fast_hz < self.most_fast_hz and fast_share > 0 and room:
                self.fast_hz = min(2 * self.fast_hz, self.most_fast_hz)
                self.notes.append(f"fast sampling raised to {self.fast_hz:g} Hz again")
            return
        if self.fast_hz > 10:
            self.fast_hz /= 2
            self.notes.append(
                f"fast sampling lowered to {self.fast_hz:g} Hz ({share:.1%} of a core)"
            )
        elif self.fast_hz:
            self.fast_hz = 0.0
            self.notes.append(f"fast sampling turned off ({share:.1%} of a core)")
        elif self.hz > 5:
            self.hz = 5.0
            self.notes.append(f"sampling lowered to 5 Hz ({share:.1%} of a core)")
