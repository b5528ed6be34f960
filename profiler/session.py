"""Profiles a command from beginning to end: chooses the device, runs the command, samples it, finds
the steady window, and computes the profile.

>>> result = profile(["python", "train.py"], Path("runs/profile/1"), Options(seconds=120))
>>> result.ending.outcome, result.profile
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from features.files import write_table
from features.job import Profile
from profiler import environment, procs, runner
from profiler.errors import BadOption, DriverMissing, DriverSilent, GpuBusy
from profiler.period import StepTime, Stretch, estimate
from profiler.precision import Precision, infer
from profiler.progress.names import VARIABLE
from profiler.recorder import BUDGET, FAST_HZ, Recorder, Series
from profiler.result import ProfileResult, Sampling, Summary, scheduler_profile
from profiler.runner import Limits, Outcome, Run
from profiler.samplers import Combined, Device, Sampler
from profiler.samplers.dcgm import DcgmSampler, bindings
from profiler.samplers.host import HostSampler
from profiler.samplers.nvml import (
    Gpu,
    NvmlSampler,
    Survey,
    check_free,
    choose,
    open_nvml,
    survey,
)
from profiler.steady import Window, find_window

if TYPE_CHECKING:
    from profiler.progress.tail import Tail

SAMPLES_NAME, FAST_NAME = "samples.parquet", "samples_fast.parquet"
BURST_S = 10.0  # fast sampling of long runs; also the longest stretch a step is looked for in
LOOK_S = 1.0  # between looks at its output
ALWAYS_FAST_S = 60.0  # runs up to this long are sampled fast throughout
LEVELS = ("util_pct", "engine_pct", "mem_util_pct", "mem_used_mib", "power_w")
HOST_LEVELS = ("host.cpu_pct", "host.rss_mib")
SLOW_STEPS = ("util_pct", "power_w", "mem_used_mib")
Tick = Callable[["Live"], None]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a profiling run.

    Attributes:
        limits: longest time (T_prof) and other limits of the command.
        device: whether to profile on GPUs or on the CPU.
        gpus: labels or UUIDs; empty: those of CUDA_VISIBLE_DEVICES, else the first free one (with
            `shared`: the first).
        hz: slow sampling rate, readings per second, 1 to 20.
        fast_hz: fast sampling rate, readings per second; None: 100 on a GPU, 50 on a CPU, since
            there sampling slows the job.
        env: variables for the command beyond the allow-list, ``NAME`` or ``NAME=VALUE``.
        shared: also profile on a GPU that another process uses.
        progress: read the command's progress from its output. Only numbers are kept, no text.
    """

    limits: Limits = field(default_factory=Limits)
    device: Device = "gpu"
    gpus: tuple[str, ...] = ()
    hz: float = 10.0
    fast_hz: float | None = None
    env: tuple[str, ...] = ()
    cwd: Path | None = None
    shared: bool = False
    progress: bool = True


@dataclass(frozen=True, slots=True)
class Live:
    """The state of a running profile, for a view of it: the run, its samples and its progress."""

    run: Run
    recorder: Recorder
    options: Options
    watched: list[dict[str, object]]
    tail: Tail | None = None

    def look(self) -> None:
        """Read the command's output since the last call for progress, at most once a second."""
        at = time.monotonic() - self.run.started
        if self.tail is not None and at >= self.tail.looked_s + LOOK_S:
            self.tail.look(at)


@dataclass(frozen=True, slots=True)
class Target:
    """The device to profile: its sampler, its GPUs (none: the CPU), and the value of
    CUDA_VISIBLE_DEVICES for the command (`visible`)."""

    sampler: Sampler
    gpus: tuple[Gpu, ...]
    visible: str

    @property
    def channels(self) -> list[str]:
        return [gpu.channel for gpu in self.gpus]

    def held_mib(self) -> dict[str, float]:
        """Return the device memory in use now, by any process: {channel: MiB}."""
        return {
            key.split(".")[0]: value
            for key, value in self.sampler.read([]).items()
            if key.endswith(".mem_used_mib")
        }


@dataclass(frozen=True, slots=True)
class Seen:
    """What the samples of a run give: the steady window, statistics over it, highest values of the
    run, precision and profile."""

    window: Window
    metrics: dict[str, Summary]
    peaks: dict[str, float]
    precision: Precision
    profile: Profile | None


