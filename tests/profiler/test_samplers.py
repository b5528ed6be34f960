"""What samplers read, and that what they cannot read is said and never made up."""

from __future__ import annotations

import importlib.util
import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.errors import BadOption, DriverMissing, GpuBusy, NoSuchGpu
from profiler.samplers import FIELDS, Combined, Rate, Sampler
from profiler.samplers import dcgm as dcgm_module
from profiler.samplers import nvml as nvml_module
from profiler.samplers.dcgm import DcgmSampler
from profiler.samplers.gpm import Gpm
from profiler.samplers.host import HostSampler
from profiler.samplers.nvml import (
    NvmlSampler,
    check_free,
    choose,
    field_number,
    list_gpus,
    open_nvml,
    survey,
)
from tests.profiler.fake_nvml import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    FakeGpu,
    FakeNvml,
)
from tests.waiting import until

GPM = {1: 90.0, 2: 70.0, 3: 30.0, 5: 25.0, 7: 24.0, 10: 50.0, 12: 10.0, 13: 2.0}


def sampler(nvml: Any, wanted: tuple[str, ...] = ("0",)) -> NvmlSampler:
    return NvmlSampler(nvml, choose(list_gpus(nvml), wanted))


def read_often(source: Sampler, times: int = 6, pids: tuple[int, ...] = (7,)) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(times):
        found = source.read(pids)
    return found


def test_a_full_gpu() -> None:
    gpu = FakeGpu("GPU-a", processes={7: 900.0, 8: 50.0}, gpm=GPM, used_mib=1500)
    gpu.counters = {197: 0, 198: 0, 138: 0, 139: 0}
    nvml = FakeNvml(gpu)
    source = sampler(nvml)
    read_often(source, 1)
    gpu.counters = {197: 100 * 2**20, 198: 2**20, 138: 1024, 139: 2048}
    found = read_often(source, 5)
    assert found["gpu0.util_pct"] == 80
    assert found["gpu0.mem_util_pct"] == 40
    assert found["gpu0.mem_used_mib"] == 1500
    assert found["gpu0.tree_mem_mib"] == 900  # not the neighbour's
    assert found["gpu0.tree_util_pct"] == 33
    assert found["gpu0.power_w"] == 250
    assert found["gpu0.sm_clock_mhz"] == 1980
    assert found["gpu0.mem_clock_mhz"] == 2619
    assert found["gpu0.pcie_tx_mib_s"] == pytest.approx(100 * found["gpu0.pcie_rx_mib_s"])
    assert found["gpu0.nvlink_rx_mib_s"] == pytest.approx(2 * found["gpu0.nvlink_tx_mib_s"])
    assert found["gpu0.sm_active_pct"] == 70
    assert found["gpu0.hmma_pct"] == 24
    assert source.missing == {}
    assert set(source.read_fast((7,))) == {"gpu0.power_w", "gpu0.sm_active_pct", "gpu0.dram_pct"}
    source.close()
    assert nvml.open_samples == 0
    assert all(key.split(".")[1] in FIELDS for key in found)


def test_a_recording_shows_nothing_of_the_one_before() -> None:
    gpu = FakeGpu("GPU-a", processes={7: 900.0}, gpm=GPM)
    gpu.counters = {197: 0, 198: 0}
    source = Combined([sampler(FakeNvml(gpu)), HostSampler()])
    first = source.read((7,))
    assert first["gpu0.sm_active_pct"] == 70
    gpu.processes = {7: 500.0}  # another job in the same process
    assert source.read((7,))["gpu0.tree_mem_mib"] == 900  # read every fifth time
    gpu.counters = {197: 2**30, 198: 2**30}
    source.begin()
    found = source.read((7,))
    assert found["gpu0.tree_mem_mib"] == 500
    assert math.isnan(found["gpu0.pcie_tx_mib_s"])
    assert math.isnan(found["host.cpu_pct"])
    assert "gpu0.sm_active_pct" not in found  # a mean since before it began
    assert "gpu0.sm_active_pct" not in source.read_fast((7,))
    assert read_often(source)["gpu0.sm_active_pct"] == 70
    assert source.read_fast((7,))["gpu0.sm_active_pct"] == 70
    source.close()


