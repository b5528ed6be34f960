"""Reading a device from outside: the protocol `Sampler`, which several sources implement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Device = Literal["gpu", "cpu"]
Reading = dict[str, float]  # "channel.field" -> value; NaN: not known at this moment
NAN = math.nan

# field -> (unit, meaning). What a channel cannot give is listed in `missing`, never made up.
FIELDS: dict[str, tuple[str, str]] = {
    "util_pct": ("%", "share of time a kernel was running (not how full the GPU was)"),
    "mem_util_pct": ("%", "share of time device memory was read or written"),
    "mem_used_mib": ("MiB", "device memory in use, by all processes"),
    "tree_mem_mib": ("MiB", "device memory held by the command's processes"),
    "tree_util_pct": ("%", "SM utilisation by the command's processes"),
    "power_w": ("W", "power drawn by the board"),
    "sm_clock_mhz": ("MHz", "SM clock"),
    "mem_clock_mhz": ("MHz", "memory clock"),
    "clock_limits": ("bits", "why the clocks are held down, as NVML's bit mask"),
    "pcie_tx_mib_s": ("MiB/s", "sent over PCIe"),
    "pcie_rx_mib_s": ("MiB/s", "received over PCIe"),
    "nvlink_tx_mib_s": ("MiB/s", "sent over NVLink"),
    "nvlink_rx_mib_s": ("MiB/s", "received over NVLink"),
    "engine_pct": ("%", "share of time a kernel was running, from the performance counters"),
    "sm_active_pct": ("%", "share of cycles in which an SM had a warp, mean over SMs"),
    "sm_occupancy_pct": ("%", "resident warps of the possible"),
    "tensor_pct": ("%", "cycles in which tensor cores were active"),
    "hmma_pct": ("%", "cycles of half-precision (also TF32) matrix instructions"),
    "fp32_pct": ("%", "cycles of the FP32 pipe"),
    "fp16_pct": ("%", "cycles of the FP16 pipe"),
    "dram_pct": ("%", "device memory bandwidth of the possible"),
    "cpu_pct": ("%", "CPU of the command's processes; 100 is one core"),
    "main_cpu_pct": ("%", "CPU of the main threads of its heaviest processes"),
    "rss_mib": ("MiB", "resident host memory of the command's processes"),
    "read_mib_s": ("MiB/s", "read by the command's processes (read calls)"),
    "write_mib_s": ("MiB/s", "written by the command's processes"),
    "processes": ("", "processes of the command"),
}


class Sampler(Protocol):
    """A source of readings about one device and one process tree.

    Attributes:
        device: whether the figures describe GPUs or the CPU. CPU figures are never given as GPU
            figures.
        missing: "channel.field" -> why this field cannot be read here; entries are added when a
            source refuses one.
    """

    device: Device
    missing: dict[str, str]

    def begin(self) -> None:
        """Called when a recording begins. Rates and means that are read later count from then
        on."""
        ...

    def read(self, pids: Sequence[int]) -> Reading:
        """Return all readings; called at the slow rate, 1-20 Hz. Rates are those since the previous
        call. In the first call they are NaN or left out."""
        ...

    def read_fast(self, pids: Sequence[int]) -> Reading:
        """Return readings of the few signals that are cheap to read and in which single training
        steps show. Called at the fast rate, up to 100 Hz if not chosen otherwise."""
        ...

    def describe(self) -> list[dict[str, object]]:
        """Return the devices that are sampled, with names, ids and sizes."""
        ...

    def close(self) -> None: ...


@dataclass
class Combined:
    """Several samplers read as one: their readings are merged. Of two values for one field, the
    first that is known counts, or at the fast rate the last."""

    parts: Sequence[Sampler]
    device: Device = field(init=False)

    def __post_init__(self) -> None:
        self.device = "gpu" if any(part.device == "gpu" for part in self.parts) else "cpu"

    @property
    def missing(self) -> dict[str, str]:
        return {key: why for part in self.parts for key, why in part.missing.items()}

    @missing.setter
    def missing(self, value: Mapping[str, str]) -> None:
        raise AttributeError("set by the parts")

    def begin(self) -> None:
        for part in self.parts:
            part.begin()

    def read(self, pids: Sequence[int]) -> Reading:
        found: Reading = {}
        for part in self.parts:
            for key, value in part.read(pids).items():
                if math.isnan(found.get(key, NAN)):  # the first source that knows
                    found[key] = value
        return found

    def read_fast(self, pids: Sequence[int]) -> Reading:
        found: Reading = {}
        for part in self.parts:
            found |= part.read_fast(pids)
        return found

    def describe(self) -> list[dict[str, object]]:
        return [each for part in self.parts for each in part.describe()]

    def close(self) -> None:
        for part in self.parts:
            part.close()


class Rate:
    """Turns readings of a counter into rates per second. The rate is NaN at the first reading, and
    at the first after the counter was reset."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None

    def __call__(self, t: float, counter: float) -> float:
        last, self._last = self._last, (t, counter)
        if last is None or t <= last[0] or counter < last[1]:
            return NAN
        return (counter - last[1]) / (t - last[0])
