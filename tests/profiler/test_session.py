"""Whole profiles: on a CPU for real, on a GPU through the fake NVML."""

from __future__ import annotations

import io
import json
import math
import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from features.job import Profile
from profiler import procs, recorder, session, view
from profiler.errors import BadOption, DriverMissing, DriverSilent, GpuBusy
from profiler.plot import plot
from profiler.precision import infer
from profiler.recorder import Recorder, Series
from profiler.result import Summary, scheduler_profile
from profiler.runner import Limits, Outcome
from profiler.samplers import NAN, Reading
from profiler.session import Options, pieces, profile
from profiler.steady import Window
from tests.profiler.fake_nvml import FakeGpu, FakeNvml, NVMLError
from tests.waiting import until

BUSY = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
CPU = Options(limits=Limits(seconds=1.5), device="cpu")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_a_cpu_profile_has_no_gpu_number_and_its_command_a_scrubbed_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    code = "import json, os; print(json.dumps(dict(os.environ)), flush=True)\n"
    result = profile(python(code + BUSY), tmp_path, replace(CPU, env=("MODE=fast",)))
    assert result.ending.outcome is Outcome.LIMIT
    assert result.exit_status == 0
    assert result.device == "cpu"
    assert result.profile is None
    assert result.metrics["host.cpu_pct"].mean > 5
    assert not any("gpu" in key for key in [*result.metrics, *result.peaks])
    assert result.precision.amp is None
    stored = json.loads((tmp_path / "profile.json").read_text())
    assert stored == result.as_dict()
    assert stored["profile"] is None
    assert stored["ending"]["outcome"] == "stopped_at_limit"
    samples = pq.read_table(tmp_path / "samples.parquet")
    assert samples.num_rows == result.sampling.samples >= 10
    assert samples["t_s"].to_numpy().max() <= result.ending.duration_s
    assert not list(tmp_path.glob(".*"))  # nothing half-written
    env = json.loads(result.ending.last_lines[-1])
    assert env["MODE"] == "fast"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert "SECRET_TOKEN" not in env


GROWS = "import time\na = []\nwhile True: a.append(b'x' * 2**20); time.sleep(0.002)"


@pytest.mark.parametrize(
    ("code", "outcome", "status"),
    [
        ("print(1)", Outcome.FINISHED, 0),
        ("1/0", Outcome.FAILED, 1),
        (GROWS, Outcome.OUT_OF_MEMORY, 3),
    ],
)
def test_short_commands_are_results(
    tmp_path: Path, code: str, outcome: Outcome, status: int
) -> None:
    options = replace(CPU, limits=Limits(seconds=60, memory_mib=150))
    result = profile(python(code), tmp_path, options)
    assert (result.ending.outcome, result.exit_status) == (outcome, status)
    assert not result.window.steady
    assert json.loads((tmp_path / "profile.json").read_text())["window"]["reason"]


def test_an_interrupt_keeps_what_was_seen_and_progress_if_it_was_asked_for(tmp_path: Path) -> None:
    code = "import time\nfor i in range(1, 9999): print(f'step {i}/9999'); time.sleep(0.05)"
    seen = set[str]()

    def enough(live: session.Live) -> None:
        seen.add(live.run.run_id)
        if live.tail is None or live.tail.progress(live.tail.looked_s) is not None:
            raise KeyboardInterrupt

    for asked in (True, False):
        options = replace(CPU, limits=Limits(seconds=60), progress=asked)
        result = profile(python(code), tmp_path / str(asked), options, on_tick=enough)
        assert (result.ending.outcome, result.exit_status) == (Outcome.INTERRUPTED, 130)
        assert (tmp_path / str(asked) / "profile.json").exists()
        assert (result.progress is not None) is asked
        if asked:
            assert result.as_dict()["progress"]["of"] == 9999
    assert not any(procs.marked(run_id) for run_id in seen)


def test_a_bad_rate_leaves_nothing_running(tmp_path: Path) -> None:
    before = set(procs.descendants(os.getpid()))
    with pytest.raises(BadOption, match="--hz 99"):
        profile(python(BUSY), tmp_path, replace(CPU, hz=99))
    assert set(procs.descendants(os.getpid())) <= before