def open_target(options: Options, nvml_module: Any = None) -> Target:
    """Choose the GPUs of `options`, or the CPU if that is asked for. Return them with their
    sampler. The CPU is never used in place of a GPU.

    Raises:
        DriverMissing, NoSuchGpu, GpuBusy: the device cannot be used. BadOption: the options
            contradict each other.
    """
    host = HostSampler()
    if options.device == "cpu":
        if options.gpus:
            raise BadOption("--gpus makes no sense with --device cpu")
        return Target(host, (), "")
    try:
        nvml = open_nvml(nvml_module)
        there = survey(nvml)
    except DriverSilent:
        raise
    except DriverMissing as error:
        raise DriverMissing(f"{error}; --device cpu measures the CPU") from None
    if not there.gpus:
        why = there.words()
        raise DriverSilent(
            f"no GPU answers ({why}); --device cpu measures the CPU"
            if why
            else "the NVIDIA driver is there but shows no GPU; --device cpu measures the CPU"
        )
    gpus = _pick(nvml, there, options)
    parts: list[Sampler] = [NvmlSampler(nvml, gpus)]
    module = bindings()
    if module is not None:
        parts.append(DcgmSampler(gpus, module))
    return Target(Combined([*parts, host]), tuple(gpus), ",".join(gpu.uuid for gpu in gpus))


def _pick(nvml: Any, found: Survey, options: Options) -> list[Gpu]:
    there = found.gpus
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    wanted = options.gpus or tuple(part.strip() for part in allowed.split(",") if part.strip())
    for name in wanted:
        if name in found.silent:
            raise DriverSilent(f"GPU {name} does not answer: {found.silent[name]}")
    if wanted:
        chosen = choose(there, wanted)
        if not options.shared:
            check_free(nvml, chosen)
        return chosen
    if options.shared:
        return there[:1]
    busy: GpuBusy | None = None
    for gpu in there:
        try:
            check_free(nvml, [gpu])
        except GpuBusy as error:
            busy = busy or error
            continue
        return [gpu]
    raise GpuBusy(f"no GPU is free; {busy}")


