"""The colocation bench: it chooses the next measurement, and makes it.

Every configuration alone once, since a relative speed needs it; then pairs in groups, each group
and its members alone repeated in an order that is shuffled anew every time, until both speeds are
known to within the tolerance or the repeats are used up (the tables then say ``tight = false``).
Families are paired evenly: every combination of two comes up once before any comes up twice.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, Self

import numpy as np

from profiler import session
from profiler.errors import BadOption, NotSupported
from profiler.recorder import Recorder
from profiler.samplers import Device
from profiler.steady import Window
from reproductions.colocation import mps
from reproductions.colocation.journal import Item, Journal, Measurement, Sharing
from reproductions.colocation.statistics import mean_of, ratio_of
from reproductions.colocation.worker import DoesNotFit, Worker, WorkerFailed
from reproductions.colocation.workloads import Config, Size

REPORTS = 7  # in the shortest of windows, and at least one every 0.3 s
FIRST_GUESS_S = 12.0  # what a measurement costs, until some have been made
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a bench measures.

    Attributes:
        device: ``gpu`` or ``cpu``.
        gpu: label or UUID of the GPU; empty: that of CUDA_VISIBLE_DEVICES, else the first free one.
        size: ``full``, or ``tiny`` for a CPU.
        solo_s, pair_s: seconds of a measurement of one configuration, and of a pair.
        settle_s: seconds that pass before each measurement.
        min_repeats, max_repeats: fewest good and most measurements of an item that fits.
        tolerance: a mean is tight when its 95 % confidence interval is within this share of it.
        threads: torch threads per worker on a CPU.
        fit: a pair is tried if both need at most this share of the GPU's memory together.
        group: number of pairs that are repeated together.
    """

    device: Device = "gpu"
    gpu: str = ""
    size: Size = "full"
    solo_s: float = 4.0
    pair_s: float = 4.0
    settle_s: float = 0.7
    min_repeats: int = 2
    max_repeats: int = 5
    tolerance: float = 0.05
    seed: int = 0
    threads: int | None = None
    timeout_s: float = 120.0
    fit: float = 0.92
    group: int = 12

    def __post_init__(self) -> None:
        if not 1 <= self.min_repeats <= self.max_repeats:
            raise BadOption(
                f"repeats {self.min_repeats} to {self.max_repeats}: expected 1 <= fewest <= most"
            )
        if not 0 < self.tolerance < 1:
            raise BadOption(f"tolerance {self.tolerance:g}: expected a share between 0 and 1")
        if self.group < 1:
            raise BadOption(f"group {self.group}: expected 1 or more pairs")
        if not 0 <= self.settle_s <= 600:
            raise BadOption(f"settle_s {self.settle_s:g}: expected 0 to 600 seconds")
        for name in ("solo_s", "pair_s"):
            if not 0 < getattr(self, name) <= 600:
                raise BadOption(f"{name} {getattr(self, name):g}: expected 0 to 600 seconds")


def all_pairs(configs: Sequence[Config], seed: int) -> list[tuple[Config, Config]]:
    """Return every unordered pair of configurations, including each with itself. Pairs of families
    take turns.
    """
    pairs = [tuple(sorted(pair)) for pair in combinations_with_replacement(configs, 2)]
    random.Random(seed).shuffle(pairs)
    turn: Counter[frozenset[str]] = Counter()
    ranked = []
    for place, (a, b) in enumerate(pairs):
        families = frozenset((a.model, b.model))
        ranked.append((turn[families], place, (a, b)))
        turn[families] += 1
    return [pair for _, _, pair in sorted(ranked)]