def test_refusals_for_good_are_named_and_not_asked_again() -> None:
    gpu = FakeGpu(
        "GPU-a",
        refuses={
            "nvmlDeviceGetProcessUtilization": NO_PERMISSION,
            "nvmlDeviceGetClockInfo": NOT_SUPPORTED,
            "nvmlDeviceGetComputeRunningProcesses": NO_PERMISSION,
        },
    )
    nvml = FakeNvml(gpu)
    source = sampler(nvml)
    found = read_often(source, 30)
    source.close()
    assert source.missing["gpu0.tree_util_pct"] == "no permission"
    assert source.missing["gpu0.tree_mem_mib"] == "no permission"
    assert source.missing["gpu0.sm_clock_mhz"] == "not supported by this GPU or mode"
    assert "Hopper" in source.missing["gpu0.sm_active_pct"]
    assert found["gpu0.util_pct"] == 80
    assert not {k for k in found if k in source.missing}
    assert nvml.calls["nvmlDeviceGetProcessUtilization"] == 1
    assert nvml.calls["nvmlDeviceGetClockInfo"] == 2  # two clocks, once each


def test_a_passing_failure_is_a_gap() -> None:
    gpu = FakeGpu("GPU-a")
    source = sampler(FakeNvml(gpu))
    assert source.read(())["gpu0.util_pct"] == 80
    gpu.refuses["nvmlDeviceGetUtilizationRates"] = TIMEOUT
    assert "gpu0.util_pct" not in source.read(())
    del gpu.refuses["nvmlDeviceGetUtilizationRates"]
    assert source.read(())["gpu0.util_pct"] == 80
    assert source.missing.keys() == {f"gpu0.{name}" for name in Gpm.FIELDS} | {
        "gpu0.nvlink_tx_mib_s",
        "gpu0.nvlink_rx_mib_s",
    }


def test_older_drivers_without_field_values() -> None:
    gpu = FakeGpu("GPU-a", refuses={"nvmlDeviceGetFieldValues": NOT_SUPPORTED})
    found = read_often(sampler(FakeNvml(gpu)))
    assert found["gpu0.power_w"] == 250  # the one-second mean, better than nothing
    assert found["gpu0.pcie_tx_mib_s"] == pytest.approx(1049 * 1000 / 2**20)


def test_mig_devices_say_what_is_missing() -> None:
    no = {
        "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
        "nvmlDeviceGetPowerUsage": NOT_SUPPORTED,
        "nvmlDeviceGetFieldValues": NOT_SUPPORTED,
        "nvmlDeviceGetProcessUtilization": NOT_SUPPORTED,
        "nvmlDeviceGetPcieThroughput": NOT_SUPPORTED,
    }
    parts = [
        FakeGpu("MIG-a", slot=0, refuses=no, gpm=GPM, total_mib=18000),
        FakeGpu("MIG-b", slot=3, refuses=no, gpm={**GPM, 1: 55.0}, total_mib=35000),
    ]
    whole = FakeGpu("GPU-a", name="NVIDIA H200", mig=parts, gpm=GPM)
    nvml = FakeNvml(whole, FakeGpu("GPU-b"))
    gpus = list_gpus(nvml)
    assert [gpu.label for gpu in gpus] == ["0:0", "0:3", "1"]
    assert gpus[1].name == "NVIDIA H200"
    source = sampler(nvml, ("0:3",))
    found = read_often(source)
    assert found["gpu0:3.engine_pct"] == 55.0  # of this instance, not of the whole GPU
    assert "gpu0:3.util_pct" not in found
    assert source.missing["gpu0:3.util_pct"].endswith("(MIG)")
    with pytest.raises(NoSuchGpu, match="split by MIG; choose one of 0:0, 0:3"):
        choose(gpus, ("0",))
    assert choose(gpus, ("MIG-b",)) == [gpus[1]]