def profile(
    command: Sequence[str],
    folder: Path,
    options: Options | None = None,
    *,
    on_tick: Tick | None = None,
    nvml_module: Any = None,
) -> ProfileResult:
    """Run `command` for at most `options.limits.seconds`, watch it from outside, and return its
    profile.

    Writes output.log, samples.parquet, samples_fast.parquet and profile.json to `folder`. A
    KeyboardInterrupt ends the command; its profile is returned all the same.

    Raises:
        ProfilerError: the command was not run. Each subclass has its own exit status.
    """
    options = options or Options()
    env = environment.scrubbed(os.environ, options.env)
    runner.resolve(command, env, options.cwd or Path.cwd())  # before a GPU is touched
    target = open_target(options, nvml_module)
    try:
        if options.progress:
            env.setdefault("PYTHONUNBUFFERED", "1")  # else it shows what it prints late
        env |= {"CUDA_VISIBLE_DEVICES": target.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        baseline = target.held_mib()
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        with runner.start(
            command, folder, env=env, cwd=options.cwd, limits=options.limits
        ) as run:  # leaving this block, however, ends the run
            recorder = recorder_for(
                target.sampler,
                run.pids,
                origin=run.started,
                hz=options.hz,
                fast_hz=options.fast_hz,
                burst_s=BURST_S if options.limits.seconds > ALWAYS_FAST_S else None,
            )
            own = Path(env[VARIABLE]) if VARIABLE in env else None
            tail = _tail(command, options, run.output, own) if options.progress else None
            live = Live(
                run=run,
                recorder=recorder,
                options=options,
                watched=target.sampler.describe(),
                tail=tail,
            )

            def tick(_: Run) -> None:
                live.look()
                if on_tick is not None:
                    on_tick(live)

            try:
                run.wait(tick)
            except KeyboardInterrupt:
                run.stop()
            finally:
                recorder.stop()
    finally:
        target.sampler.close()
    return _conclude(command, folder, target, live, baseline=baseline, started_at=started_at)


def _tail(command: Sequence[str], options: Options, output: Path, own: Path | None) -> Tail:
    """Return an object that follows a command's output and reads its progress.

    It also reads files that the command names, so only a process of the command's own user may call
    it. The service uses `profiler.progress.apart` instead.
    """
    from features.asked import amount_of
    from profiler.progress.tail import Tail

    return Tail(output, amount_of(command, options.cwd or Path.cwd()), own)


def recorder_for(
    sampler: Sampler,
    pids: Callable[[], Sequence[int]],
    *,
    origin: float,
    hz: float = 10.0,
    fast_hz: float | None = None,
    burst_s: float | None = None,
) -> Recorder:
    """Start a recorder of `sampler` and return it. Its budget of CPU time is that of the sampled
    device.

    Args:
        pids: returns the processes to sample.
        hz: slow rate, readings per second.
        fast_hz: fast rate, readings per second; None: that of the sampled device.
        origin: time.monotonic() at which the samples' times count from 0.
        burst_s: length of the bursts of fast sampling, seconds; None: sample fast all the time.
    """
    recorder = Recorder(
        sampler,
        pids,
        hz=hz,
        fast_hz=FAST_HZ[sampler.device] if fast_hz is None else fast_hz,
        origin=origin,
        burst_s=burst_s,
        budget=BUDGET[sampler.device],
    )
    sampler.begin()
    recorder.start()
    return recorder


def _conclude(
    command: Sequence[str],
    folder: Path,
    target: Target,
    live: Live,
    baseline: Mapping[str, float],
    started_at: str,
) -> ProfileResult:
    run, recorder = live.run, live.recorder
    assert run.ending is not None
    ending = run.ending
    ended = ending.outcome in (Outcome.FINISHED, Outcome.FAILED)
    seen = judge(recorder, target, baseline, duration_s=ending.duration_s, ended=ended)
    write_table(folder / SAMPLES_NAME, recorder.slow.table())
    write_table(folder / FAST_NAME, recorder.fast.table())
    result = ProfileResult(
        command=tuple(command),
        started_at=started_at,
        device=target.sampler.device,
        devices=tuple(live.watched),
        limit_s=live.options.limits.seconds,
        ending=ending,
        window=seen.window,
        metrics=seen.metrics,
        peaks=seen.peaks,
        step=step_time(recorder.fast, recorder.slow, seen.window, target.channels),
        precision=seen.precision,
        profile=seen.profile,
        missing={k: v for k, v in target.sampler.missing.items() if k not in seen.metrics},
        sampling=Sampling(
            hz=recorder.hz,
            samples=len(recorder.slow.t),
            fast_samples=len(recorder.fast.t),
            cpu_s=recorder.cpu_s,
            cpu_share=recorder.share,
            notes=tuple(recorder.notes),
            error=recorder.error,
        ),
        software={
            "pellucid": _version(),
            "python": sys.version.split()[0],
            "os": platform.platform(),
        },
        run_dir=str(folder),
        progress=live.tail.progress(ending.duration_s)
        if live.tail is not None and ending.outcome in (Outcome.LIMIT, Outcome.INTERRUPTED)
        else None,
    )
    result.write(folder)
    return result


def judge(
    recorder: Recorder,
    target: Target,
    baseline: Mapping[str, float],
    *,
    duration_s: float,
    ended: bool,
) -> Seen:
    """Return the steady window, statistics over it and the profile, from the samples of a stopped
    recorder.

    Args:
        baseline: device memory in use before the run: {channel: MiB}.
        duration_s: seconds that the command ran. Later samples are removed from the recorder: they
            show the command being stopped.
        ended: whether the command ended by itself, so that its last samples may differ from the
            rest.
    """
    _cut(recorder.slow, duration_s)
    _cut(recorder.fast, duration_s)
    t, columns = recorder.slow.arrays()
    channels = target.channels
    window = find_window(t, _levels(columns, channels), ended=ended)
    metrics, peaks = _summaries(t, columns, window)
    first = channels[0] if channels else ""
    means = {k.removeprefix(f"{first}."): v.mean for k, v in metrics.items() if first}
    precision = infer(means) if first else Precision(None, None, "no GPU was measured")
    profile = scheduler_profile(channels, metrics, peaks, baseline_mib=baseline, amp=precision.amp)
    return Seen(window=window, metrics=metrics, peaks=peaks, precision=precision, profile=profile)


def _cut(series: Series, end_s: float) -> None:
    keep = int(np.searchsorted(series.t, end_s, side="right"))
    series.t = series.t[:keep]
    series.columns = {key: column[:keep] for key, column in series.columns.items()}


def _levels(columns: Mapping[str, Any], channels: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the signals from which the steady window is found: those of the GPUs,
    or the host's if there is no GPU channel."""
    wanted = [f"{c}.{name}" for c in channels for name in LEVELS] or list(HOST_LEVELS)
    return {key: columns[key] for key in wanted if key in columns}


def _summaries(
    t: Any, columns: Mapping[str, Any], window: Window
) -> tuple[dict[str, Summary], dict[str, float]]:
    inside = (t >= window.start_s) & (t <= window.end_s)
    metrics: dict[str, Summary] = {}
    peaks: dict[str, float] = {}
    for key, values in columns.items():
        if np.isfinite(values).any():
            peaks[key] = float(np.nanmax(values))
        if np.isfinite(values[inside]).any():
            metrics[key] = Summary.of(values[inside])
    return metrics, peaks


def step_time(fast: Series, slow: Series, window: Window, channels: Sequence[str]) -> StepTime:
    """Return the step time from the fast samples (short steps) and the slow ones (long steps).

    On a GPU the signals are power, utilisation, SM and memory activity, device memory, and CPU use
    and memory of the host. Without one it is host memory, which rises and falls with the forward
    and backward pass. Its time is then CPU time used, so that other programs on the machine do not
    lengthen a step.
    """
    half = max(window.end_s - window.start_s, 2.0) / 2
    short = min(BURST_S / 2, half)
    if not channels:
        memory = ["host.rss_mib"]
        found = pieces(fast, window, memory, short, clock="host.main_cpu_pct")
        found += pieces(slow, window, memory, half, clock="host.cpu_pct")
        return estimate(found)
    quick = [f"{c}.{name}" for c in channels for name in ("power_w", "sm_active_pct", "dram_pct")]
    found = pieces(fast, window, [*quick, "host.main_cpu_pct", "host.rss_mib"], short)
    found += pieces(slow, window, [f"{c}.{n}" for c in channels for n in SLOW_STEPS], half)
    return estimate(found)


def pieces(
    series: Series,
    window: Window,
    names: Sequence[str],
    longest_s: float,
    clock: str | None = None,
) -> list[Stretch]:
    """Return the signals `names` of a recording inside the window, cut at gaps and into stretches
    of about `longest_s` seconds.

    Args:
        clock: a CPU signal (percent). Time then runs as fast as that CPU was used, scaled so that
            over the whole window it lasts as long as by the wall clock. None: wall-clock time.
    """
    t, columns = series.arrays()
    inside = np.flatnonzero((t >= window.start_s) & (t <= window.end_s))
    if inside.size < 2 or (clock is not None and clock not in columns):
        return []
    clocked = t
    if clock is not None:
        used = np.nan_to_num(columns[clock], nan=0.0) * np.diff(t, prepend=t[0])
        gone = np.cumsum(np.where(np.diff(t, prepend=t[0]) > 1.0, 0.0, used))
        total = gone[inside[-1]] - gone[inside[0]]
        steps = np.diff(t[inside])
        clocked = gone * (steps[steps <= 1.0].sum() / total) if total > 0 else t
    found: list[Stretch] = []
    for part in np.split(inside, np.flatnonzero(np.diff(t[inside]) > 1.0) + 1):
        count = max(1, round((t[part[-1]] - t[part[0]]) / longest_s))
        for piece in np.array_split(part, count):
            if piece.size < 2:
                continue
            # where the clock stood still nothing was computed: one reading of it is enough
            piece = piece[np.concatenate([[True], np.diff(clocked[piece]) > 1e-4])]
            found += [Stretch(n, clocked[piece], columns[n][piece]) for n in names if n in columns]
    return found


def _version() -> str:
    try:
        return metadata.version("pellucid")
    except metadata.PackageNotFoundError:
        return "unknown"


def default_memory_mib() -> float:
    """Return the default limit on a command's host memory, MiB: nine tenths of the memory that is
    available now, so that the profiling node does not run out."""
    return 0.9 * procs.available_mib()