class Plan:
    """Decides which items are left to measure. It uses the journal alone, so that an interrupted
    bench can continue.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self.journal, self.settings = journal, settings

    def done(self, item: Item) -> bool:
        """Return whether an item needs no more measurements: its means are tight after at least
        `min_repeats` good ones, it was tried `max_repeats` times, or it does not fit into memory.
        """
        tried = list(self.journal.of(item))
        if any(m.outcome == "does not fit" for m in tried):
            return True
        if len(tried) >= self.settings.max_repeats:
            return True
        good = [m for m in tried if m.outcome == "ok"]
        return len(good) >= self.settings.min_repeats and self.tight(item)

    def tight(self, item: Item) -> bool:
        means = []
        for place, config in enumerate(item.configs):
            rates = self.journal.rates(item, place)
            if not rates:
                return False
            alone = self.journal.rates(Item((config,)))
            means.append(mean_of(rates) if len(item.configs) == 1 else ratio_of(rates, alone))
        return all(mean.tight(self.settings.tolerance) for mean in means)

    def tried(self, item: Item) -> bool:
        return any(True for _ in self.journal.of(item))

    def rounds(
        self, items: Sequence[Item], done: Callable[[Item], bool] | None = None
    ) -> Iterator[Item]:
        """Yield items until all are done, in rounds over those not done, each shuffled anew."""
        done, turn = done or self.done, 0
        while left := [item for item in items if not done(item)]:
            order = random.Random(f"{self.settings.seed}/{turn}/{len(self.journal.measurements)}")
            order.shuffle(left)
            yield from left
            turn += 1

    def solo(self, configs: Iterable[Config]) -> list[Item]:
        return [Item((config,)) for config in configs]

    def pairs(self, pairs: Iterable[tuple[Config, Config]], sharing: Sharing) -> list[Item]:
        """Return an item for each pair whose two configurations both made progress when measured
        alone.
        """
        return [
            Item(pair, sharing)
            for pair in pairs
            if all(any(r > 0 for r in self.journal.rates(Item((c,)))) for c in pair)
        ]


class Crew:
    """The two workers of a bench. One that has died is replaced."""

    def __init__(self, settings: Settings, visible: str, extra: Mapping[str, str]) -> None:
        self.settings = settings
        self.env = {
            **os.environ,
            **extra,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": visible,
        }
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End both workers; the next `workers` starts new ones."""
        while self._workers:
            self._workers.pop().close()

    def workers(self) -> list[Worker]:
        """Return two idle worker processes; where fewer are alive, start new ones and wait until
        they are ready."""
        self._workers = [worker for worker in self._workers if worker.alive]
        fresh = [self._start() for _ in range(2 - len(self._workers))]
        self._workers += fresh
        for worker in fresh:
            worker.await_event("hello", timeout_s=self.settings.timeout_s)
        return self._workers

    def _start(self) -> Worker:
        device = "cuda" if self.settings.device == "gpu" else "cpu"
        return Worker(device, self.settings.size, threads=self.settings.threads, env=self.env)


