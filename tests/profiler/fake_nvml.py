"""A stand-in for the pynvml module: GPUs with settings, MIG, refusals, and processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 2**20
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 3, 4, 6, 10, 15


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return f"NVML error {self.value}"


@dataclass
class FakeGpu:
    """One GPU. `refuses` maps a function of NVML to the error it answers with."""

    uuid: str
    name: str = "NVIDIA Fake"
    util: Callable[[], tuple[int, int]] = lambda: (80, 40)
    used_mib: float = 300.0
    total_mib: float = 24000.0
    processes: dict[int, float | None] = field(default_factory=dict)
    power_mw: int = 250_000
    refuses: dict[str, int] = field(default_factory=dict)
    mig: list[FakeGpu] | None = None
    slot: int = 0
    gpm: dict[int, float] | None = None  # metric id -> value; None: before Hopper
    counters: dict[int, float] = field(default_factory=dict)  # field id -> value


class FakeNvml:
    """The functions of pynvml that the profiler calls, over `gpus`."""

    NVMLError = NVMLError

    def __init__(self, *gpus: FakeGpu, broken: int = 0) -> None:
        self.gpus, self.broken = list(gpus), broken
        self.open_samples = 0
        self.holders, self.reset = 0, 0  # reset: the error of a library that never saw it
        self.calls: dict[str, int] = {}

    def _ask(self, gpu: FakeGpu, function: str) -> None:
        self.calls[function] = self.calls.get(function, 0) + 1
        if self.reset:
            raise NVMLError(self.reset)
        if function in gpu.refuses:
            raise NVMLError(gpu.refuses[function])

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError(self.broken)
        self.holders += 1

    def nvmlShutdown(self) -> None:
        if not self.holders:
            raise NVMLError(1)
        self.holders -= 1
        if not self.holders:
            self.reset = 0

    def nvmlSystemGetDriverVersion(self) -> str:
        if not self.holders:
            raise NVMLError(1)
        return "580.0"

    def nvmlSystemGetNVMLVersion(self) -> str:
        return "13.580"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._ask(self.gpus[index], "nvmlDeviceGetHandleByIndex")
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        everything = [part for gpu in self.gpus for part in (gpu, *(gpu.mig or []))]
        found = next(gpu for gpu in everything if gpu.uuid == uuid)
        self._ask(found, "nvmlDeviceGetHandleByUUID")
        return found

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, migDevice: FakeGpu) -> FakeGpu:
        return next(gpu for gpu in self.gpus if migDevice in (gpu.mig or []))

    def nvmlDeviceGetMigMode(self, device: FakeGpu) -> list[int]:
        self._ask(device, "nvmlDeviceGetMigMode")
        return [int(device.mig is not None), int(device.mig is not None)]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> FakeGpu:
        for part in device.mig or []:
            if part.slot == index:
                return part
        raise NVMLError(NOT_FOUND)

    def nvmlDeviceGetGpuInstanceId(self, device: FakeGpu) -> int:
        self._ask(device, "nvmlDeviceGetGpuInstanceId")
        return 11 + device.slot

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> str:
        self._ask(handle, "nvmlDeviceGetUUID")
        return handle.uuid

    def nvmlDeviceGetName(self, handle: FakeGpu) -> str:
        self._ask(handle, "nvmlDeviceGetName")
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: int | None = None) -> Any:
        self._ask(handle, "nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=handle.total_mib * MIB, used=handle.used_mib * MIB)

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:
        self._ask(handle, "nvmlDeviceGetUtilizationRates")
        gpu, memory = handle.util()
        return SimpleNamespace(gpu=gpu, memory=memory)

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> int:
        self._ask(handle, "nvmlDeviceGetPowerUsage")
        return handle.power_mw

    def nvmlDeviceGetClockInfo(self, handle: FakeGpu, type: int) -> int:
        self._ask(handle, "nvmlDeviceGetClockInfo")
        return {1: 1980, 2: 2619}[type]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> int:
        self._ask(handle, "nvmlDeviceGetCurrentClocksEventReasons")
        return 4

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> list[Any]:
        self._ask(handle, "nvmlDeviceGetComputeRunningProcesses")
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)
            for pid, mib in handle.processes.items()
        ]

    def nvmlDeviceGetProcessUtilization(self, handle: FakeGpu, timeStamp: int) -> list[Any]:
        self._ask(handle, "nvmlDeviceGetProcessUtilization")
        return [
            SimpleNamespace(pid=pid, timeStamp=timeStamp + 1, smUtil=33) for pid in handle.processes
        ]

    def nvmlDeviceGetPcieThroughput(self, device: FakeGpu, counter: int) -> int:
        self._ask(device, "nvmlDeviceGetPcieThroughput")
        return 1049 * (counter + 1)

    def nvmlDeviceGetFieldValues(self, handle: FakeGpu, fieldIds: list[Any]) -> list[Any]:
        self._ask(handle, "nvmlDeviceGetFieldValues")
        values = {**handle.counters, 186: handle.power_mw}
        found = []
        for each in fieldIds:
            number = each[0] if isinstance(each, tuple) else each
            known = number in values
            found.append(
                SimpleNamespace(
                    nvmlReturn=0 if known else NOT_SUPPORTED,
                    valueType=3,
                    value=SimpleNamespace(ullVal=values.get(number, 0)),
                )
            )
        return found

    def nvmlGpmQueryDeviceSupport(self, device: FakeGpu) -> Any:
        self._ask(device, "nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int(device.gpm is not None))

    def nvmlGpmSampleAlloc(self) -> Any:
        self.open_samples += 1
        return SimpleNamespace(gpu=None)

    def nvmlGpmSampleFree(self, gpmSample: Any) -> None:
        self.open_samples -= 1

    def nvmlGpmSampleGet(self, device: FakeGpu, gpmSample: Any) -> Any:
        self._ask(device, "nvmlGpmSampleGet")
        gpmSample.gpu = device
        return gpmSample

    def nvmlGpmMigSampleGet(self, device: FakeGpu, gpuInstanceId: int, gpmSample: Any) -> Any:
        self._ask(device, "nvmlGpmMigSampleGet")
        gpmSample.gpu = next(p for p in device.mig or [] if 11 + p.slot == gpuInstanceId)
        return gpmSample

    @staticmethod
    def c_nvmlGpmMetricsGet_t() -> Any:
        metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(64)]
        return SimpleNamespace(version=0, numMetrics=0, sample1=None, sample2=None, metrics=metrics)

    def nvmlGpmMetricsGet(self, metricsGet: Any) -> Any:
        assert metricsGet.version == 1
        gpu = metricsGet.sample2.gpu
        assert metricsGet.sample1.gpu is gpu
        for metric in metricsGet.metrics[: metricsGet.numMetrics]:
            known = metric.metricId in gpu.gpm
            metric.nvmlReturn = 0 if known else NOT_SUPPORTED
            metric.value = gpu.gpm.get(metric.metricId, 0.0)
        return metricsGet