def test_memory_of_a_process_that_the_driver_does_not_tell_is_unknown() -> None:
    source = sampler(FakeNvml(FakeGpu("GPU-a", processes={4242: 900.0})))
    assert math.isnan(read_often(source, pids=(7,))["gpu0.tree_mem_mib"])
    source.close()
    assert "namespace" in source.missing["gpu0.tree_mem_mib"]
    source = sampler(FakeNvml(FakeGpu("GPU-a", processes={7: None})))
    assert math.isnan(source.read((7,))["gpu0.tree_mem_mib"])


def test_a_lost_gpu_is_a_gap_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_module, "REOPEN_S", 0.0)
    lost = FakeGpu("GPU-a", gpm=GPM)
    source = sampler(FakeNvml(lost, FakeGpu("GPU-b")), ("0", "1"))
    source.read(())
    for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetHandleByUUID"):
        lost.refuses[name] = GPU_IS_LOST
    for _ in range(2):
        found = source.read(())
        assert source.missing["gpu0.util_pct"] == "the GPU is lost"
        assert not [key for key in found if key.startswith("gpu0.")]
        assert found["gpu1.util_pct"] == 80
        assert "gpu0.sm_active_pct" not in source.read_fast(())  # its samples were freed
    lost.refuses.clear()
    source.read(())
    assert source.read(())["gpu0.util_pct"] == 80
    assert "gpu0.util_pct" not in source.missing


@pytest.mark.parametrize("error", [1, 15])
@pytest.mark.parametrize("mig", [False, True])
def test_a_driver_that_was_reset_is_opened_again(
    error: int, mig: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_module, "REOPEN_S", 0.0)
    gpu = FakeGpu("GPU-a", gpm=GPM, mig=[FakeGpu("MIG-a", gpm=GPM)] if mig else None)
    nvml = FakeNvml(gpu)
    open_nvml(nvml)
    open_nvml(nvml)  # for somebody else in this process
    source = sampler(nvml, ("MIG-a" if mig else "GPU-a",))
    [channel] = [gpu.channel for gpu in source.gpus]
    source.read(())
    nvml.reset, nvml.broken = error, 9  # it does not come at once
    assert source.read(()) == {}
    assert f"{channel}.util_pct" in source.missing
    nvml.broken = 0
    source.read(())
    found = source.read(()) | source.read_fast(())
    assert (found[f"{channel}.util_pct"], found[f"{channel}.sm_active_pct"]) == (80, 70)
    assert f"{channel}.util_pct" not in source.missing
    source.close()
    assert nvml.open_samples == 0


def test_choosing() -> None:
    gpus = list_gpus(FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")))
    assert [g.uuid for g in choose(gpus, ("1", "GPU-a"))] == ["GPU-b", "GPU-a"]
    with pytest.raises(NoSuchGpu, match="'2' does not exist; this machine has: 0, 1"):
        choose(gpus, ("0", "2"))
    with pytest.raises(BadOption, match="twice"):
        choose(gpus, ("0", "GPU-a"))
    gpus = list_gpus(FakeNvml(FakeGpu("GPU-8932f937-d7"), FakeGpu("GPU-8931c0")))
    assert choose(gpus, ("GPU-8932f937",)) == gpus[:1]
    with pytest.raises(
        BadOption, match="'GPU-893' is the beginning of several UUIDs: GPU-8932f937"
    ):
        choose(gpus, ("GPU-893",))
    with pytest.raises(NoSuchGpu, match="'8932f937' does not exist"):
        choose(gpus, ("8932f937",))


def test_a_taken_gpu() -> None:
    seen = FakeGpu("GPU-a", processes={99: 10.0})
    hidden = FakeGpu("GPU-b", used_mib=9000)
    shy = FakeGpu("GPU-c", refuses={"nvmlDeviceGetComputeRunningProcesses": 4}, used_mib=80)
    nvml = FakeNvml(seen, hidden, shy)
    gpus = list_gpus(nvml)
    with pytest.raises(GpuBusy, match=r"GPU 0 is taken by another process \(pid 99\)"):
        check_free(nvml, gpus[:1])
    with pytest.raises(GpuBusy, match="9000 MiB in use by processes not visible"):
        check_free(nvml, gpus[1:2])
    check_free(nvml, gpus[2:])


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverMissing, match="no NVIDIA driver to talk to"):
        open_nvml(FakeNvml(broken=9))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DriverMissing, match="nvidia-ml-py is not installed"):
        open_nvml()


