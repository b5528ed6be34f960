"""The result of profiling a command: how it ended, its steady window, statistics over that window,
and the `features.job.Profile` that the scheduler uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from features.files import write_json
from features.job import COUNTERS, Profile
from features.progress import Progress
from profiler.period import StepTime
from profiler.precision import Precision
from profiler.runner import Ending, Outcome
from profiler.samplers import NAN, Device
from profiler.steady import Window

SCHEMA = "pellucid.profile/1"
RESULT_NAME = "profile.json"
EXIT_STATUS = {
    Outcome.FINISHED: 0,
    Outcome.LIMIT: 0,
    Outcome.FAILED: 1,
    Outcome.OUT_OF_MEMORY: 3,
    Outcome.INTERRUPTED: 130,
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one signal over the steady window, in the signal's unit
    (`profiler.samplers.FIELDS`)."""

    mean: float
    sd: float
    p50: float
    p95: float
    max: float
    samples: int

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Summary:
        """Return the summary of the finite ones of `values`. Raises ValueError if there are
        none."""
        y = values[np.isfinite(values)]
        if y.size == 0:
            raise ValueError("no known value")
        p50, p95 = np.percentile(y, [50, 95])
        return cls(
            mean=float(y.mean()),
            sd=float(y.std()),
            p50=float(p50),
            p95=float(p95),
            max=float(y.max()),
            samples=int(y.size),
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a run was sampled, and what the sampling cost.

    Attributes:
        cpu_share: CPU time of sampling as a share of one core (0.01 is one percent).
    """

    hz: float
    samples: int
    fast_samples: int
    cpu_s: float
    cpu_share: float
    notes: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The result of one profiling run.

    Attributes:
        device: ``gpu`` or ``cpu``: what the figures describe.
        devices: the GPUs or the host that were watched (names, ids, memory).
        metrics: "channel.field" -> statistics over the steady window. A channel is one GPU or the
            host.
        peaks: "channel.field" -> highest value of the whole run.
        missing: "channel.field" -> why this field was not measured.
        progress: how long the command would run in all, by the progress that it printed; None:
            unknown, its output was not read, or it was neither stopped at the limit nor by a
            person.
        profile: the job's profile for the scheduler; None on a CPU, or when GPU memory could not be
            measured.
    """

    command: tuple[str, ...]
    started_at: str
    device: Device
    devices: tuple[dict[str, object], ...]
    limit_s: float
    ending: Ending
    window: Window
    metrics: dict[str, Summary]
    peaks: dict[str, float]
    step: StepTime
    precision: Precision
    profile: Profile | None
    missing: dict[str, str]
    sampling: Sampling
    software: dict[str, str] = field(default_factory=dict)
    run_dir: str = ""
    progress: Progress | None = None

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.ending.outcome]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold: enums as text, numbers rounded to six
        decimals, unknown numbers as None."""
        found: dict[str, Any] = _plain({"schema": SCHEMA, **asdict(self)})
        return found

    def write(self, folder: Path) -> Path:
        """Write the result to profile.json in `folder`, atomically. Return the path."""
        path = folder / RESULT_NAME
        write_json(path, self.as_dict())
        return path


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def scheduler_profile(
    channels: list[str],
    metrics: Mapping[str, Summary],
    peaks: Mapping[str, float],
    baseline_mib: Mapping[str, float],
    amp: bool | None,
) -> Profile | None:
    """Return a job's profile for the scheduler: per GPU, averaged over the job's GPUs. Return None
    if the memory of no GPU is known.

    Memory is the highest of any GPU over the whole run, because that has to fit. It is the memory
    of the command's own processes if the driver gives it, otherwise what the GPU held beyond
    `baseline_mib`, its memory in use before the run. Percentages that could not be read are NaN.
    """

    def mean(*names: str) -> float:
        found = [
            next((metrics[f"{c}.{n}"].mean for n in names if f"{c}.{n}" in metrics), NAN)
            for c in channels
        ]
        known = [value for value in found if not math.isnan(value)]
        return float(np.mean(known)) if known else NAN

    memory = [
        peaks.get(
            f"{c}.tree_mem_mib", peaks.get(f"{c}.mem_used_mib", NAN) - baseline_mib.get(c, 0.0)
        )
        for c in channels
    ]
    if not channels or all(math.isnan(value) for value in memory):
        return None
    counted = {name: mean(name) for name in COUNTERS}
    return Profile(
        gpu_util_pct=mean("util_pct", "engine_pct"),  # engine_pct: the same quantity, under MIG
        gpu_mem_util_pct=mean("mem_util_pct"),
        gpu_mem_mib=float(np.nanmax(memory)),
        amp=amp,
        **{name: None if math.isnan(value) else value for name, value in counted.items()},
    )