class Trainer:
    """A GPU that idles for the first second of a run, then trains."""

    def __init__(self, **options: Any) -> None:
        self.began: float | None = None
        self.gpu = FakeGpu("GPU-a", util=self.util, **options)

    def util(self) -> tuple[int, int]:
        if self.began is None or time.monotonic() - self.began < 1.0:
            return (0, 0)
        wobble = int(3 * math.sin(40 * time.monotonic()))
        return (80 + wobble, 40 + wobble)


def test_a_gpu_profile_is_what_the_scheduler_needs(tmp_path: Path) -> None:
    gpm = {1: 80.0, 2: 70.0, 3: 30.0, 5: 25.0, 7: 24.0, 10: 50.0, 12: 10.0, 13: 2.0}
    trainer = Trainer(gpm=gpm, used_mib=300)
    gpu = trainer.gpu
    nvml = FakeNvml(FakeGpu("GPU-busy", processes={1: 5.0}), gpu)

    frames: list[str] = []

    def grow(live: session.Live) -> None:
        trainer.began = live.run.started
        gpu.used_mib = 6300
        gpu.processes = {live.run.pid: 5200.0, 999999: 400.0}
        if len(frames) < 5:
            frames.append(shown(view.draw(live)))

    options = Options(limits=Limits(seconds=7.0))
    result = profile(python(BUSY), tmp_path, options, on_tick=grow, nvml_module=nvml)
    assert result.device == "gpu"
    assert [d["channel"] for d in result.devices] == ["gpu1", "host"]  # the free one
    assert result.devices[0]["driver"] == "580.0"
    assert result.window.start_s == pytest.approx(1.0, abs=0.5)
    assert result.profile is not None
    assert result.profile.gpu_util_pct == pytest.approx(80, abs=2)
    assert result.profile.gpu_mem_util_pct == pytest.approx(40, abs=2)
    assert result.profile.gpu_mem_mib == 5200  # its own, not the neighbour's
    assert result.profile.amp is True
    assert "gpu1.nvlink_tx_mib_s" in result.missing
    assert "gpu1.sm_active_pct" in result.metrics
    for words in ("gpu1: NVIDIA Fake", "gpu1.util_pct", "of 7 s"):
        assert words in frames[-1]
    for words in ("stopped at limit", "not measured"):
        assert words in shown(view.table(result))
    for command in (result.command, ("sh", "-c", "echo $A_{ $B", "\udcff\x1b[1m\n")):
        drawn = plot(replace(result, command=command), tmp_path, "svg")
        assert drawn.stat().st_size > 5000


def shown(what: Any) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def test_mig_profiles_leave_unknown_what_is_unknown(tmp_path: Path) -> None:
    no = dict.fromkeys(("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage"), 3)
    part = FakeGpu("MIG-a", refuses=no, gpm={1: 55.0, 2: 40.0}, used_mib=100)
    nvml = FakeNvml(FakeGpu("GPU-a", mig=[part], gpm={}))
    options = Options(limits=Limits(seconds=2.0), gpus=("0:0",))

    def grow(live: session.Live) -> None:
        part.used_mib = 2100

    code = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(9)"
    result = profile(python(code), tmp_path, options, on_tick=grow, nvml_module=nvml)
    assert result.ending.last_lines == ("MIG-a",)
    assert result.profile is not None
    assert result.profile.gpu_util_pct == 55
    assert math.isnan(result.profile.gpu_mem_util_pct)
    assert result.profile.gpu_mem_mib == 2000  # beyond what was in use before
    assert (
        json.loads((tmp_path / "profile.json").read_text())["profile"]["gpu_mem_util_pct"] is None
    )