@pytest.mark.skipif(
    importlib.util.find_spec("pynvml") is None,
    reason="nvidia-ml-py is not installed: make test-profiler",
)
def test_the_fake_has_the_signatures_of_the_real_module() -> None:
    import pynvml

    for name, function in inspect.getmembers(FakeNvml, inspect.isfunction):
        if not name.startswith("nvml"):
            continue
        real = inspect.signature(inspect.unwrap(getattr(pynvml, name)))
        mine = [p for p in inspect.signature(function).parameters if p != "self"]
        assert len(mine) == len(real.parameters) or "args" in real.parameters, name
    request = pynvml.c_nvmlGpmMetricsGet_t()
    for attribute in ("version", "numMetrics", "sample1", "sample2", "metrics"):
        assert hasattr(request, attribute)
    for attribute in ("metricId", "nvmlReturn", "value"):
        assert hasattr(request.metrics[0], attribute)
    value = pynvml.c_nvmlFieldValue_t()
    for kind, number in ((0, "dVal"), (1, "uiVal"), (3, "ullVal"), (5, "siVal")):
        value.valueType = kind
        setattr(value.value, number, 12)
        assert field_number(value) == 12
    assert (pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.nvmlMemory_v2) == (186, 0x2000028)


def test_the_host_sees_a_busy_tree() -> None:
    code = "d = bytearray(60 * 2**20)\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        source = HostSampler()
        pids = [child.pid]
        first = source.read(pids)
        assert math.isnan(first["host.cpu_pct"])  # a rate needs two readings

        def grown(read: Callable[[list[int]], dict[str, float]]) -> dict[str, float] | None:
            return found if (found := read(pids))["host.rss_mib"] > 60 else None

        def busy() -> dict[str, float] | None:
            return found if (found := grown(source.read)) and found["host.cpu_pct"] > 5 else None

        found = until(busy, "60 MiB and a busy child")
        assert found is not None
        assert found["host.cpu_pct"] < 150
        assert found["host.rss_mib"] < 200
        assert found["host.processes"] == 1
        fast = until(lambda: grown(source.read_fast), "60 MiB")
        assert fast is not None
        assert fast["host.rss_mib"] < 200
        assert source.device == "cpu"
        assert not any("gpu" in key for key in found)
    finally:
        child.kill()
        child.wait()
    gone = source.read(pids)
    assert gone["host.processes"] == 0
    assert gone["host.cpu_pct"] >= 0  # what it had used is not taken back
    source.read_fast(pids)
    assert source.read_fast([]) == {}
    source.close()


def test_rates() -> None:
    rate = Rate()
    assert math.isnan(rate(1.0, 100))
    assert rate(3.0, 200) == 50
    assert math.isnan(rate(4.0, 10))  # the counter began anew
    assert math.isnan(rate(4.0, 20))  # no time has passed
    assert rate(5.0, 30) == 10