class Bench:
    """Workers, a sampler and a journal on one device."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        note: Note = lambda text: None,
        nvml_module: Any = None,
    ) -> None:
        self.settings, self.note = settings, note
        self.target = session.open_target(
            session.Options(device=settings.device, gpus=(settings.gpu,) if settings.gpu else ()),
            nvml_module,
        )
        self.devices = self.target.sampler.describe()
        self.name = str(self.devices[0]["name"])
        self.capacity_mib = self.target.gpus[0].memory_mib if self.target.gpus else float("inf")
        header = {"device": settings.device, "name": self.name, "size": settings.size}
        if self.target.gpus:  # speeds alone on one machine say nothing of pairs on another
            header["uuid"] = self.target.gpus[0].uuid
        self.journal = Journal(folder, header)
        self.plan = Plan(self.journal, settings)
        self.sharing_missing: dict[str, str] = {}
        self._costs: list[float] = []

    def run(
        self,
        configs: Sequence[Config],
        pairs: Sequence[tuple[Config, Config]],
        deadline: float,
        *,
        with_mps: bool = False,
    ) -> bool:
        """Measure until everything is known or the deadline (time.monotonic()) is near.

        Returns whether everything was measured.
        """
        solo = self.plan.solo(configs)
        with Crew(self.settings, self.target.visible, {}) as crew:
            # everything once, so that every pair can be compared, then group by group
            if not self._measure(solo, crew, deadline, self.plan.tried):
                return False
            for start in range(0, len(pairs), self.settings.group):
                group = pairs[start : start + self.settings.group]
                members = self.plan.solo({config for pair in group for config in pair})
                together = self._possible(group, "time-slicing")
                if not self._measure([*members, *together], crew, deadline, self.plan.done):
                    return False
                if with_mps and "mps" not in self.sharing_missing:
                    crew.close()  # its contexts would share the GPU with the daemon's clients
                    if not self._measure_with_mps(self._possible(group, "mps"), deadline):
                        return False
            return self._measure(solo, crew, deadline, self.plan.done)

    def _measure_with_mps(self, items: Sequence[Item], deadline: float) -> bool:
        if all(map(self.plan.done, items)):
            return True
        try:
            with (
                # short-lived, out of the data set, and short enough for a socket's name
                tempfile.TemporaryDirectory(prefix="pellucid-mps-") as place,
                mps.daemon(Path(place), self.target.visible) as clients,
                Crew(self.settings, self.target.visible, clients) as crew,
            ):
                return self._measure(items, crew, deadline, self.plan.done)
        except NotSupported as error:
            self.sharing_missing["mps"] = str(error)
            self.note(f"without MPS: {error}")
            return True

    def _possible(self, pairs: Sequence[tuple[Config, Config]], sharing: Sharing) -> list[Item]:
        return [item for item in self.plan.pairs(pairs, sharing) if self._fits(item)]

    def _fits(self, item: Item) -> bool:
        """Return whether a pair should fit into the GPU's memory, by what each needed alone; True
        if unknown.
        """
        needed = 0.0
        for config in item.configs:
            alone = self.journal.of(Item((config,)))
            needed += max((m.usage.get("mem_used_mib", 0.0) for m in alone), default=0.0)
        return needed <= self.settings.fit * self.capacity_mib

    def _measure(
        self,
        items: Sequence[Item],
        crew: Crew,
        deadline: float,
        done: Callable[[Item], bool],
    ) -> bool:
        """Measure the items that are not done, again in every round, in shuffled order. Return
        False if the time is up first.
        """
        for item in self.plan.rounds(items, done):
            cost = float(np.mean(self._costs[-20:])) if self._costs else FIRST_GUESS_S
            began = time.monotonic()
            if began + cost > deadline:
                self.note("out of time; run again to go on")
                return False
            measurement = self.measure(item, crew.workers())
            self.journal.add(measurement)
            self._costs.append(time.monotonic() - began)
            rates = ", ".join(f"{rate:.4g}" for rate in measurement.rates)
            self.note(f"{item}: {rates + ' steps/s' if rates else measurement.text}")
        return True

    def measure(self, item: Item, workers: Sequence[Worker]) -> Measurement:
        """Make one repeat: start, settle, watch for the window, stop. Return the measurement. If a
        job fails or does not fit into memory, that is its outcome; nothing is raised."""
        settings = self.settings
        used = workers[: len(item.configs)]
        seconds = settings.solo_s if len(used) == 1 else settings.pair_s
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            for worker, config in zip(used, item.configs, strict=True):
                worker.order(config, min(0.3, seconds / REPORTS))
            for worker in used:
                worker.ready(settings.timeout_s)
            self._follow(used, time.monotonic() + settings.settle_s)
            start = time.monotonic()
            pids = [worker.pid for worker in used]
            recorder = session.recorder_for(self.target.sampler, lambda: pids, origin=start)
            try:
                self._follow(used, start + seconds)
            finally:
                recorder.stop()
            end = time.monotonic()
            for worker in used:  # a report from after the window closes it
                worker.follow_past(end, settings.timeout_s)
            rates = tuple(worker.rate(start, end) for worker in used)
            memory = tuple(worker.end(settings.timeout_s) for worker in used)
        except (DoesNotFit, WorkerFailed) as error:
            for worker in used:
                worker.abandon()
            return Measurement(
                item,
                stamp,
                0.0,
                outcome="does not fit" if isinstance(error, DoesNotFit) else "failed",
                text=str(error),
            )
        alone = len(item.configs) == 1
        window = Window(
            start_s=0.0, end_s=end - start, samples=len(recorder.slow.t), steady=True, reason=""
        )
        channels = [gpu.channel for gpu in self.target.gpus]
        step = session.step_time(recorder.fast, recorder.slow, window, channels) if alone else None
        return Measurement(
            item=item,
            measured_at=stamp,
            seconds=end - start,
            rates=rates,
            usage=self._usage(recorder),
            torch_mem_mib=memory,
            step_s=step.seconds if step else None,
            step_confidence=step.confidence if step else None,
        )

    def _follow(self, workers: Sequence[Worker], until: float) -> None:
        """Read every worker's progress reports until a time of time.monotonic(). Raise when a
        worker fails.
        """
        while (left := until - time.monotonic()) > 0:
            for worker in workers:
                worker.follow(time.monotonic() + min(left, 0.05))

    def _usage(self, recorder: Recorder) -> dict[str, float]:
        """Return the mean of every signal in the window, under its name without the channel:
        only one device is measured. `mem_peak_mib` is a maximum.
        """
        _, columns = recorder.slow.arrays()
        found: dict[str, float] = {}
        for key, values in columns.items():
            known = values[np.isfinite(values)]
            if known.size:
                found[key.split(".", 1)[1]] = round(float(known.mean()), 4)
                if key.endswith(".mem_used_mib"):
                    found["mem_peak_mib"] = round(float(known.max()), 1)
        return found

    def close(self) -> None:
        self.target.sampler.close()