def test_choosing_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free, busy = FakeGpu("GPU-free"), FakeGpu("GPU-busy", processes={1: 5.0})
    both, none = FakeNvml(busy, free), FakeNvml(broken=12)

    class Mute(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            raise NVMLError(999)

    assert session.open_target(Options(), both).visible == "GPU-free"
    assert session.open_target(Options(shared=True), both).visible == "GPU-busy"
    assert session.open_target(Options(gpus=("0",), shared=True), both).visible == "GPU-busy"
    with pytest.raises(GpuBusy, match="no GPU is free"):
        session.open_target(Options(), FakeNvml(busy))
    for options, nvml, words in (
        (Options(), none, "no NVIDIA driver .*; --device cpu measures the CPU"),
        (Options(gpus=("0",)), none, "no NVIDIA driver"),
        (Options(), FakeNvml(), "shows no GPU"),
        (Options(), Mute(), "does not answer"),
    ):
        with pytest.raises(DriverMissing, match=words):
            session.open_target(options, nvml)
    assert session.open_target(Options(device="cpu"), none).sampler.device == "cpu"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # as a batch system sets it
    assert session.open_target(Options(), both).visible == "GPU-free"


def test_a_host_whose_gpus_do_not_answer_is_not_measured_as_a_cpu() -> None:
    lost = FakeGpu("GPU-a", refuses={"nvmlDeviceGetHandleByIndex": 15})
    for nvml, words in (
        (FakeNvml(lost), "GPU 0 does not answer: the GPU is lost"),
        (FakeNvml(), "shows no GPU"),
        (FakeNvml(broken=18), "the NVIDIA driver does not answer"),
    ):
        with pytest.raises(DriverSilent, match=words):
            session.open_target(Options(), nvml)
        assert session.open_target(Options(device="cpu"), nvml).sampler.device == "cpu"
    beside = FakeNvml(lost, FakeGpu("GPU-b"))
    assert session.open_target(Options(), beside).visible == "GPU-b"
    with pytest.raises(DriverSilent, match="GPU 0 does not answer"):
        session.open_target(Options(gpus=("0",)), beside)


def summary(mean: float) -> Summary:
    return Summary(mean, 0.0, mean, mean, mean, 10)


def test_several_gpus_are_averaged_and_memory_is_the_highest() -> None:
    metrics = {
        "gpu0.util_pct": summary(80), "gpu1.util_pct": summary(60),
        "gpu0.mem_util_pct": summary(40), "gpu1.mem_util_pct": summary(20),
    }  # fmt: skip
    peaks = {"gpu0.mem_used_mib": 5000.0, "gpu1.mem_used_mib": 7000.0}
    base = {"gpu0": 100.0, "gpu1": 500.0}
    found = scheduler_profile(["gpu0", "gpu1"], metrics, peaks, base, None)
    assert found == Profile(70.0, 30.0, 6500.0, None)
    counted = {"sm_active_pct": (60.0, 40.0), "power_w": (300.0, 500.0), "dram_pct": (NAN, NAN)}
    for name, values in counted.items():
        for channel, value in zip(("gpu0", "gpu1"), values, strict=True):
            metrics[f"{channel}.{name}"] = replace(metrics["gpu0.util_pct"], mean=value)
    found = scheduler_profile(["gpu0", "gpu1"], metrics, peaks, base, None)
    assert found == Profile(70.0, 30.0, 6500.0, None, sm_active_pct=50.0, power_w=400.0)
    assert scheduler_profile([], {}, {}, {}, None) is None
    assert scheduler_profile(["gpu0"], metrics, {}, {}, None) is None


@pytest.mark.parametrize(
    ("means", "tensor_cores", "amp"),
    [
        ({"sm_active_pct": 60, "hmma_pct": 20, "fp16_pct": 3}, True, True),
        ({"sm_active_pct": 60, "hmma_pct": 20, "fp16_pct": 0.0}, True, None),  # TF32, perhaps
        ({"sm_active_pct": 60, "tensor_pct": 20}, True, None),
        ({"sm_active_pct": 60, "hmma_pct": 0.1, "fp16_pct": 0}, False, False),
        ({"sm_active_pct": 1, "hmma_pct": 0, "fp16_pct": 0}, None, None),  # idle: no verdict
        ({"util_pct": 90}, None, None),
        ({}, None, None),
    ],
)
def test_amp_and_tensor_cores_are_told_by_counters(
    means: dict[str, float], tensor_cores: bool | None, amp: bool | None
) -> None:
    found = infer(means)
    assert (found.tensor_cores, found.amp) == (tensor_cores, amp)
    assert found.reason


def record(source: Any, done: Callable[[Recorder], object], **options: Any) -> Recorder:
    recorder = Recorder(source, list, **options)
    recorder.start()
    until(lambda: done(recorder), "the recorder")
    recorder.stop()
    recorder.stop()
    return recorder


def test_recorder_fills_gaps_with_unknown() -> None:
    answers = iter([{"host.cpu_pct": 1.0}, {"host.rss_mib": 1.0}])
    source = SimpleNamespace(read=lambda _: next(answers, {"host.cpu_pct": 3.0}))
    recorder = record(source, lambda it: len(it.slow.t) >= 3, hz=10.0, fast_hz=0.0)
    t, columns = recorder.slow.arrays()
    assert t.size >= 3
    assert all(values.size == t.size for values in columns.values())
    assert math.isnan(columns["host.cpu_pct"][1])
    assert math.isnan(columns["host.rss_mib"][0])
    assert recorder.fast.t == []


def test_a_reading_that_fails_is_a_gap_and_many_in_a_row_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder, "GIVE_UP_S", 0.2)  # four readings at 20 Hz
    answers = iter("+---+---")

    def read(_: Sequence[int]) -> dict[str, float]:
        if next(answers, "-") == "-":
            raise RuntimeError("the engine restarts")
        return {"gpu0.power_w": 1.0}

    def read_fast(_: Sequence[int]) -> dict[str, float]:
        raise OSError("no answer")

    source = SimpleNamespace(read=read, read_fast=read_fast)
    seen = record(source, lambda it: it.error, hz=20, fast_hz=10)
    assert seen.error == "sampling stopped, all readings fail: RuntimeError: the engine restarts"
    assert len(seen.slow.t) == 2
    [note] = seen.notes
    assert note.startswith(f"{seen.gaps} readings failed, at last with ")
    assert seen.gaps > 7


