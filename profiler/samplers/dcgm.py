"""Samples DCGM's profiling fields, if its Python bindings and a host engine are installed.

It gives on GPUs from Volta to Ada what `profiler.samplers.gpm` gives from Hopper on. The bindings
come with the datacenter-gpu-manager package, not from PyPI, and are looked for in that package's
folders.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from profiler.samplers import NAN, Device, Reading
from profiler.samplers.nvml import Gpu

# DCGM_FI_PROF_* -> our field; DCGM gives ratios, we give percent
FIELDS = {
    1002: "sm_active_pct",
    1003: "sm_occupancy_pct",
    1004: "tensor_pct",
    1005: "dram_pct",
    1007: "fp32_pct",
    1008: "fp16_pct",
}
PLACES = (
    "/usr/share/datacenter-gpu-manager-4/bindings/python3",
    "/usr/local/dcgm/bindings/python3",
)
UPDATE_US = 100_000


def bindings() -> Any:
    """Return DCGM's Python module `DcgmReader`, or None if it is not installed or cannot be
    imported. It is looked for in the folder named by DCGM_PYTHON, then in `PLACES`."""
    extra = os.environ.get("DCGM_PYTHON", "")
    for place in (extra, *PLACES):
        if place and (Path(place) / "DcgmReader.py").is_file():
            if place not in sys.path:
                sys.path.append(place)
            try:
                return importlib.import_module("DcgmReader")
            except Exception:  # bindings without their library raise what they like
                return None
    return None


class DcgmSampler:
    """Samples SM activity and other profiling fields of whole GPUs: the latest values of DCGM's
    host engine."""

    device: Device = "gpu"

    def __init__(self, gpus: Sequence[Gpu], module: Any) -> None:
        self.missing: dict[str, str] = {}
        self._gpus = {gpu.uuid: gpu for gpu in gpus if not gpu.mig}
        self._reader: Any = None
        for gpu in gpus:
            if gpu.mig:
                self._refuse(gpu, "DCGM fields are read for whole GPUs only")
        try:
            self._reader = module.DcgmReader(
                fieldIds=list(FIELDS),
                updateFrequency=UPDATE_US,
                maxKeepAge=60.0,
                fieldGroupName=f"pellucid_{os.getpid()}",
            )
            self._reader.GetLatestGpuValuesAsFieldIdDict()  # connects
        except Exception as error:  # its exception classes are made at run time
            self._reader = None
            for gpu in self._gpus.values():
                self._refuse(gpu, f"DCGM: {str(error) or type(error).__name__}")

    def _refuse(self, gpu: Gpu, why: str) -> None:
        for name in FIELDS.values():
            self.missing[f"{gpu.channel}.{name}"] = why

    def begin(self) -> None:
        return None

    def read(self, pids: Sequence[int]) -> Reading:
        found: Reading = {}
        if self._reader is None:
            return found
        try:
            values = self._reader.GetLatestGpuValuesAsFieldIdDict()
        except Exception:  # its host engine restarts: a gap, and the bindings connect again
            channels = [gpu.channel for gpu in self._gpus.values()]
            return {f"{channel}.{name}": NAN for channel in channels for name in FIELDS.values()}
        for number, uuid in self._reader.m_gpuIdToUUId.items():
            gpu = self._gpus.get(uuid)
            if gpu is None:
                continue
            for key, name in FIELDS.items():
                value = values.get(number, {}).get(key, NAN)
                # blanks are huge sentinels in DCGM; a ratio is at most 1
                found[f"{gpu.channel}.{name}"] = 100 * value if 0 <= value <= 1.001 else NAN
        return found

    def read_fast(self, pids: Sequence[int]) -> Reading:
        return {}

    def describe(self) -> list[dict[str, object]]:
        return []

    def close(self) -> None:
        if self._reader is not None:
            self._reader.Shutdown()