def test_dcgm_fields_and_a_read_that_fails_is_a_gap() -> None:
    values = {4: {1002: 0.5, 1004: 0.25, 1005: 9.2e18}, 5: {1002: 1.0}}
    fails = RuntimeError("the host engine restarts")
    answers, closed = iter([values, values, fails, values, values]), list[bool]()

    def latest() -> dict[int, dict[int, float]]:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    def reader(**options: Any) -> SimpleNamespace:
        assert options["updateFrequency"] == 100_000
        return SimpleNamespace(
            GetLatestGpuValuesAsFieldIdDict=latest,
            m_gpuIdToUUId={4: "GPU-a", 5: "GPU-z"},
            Shutdown=lambda: closed.append(True),
        )

    gpus = list_gpus(FakeNvml(FakeGpu("GPU-a")))
    source = DcgmSampler(gpus, SimpleNamespace(DcgmReader=reader))
    found = source.read(())
    assert found["gpu0.sm_active_pct"] == 50
    assert found["gpu0.tensor_pct"] == 25
    assert math.isnan(found["gpu0.dram_pct"])
    assert math.isnan(source.read(())["gpu0.sm_active_pct"])
    assert source.read(())["gpu0.sm_active_pct"] == 50
    # where NVML has no such counters DCGM fills in, and the other way round
    both = Combined([sampler(FakeNvml(FakeGpu("GPU-a", gpm=GPM))), source])
    assert both.read(())["gpu0.sm_active_pct"] == 70
    both.close()
    assert closed


def test_dcgm_without_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise RuntimeError("host engine is not running")

    gpus = list_gpus(FakeNvml(FakeGpu("GPU-a")))
    source = DcgmSampler(gpus, SimpleNamespace(DcgmReader=refuse))
    assert source.read(()) == {}
    assert "host engine is not running" in source.missing["gpu0.tensor_pct"]
    monkeypatch.setattr(dcgm_module, "PLACES", ())
    monkeypatch.delenv("DCGM_PYTHON", raising=False)
    assert dcgm_module.bindings() is None


def test_dcgm_is_found_where_it_is_said_to_be(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "DcgmReader.py").write_text("WHO = 'here'\n")
    monkeypatch.setenv("DCGM_PYTHON", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert dcgm_module.bindings().WHO == "here"
    sys.modules.pop("DcgmReader")


@pytest.mark.parametrize(
    "refuses",
    [
        {"nvmlDeviceGetMemoryInfo": 3},  # a GB10
        {"nvmlDeviceGetMemoryInfo": 4, "nvmlDeviceGetMigMode": 4},  # MIG, in a container
        {"nvmlDeviceGetName": 4},
    ],
)
def test_what_one_gpu_refuses_costs_none_of_the_others(refuses: dict[str, int]) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b", refuses=refuses))
    gpus = list_gpus(nvml)
    assert [gpu.uuid for gpu in gpus] == ["GPU-a", "GPU-b"]
    check_free(nvml, gpus)
    described = NvmlSampler(nvml, gpus).describe()
    assert described[1]["memory_mib"] == (None if "nvmlDeviceGetMemoryInfo" in refuses else 24000)


@pytest.mark.parametrize(
    "function",
    ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUUID"],
)
def test_a_lost_gpu_is_named_and_the_others_are_listed(function: str) -> None:
    lost = FakeGpu("GPU-b", refuses={function: GPU_IS_LOST})
    found = survey(FakeNvml(FakeGpu("GPU-a"), lost, FakeGpu("GPU-c")))
    assert [gpu.label for gpu in found.gpus] == ["0", "2"]
    assert found.words() == "GPU 1 does not answer: the GPU is lost"


@pytest.mark.parametrize(
    "name", ["NVIDIA GH200 480GB", "NVIDIA GB10", "NVIDIA GB200", "Orin (nvgpu)"]
)
def test_memory_in_use_says_nothing_where_it_is_the_hosts_too(name: str) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", name=name, used_mib=6000))
    check_free(nvml, list_gpus(nvml))
    busy = FakeNvml(FakeGpu("GPU-a", name=name, used_mib=6000, processes={1: 5.0}))
    with pytest.raises(GpuBusy, match="pid 1"):
        check_free(busy, list_gpus(busy))


def test_an_idle_server_of_mps_takes_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", processes={4242: 30.0}))
    names = {4242: "nvidia-cuda-mps"}
    monkeypatch.setattr("profiler.procs.name", lambda pid: names.get(pid, "python"))
    check_free(nvml, list_gpus(nvml))
    nvml.gpus[0].processes[4243] = 5.0  # a client
    with pytest.raises(GpuBusy, match="pid 4243"):
        check_free(nvml, list_gpus(nvml))