class Clock:
    """Stands in for the module `time`: who sleeps has slept, and computing is told to it."""

    now = used = 0.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.used

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 1e-6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(recorder, "time", found := Clock())
    return found


@pytest.mark.parametrize(
    ("later_s", "again"), [(0.0002, ("12.5", "25", "50", "100")), (0.0006, ("12.5", "25", "50"))]
)
def test_recorder_gives_up_rates_and_takes_them_up_again_when_there_is_room(
    clock: Clock, later_s: float, again: tuple[str, ...]
) -> None:
    cost_s = [0.004]

    def read_fast(_: Sequence[int]) -> Reading:
        clock.used += cost_s[0]
        cost_s[0] = 0.004 if clock.now < 10 else later_s  # it starts, then it trains
        return {"host.rss_mib": 1.0}

    source = SimpleNamespace(read=lambda _: {}, read_fast=read_fast)
    seen = record(source, lambda _: clock.now > 30.0, hz=5.0, fast_hz=100.0, budget=0.05)
    assert [note.split(" (")[0] for note in seen.notes] == [
        *(f"fast sampling lowered to {hz} Hz" for hz in ("50", "25", "12.5", "6.25")),
        *(f"fast sampling raised to {hz} Hz again" for hz in again),
    ]
    assert seen.share == pytest.approx(clock.used / clock.now, rel=0.1)


def test_fast_sampling_in_bursts_is_uneven_and_bounded(clock: Clock) -> None:
    source = SimpleNamespace(read=lambda _: {}, read_fast=lambda _: {})
    burst = {"burst_s": 0.2, "burst_every_s": 0.5}
    seen = record(source, lambda _: clock.now > 5.0, hz=5.0, fast_hz=100.0, **burst)
    t = np.array(seen.fast.t)
    assert np.all(t % 0.5 < 0.201)
    assert np.diff(t)[np.diff(t) < 0.1].std() > 0.001


def test_pieces_are_cut_at_gaps_and_warped_by_cpu_time() -> None:
    t = [i * 0.1 for i in range(100)] + [20 + i * 0.1 for i in range(100)]
    cpu = [100.0] * 100 + [50.0] * 100
    series = Series(t, {"m": list(np.arange(200.0)), "cpu": cpu})
    window = Window(0.0, 40.0, 200, True, "")
    plain = pieces(series, window, ["m"], 5.0)
    assert [p.t.size for p in plain] == [50, 50, 50, 50]
    warped = pieces(series, window, ["m"], 50.0, clock="cpu")
    lengths = [p.t[-1] - p.t[0] for p in warped]
    assert lengths[0] / lengths[1] == pytest.approx(2.0, rel=0.02)
    # scaled so that both together last as long as by the wall clock
    assert sum(lengths) == pytest.approx(19.8, rel=0.02)
    assert pieces(series, window, ["m"], 5.0, clock="absent") == []
    assert pieces(Series(), window, ["m"], 5.0) == []


def test_sparklines() -> None:
    assert view.sparkline([]) == ""
    assert view.sparkline([NAN, NAN]) == ""
    assert view.sparkline([0, 50, 100], 3, 100.0) == " ▄█"
    assert view.number(NAN) == "-"
    assert view.number(12345.6) == "12,346"
