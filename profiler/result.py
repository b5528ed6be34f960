"""What a profile is: how the command ended, its steady window, figures over it, and the seam to the
scheduler, a `features.job.Profile`."""

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
    """One signal over the steady window, in its own unit (`profiler.samplers.FIELDS`)."""

    mean: float
    sd: float
    p50: float
    p95: float
    max: float
    samples: int

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Summary:
        """Return the summary of the known values. Raises ValueError when there is none."""
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
        cpu_share: CPU seconds of sampling per second, of one core (0.01 is one percent).
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
    """Everything that one profiling run gives.

    Attributes:
        device: ``gpu`` or ``cpu``: what the figures describe.
        devices: what was watched (names, ids, memory).
        metrics: "channel.field" -> figures over the window.
        peaks: "channel.field" -> highest value of the whole run.
        missing: "channel.field" -> why it is not there.
        progress: how long it would run, by what it printed; None: not known, or not read.
        profile: what the scheduler needs; None on a CPU, or when GPU memory was not seen.
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
        """Return plain values for JSON: enums as text, unknown numbers as None."""
        found: dict[str, Any] = _plain({"schema": SCHEMA, **asdict(self)})
        return found

    def write(self, folder: Path) -> Path:
        """Write profile.json, whole or not at all. Return its path."""
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
    """Return a job's profile as the scheduler knows it: per GPU, averaged over the job's GPUs.

    Memory is the highest of any GPU over the whole run, since that is what has to fit: the
    process tree's own where the driver tells, else what the GPU held beyond `baseline_mib` (its
    use before the run). Percentages that could not be read are NaN. None without any memory.
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
