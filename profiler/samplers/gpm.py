"""GPU performance monitoring through NVML (Hopper and later): SM activity, tensor cores, DRAM.

These are the counters that DCGM offers as profiling fields, read without its daemon. A figure is
the mean since the reading before.
"""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from profiler.samplers import NAN, Reading

# metric id -> field (nvmlGpmMetricId_t)
METRICS = {
    1: "engine_pct",
    2: "sm_active_pct",
    3: "sm_occupancy_pct",
    5: "tensor_pct",
    7: "hmma_pct",
    10: "dram_pct",
    12: "fp32_pct",
    13: "fp16_pct",
}
VERSION = 1


class Gpm:
    """Reads the counters of one GPU, or of one MIG instance of it. Each reading needs two samples,
    the former and a new one."""

    FIELDS: ClassVar[tuple[str, ...]] = tuple(METRICS.values())
    STEPS: ClassVar[tuple[str, ...]] = ("sm_active_pct", "dram_pct")  # where a step shows

    def __init__(
        self, nvml: Any, handle: Any, instance: int | None, fields: tuple[str, ...] = FIELDS
    ) -> None:
        self.nvml, self.handle, self.instance = nvml, handle, instance
        self.metrics = {k: name for k, name in METRICS.items() if name in fields}
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise ValueError("GPU performance monitoring needs Hopper or later")
        self._old, self._new = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._take(self._old)
        self.begins = False

    def _take(self, sample: Any) -> None:
        if self.instance is None:
            self.nvml.nvmlGpmSampleGet(self.handle, sample)
        else:
            self.nvml.nvmlGpmMigSampleGet(self.handle, self.instance, sample)

    def read(self) -> Reading:
        """Take a reading, and return the means since the previous one, percent; NaN for a metric
        that the driver refuses.

        Return {} for the first reading of a recording (`begins`).
        """
        self._take(self._new)
        if self.begins:
            self._old, self._new, self.begins = self._new, self._old, False
            return {}
        request = self.nvml.c_nvmlGpmMetricsGet_t()
        request.version = VERSION
        request.numMetrics = len(self.metrics)
        request.sample1, request.sample2 = self._old, self._new
        for place, metric in enumerate(self.metrics):
            request.metrics[place].metricId = metric
        self.nvml.nvmlGpmMetricsGet(request)
        self._old, self._new = self._new, self._old
        found: Reading = {}
        for place, name in enumerate(self.metrics.values()):
            metric = request.metrics[place]
            found[name] = float(metric.value) if metric.nvmlReturn == 0 else NAN
        return found

    def close(self) -> None:
        for sample in (self._old, self._new):
            with contextlib.suppress(self.nvml.NVMLError):
                self.nvml.nvmlGpmSampleFree(sample)
