"""NVIDIA GPUs through NVML (nvidia-ml-py): lists them, checks whether they are free, and samples
them.

Every quantity is read by a *probe*. A probe that the driver refuses for good (not supported, no
permission, MIG) is dropped, and its reason kept in `missing`; a temporary failure yields NaN. After
a reset of the driver or of a GPU the library is initialised again. The `pynvml` module is a
parameter, so that tests can pass a fake one.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from profiler import procs
from profiler.errors import BadOption, DriverMissing, DriverSilent, GpuBusy, NoSuchGpu
from profiler.samplers import NAN, Device, Rate, Reading
from profiler.samplers.gpm import Gpm

# nvmlReturn_t and field ids are a stable ABI; written here so that a fake need not repeat them
FOR_GOOD = {
    2: "the driver does not know this query",
    3: "not supported by this GPU or mode",
    4: "no permission",
    13: "this driver is too old for it",
    25: "the library is too old for it",
}
# these pass when the driver, or the GPU, was reset; a library initialised before it never sees that
LOST = {1: "the driver is not initialised", 15: "the GPU is lost"}
ABSENT = (9, 12)  # no driver is loaded; no library
# on these the host's memory is the GPU's, too: what is in use says nothing of who computes
UNIFIED = re.compile(r"\b(?:GH|GB)\d{2,3}\b|\b(?:Orin|Thor|Xavier|Tegra)\b", re.IGNORECASE)
ATS = 2  # addressing mode of a GPU that shares its page tables with the host
REOPEN_S, REOPEN_MAX_S = 1.0, 60.0  # between attempts; twice as long after each that fails
MOST_HOLDERS = 64  # of the library in this process: it counts how often it was initialised
POWER_INSTANT, PCIE_TX, PCIE_RX, NVLINK_TX, NVLINK_RX = 186, 197, 198, 138, 139
ALL_LINKS = 0xFFFFFFFF
MEMORY_V2 = 0x2000028
MPS = "nvidia-cuda-mps"  # as the kernel cuts its server's name
TAKEN_MIB = 1024.0  # memory in use without a visible owner: hidden processes, not driver overhead
# every fifth reading is enough of what costs most (H100, driver 580: all performance counters
# 1.5 ms, processes 2.0, PCIe 0.6, the rest 0.05 or less)
SLOW_EVERY = 5


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG device of one.

    Attributes:
        label: name used in options: ``0``, or ``0:1`` for the second MIG device of GPU 0.
        uuid: id that CUDA_VISIBLE_DEVICES takes.
        memory_mib: memory of the device, MiB; NaN if the driver does not give it.
        unified: whether GPU and host share one memory.
    """

    label: str
    uuid: str
    name: str
    memory_mib: float
    handle: Any = field(compare=False, repr=False)
    parent: Any = field(default=None, compare=False, repr=False)
    instance: int | None = None
    unified: bool = False

    @property
    def channel(self) -> str:
        return f"gpu{self.label}"

    @property
    def mig(self) -> bool:
        return self.parent is not None


def open_nvml(module: Any = None) -> Any:
    """Return the initialised pynvml module. Raises DriverMissing, which says whether the module or
    the driver is missing, or DriverSilent if the driver does not answer."""
    if module is None:
        try:
            module = importlib.import_module("pynvml")
        except ImportError:
            raise DriverMissing(
                "nvidia-ml-py is not installed: pip install 'pellucid[profiler]'"
            ) from None
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if getattr(error, "value", 0) in ABSENT:
            raise DriverMissing(f"no NVIDIA driver to talk to ({_text(error)})") from None
        raise DriverSilent(f"the NVIDIA driver does not answer ({_text(error)})") from None
    return module


def _text(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _decode(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class Survey:
    """The GPUs of this host, as the driver reports them.

    Attributes:
        gpus: the GPUs that answer; a GPU in MIG mode is replaced by its MIG devices.
        silent: label -> why this GPU does not answer, for the others.
    """

    gpus: list[Gpu]
    silent: dict[str, str]

    def words(self) -> str:
        """Return as text which GPUs do not answer, and why. Return "" if all answer."""
        return "; ".join(
            f"GPU {label} does not answer: {why}" for label, why in self.silent.items()
        )


def survey(nvml: Any) -> Survey:
    """Return the GPUs of this host. An error at one GPU does not hide the others.

    Raises DriverSilent if the driver does not even give their number.
    """
    found = Survey([], {})
    for index in range(count(nvml)):
        one = survey_one(nvml, index)
        found.gpus.extend(one.gpus)
        found.silent.update(one.silent)
    return found


def count(nvml: Any) -> int:
    """Return the number of GPUs of this host, including those that do not answer. Raise
    DriverSilent if the driver does not answer."""
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise DriverSilent(f"the NVIDIA driver does not answer ({_text(error)})") from None


def survey_one(nvml: Any, index: int) -> Survey:
    """Return the survey of the GPU with number `index`: the GPU, or its MIG devices if it is in MIG
    mode."""
    try:
        return Survey(_at(nvml, index), {})
    except nvml.NVMLError as error:
        number = getattr(error, "value", 0)
        why = LOST.get(number) or FOR_GOOD.get(number) or _text(error)
        return Survey([], {str(index): why})


def list_gpus(nvml: Any) -> list[Gpu]:
    """Return the GPUs of this host that answer. A GPU in MIG mode is replaced by its MIG
    devices."""
    return survey(nvml).gpus


def _at(nvml: Any, index: int) -> list[Gpu]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    try:
        mig = bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError as error:
        if getattr(error, "value", 0) in LOST:
            raise
        mig = False
    if not mig:
        return [_gpu(nvml, str(index), handle)]
    found = []
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except nvml.NVMLError:  # slots need not be contiguous
            continue
        found.append(_gpu(nvml, f"{index}:{slot}", part, handle))
    return found


def _gpu(nvml: Any, label: str, handle: Any, parent: Any = None) -> Gpu:
    """Return a `Gpu` with all that the driver reports of it. Raises NVMLError if the GPU is lost,
    or has no UUID.

    Args:
        parent: handle of the GPU that a MIG device is part of.
    """
    instance = None
    if parent is not None:
        try:
            instance = int(nvml.nvmlDeviceGetGpuInstanceId(handle))
        except nvml.NVMLError:
            instance = None
    name = ""
    for named in (parent, handle):
        if named is not None and not name:  # in a container the parent may be out of reach
            with contextlib.suppress(nvml.NVMLError):
                name = _decode(nvml.nvmlDeviceGetName(named))
    memory = NAN
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**20
    except nvml.NVMLError as error:
        if getattr(error, "value", 0) not in FOR_GOOD:
            raise
    uuid = _decode(nvml.nvmlDeviceGetUUID(handle))
    unified = UNIFIED.search(name) is not None or _shares_pages(nvml, handle)
    return Gpu(
        label=label,
        uuid=uuid,
        name=name or "unknown",
        memory_mib=memory,
        handle=handle,
        parent=parent,
        instance=instance,
        unified=unified,
    )


def _shares_pages(nvml: Any, handle: Any) -> bool:
    try:  # younger than most drivers and bindings
        return int(nvml.nvmlDeviceGetAddressingMode(handle).value) == ATS
    except Exception:  # each has its own way not to know it
        return False


def choose(gpus: Sequence[Gpu], wanted: Sequence[str]) -> list[Gpu]:
    """Return GPUs by label (``0``, ``0:1``) or UUID, all of `wanted` in that order. A UUID may be
    shortened to its beginning, as for CUDA.

    Raises NoSuchGpu if a GPU does not exist or is split by MIG, and BadOption if the beginning of a
    UUID is ambiguous or a GPU is named twice.
    """
    found: list[Gpu] = []
    for name in wanted:
        matches = [gpu for gpu in gpus if name in (gpu.label, gpu.uuid)]
        if not matches and name.startswith(("GPU-", "MIG-")):
            matches = [gpu for gpu in gpus if gpu.uuid.startswith(name)]
        if len(matches) > 1:
            fits = ", ".join(gpu.uuid for gpu in matches)
            raise BadOption(f"GPU {name!r} is the beginning of several UUIDs: {fits}")
        parts = [gpu.label for gpu in gpus if gpu.label.startswith(f"{name}:")]
        if not matches and parts:
            raise NoSuchGpu(f"GPU {name} is split by MIG; choose one of {', '.join(parts)}")
        if not matches:
            there = ", ".join(gpu.label for gpu in gpus) or "none"
            raise NoSuchGpu(f"GPU {name!r} does not exist; this machine has: {there}")
        if matches[0] in found:
            raise BadOption(f"GPU {name!r} is named twice")
        found.append(matches[0])
    return found


def check_free(nvml: Any, gpus: Iterable[Gpu]) -> None:
    """Raise GpuBusy if a process already computes on one of the GPUs. Also raise it if more than
    `TAKEN_MIB` of a GPU's own memory are in use and no process is seen that computes."""
    for gpu in gpus:
        owners = _owners(nvml, gpu)
        if owners:
            who = ", ".join(f"pid {pid}" for pid in sorted(owners)[:5])
            raise GpuBusy(
                f"GPU {gpu.label} is taken by another process ({who}); "
                "choose another or pass --shared"
            )
        used = 0.0
        with contextlib.suppress(nvml.NVMLError):  # one that does not give it
            used = _memory(nvml, gpu.handle)
        if used > TAKEN_MIB and not gpu.unified:
            raise GpuBusy(
                f"GPU {gpu.label} is taken: {used:.0f} MiB in use by processes not visible from "
                "here; choose another or pass --shared"
            )


def _owners(nvml: Any, gpu: Gpu) -> list[int]:
    """Return the pids of the processes that compute on a GPU; [] if the driver does not report
    them. The MPS server is left out, because it stays when no client computes."""
    try:
        found = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)]
        return [pid for pid in found if procs.name(pid) != MPS]
    except nvml.NVMLError:
        return []  # the memory in use still tells


def _memory(nvml: Any, handle: Any) -> float:
    """Return the device memory in use, MiB. The driver's own reserve is left out if the driver
    reports it."""
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(handle, version=MEMORY_V2)
    except (nvml.NVMLError, TypeError):
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return float(info.used) / 2**20


def glance(nvml: Any, gpu: Gpu) -> Reading:
    """Return the present utilisation (percent), memory in use (MiB) and power (W) of a GPU. Values
    that it does not report are left out.
    """
    probes: dict[str, Callable[[], float]] = {
        "util_pct": lambda: float(nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu),
        "mem_used_mib": lambda: _memory(nvml, gpu.handle),
        "power_w": lambda: float(nvml.nvmlDeviceGetPowerUsage(gpu.handle)) / 1000,
    }
    found: Reading = {}
    for name, probe in probes.items():
        with contextlib.suppress(nvml.NVMLError):
            found[name] = probe()
    return {name: value for name, value in found.items() if not math.isnan(value)}


Probe = Callable[[Sequence[int], float], Reading]


class _Watch:
    """The probes of one GPU: one function for each quantity that is read."""

    def __init__(self, nvml: Any, gpu: Gpu, missing: dict[str, str]) -> None:
        self.nvml, self.gpu, self.missing = nvml, gpu, missing
        self.rates = {name: Rate() for name in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx")}
        self.last_process_sample = 0
        self.turn = 0
        self.held: Reading = {}
        self.own_pids_seen = self.foreign_pids_seen = False
        self.lost = False  # until it is opened again
        self.gpm: Gpm | None = None
        try:
            self.gpm = Gpm(nvml, gpu.parent if gpu.mig else gpu.handle, gpu.instance)
        except nvml.NVMLError as error:
            self._drop(Gpm.FIELDS, error)
        except (AttributeError, ValueError) as error:
            self._refuse(Gpm.FIELDS, str(error))
        if gpu.mig and gpu.instance is None and self.gpm is not None:
            self.gpm = None
            self._refuse(Gpm.FIELDS, "the MIG instance id could not be read")
        # (fields, probe, how often)
        self.probes: list[tuple[tuple[str, ...], Probe, int]] = [
            (("util_pct", "mem_util_pct"), self._utilisation, 1),
            (("mem_used_mib",), self._memory_used, 1),
            (("power_w",), self._power, 1),
            (("sm_clock_mhz",), self._clock(1, "sm_clock_mhz"), SLOW_EVERY),
            (("mem_clock_mhz",), self._clock(2, "mem_clock_mhz"), SLOW_EVERY),
            (("clock_limits",), self._clock_limits, SLOW_EVERY),
            (("tree_mem_mib",), self._tree_memory, SLOW_EVERY),
            (("tree_util_pct",), self._tree_utilisation, SLOW_EVERY),
            (("pcie_tx_mib_s", "pcie_rx_mib_s"), self._pcie, SLOW_EVERY),
            (("nvlink_tx_mib_s", "nvlink_rx_mib_s"), self._nvlink, SLOW_EVERY),
        ]
        if self.gpm is not None:
            self.probes.append((Gpm.FIELDS, self._gpm, SLOW_EVERY))
        self.fast: list[Probe] = [self._power]
        if self.gpm is not None:
            # its own samples: each reading is a mean since the one before
            self.fast_gpm = Gpm(nvml, self.gpm.handle, gpu.instance, Gpm.STEPS)
            self.fast.append(lambda pids, now: self.fast_gpm.read())

    def _refuse(self, fields: Iterable[str], why: str) -> None:
        for name in fields:
            self.missing[f"{self.gpu.channel}.{name}"] = why

    def _drop(self, fields: Iterable[str], error: Exception) -> bool:
        """Record in `missing` why the driver refused `fields`, unless the failure is temporary. Set
        `lost` if the driver or GPU was reset. Return whether the driver always will refuse, so that
        the probe can be dropped."""
        number = getattr(error, "value", 0)
        self.lost = self.lost or number in LOST
        why = FOR_GOOD.get(number) or LOST.get(number)
        if why is not None:
            self._refuse(fields, f"{why}{' (MIG)' if self.gpu.mig else ''}")
        return number in FOR_GOOD

    def begin(self) -> None:
        self.turn = 0
        self.held.clear()
        self.rates = {name: Rate() for name in self.rates}
        if self.gpm is not None:
            self.gpm.begins = self.fast_gpm.begins = True

    def read(self, pids: Sequence[int]) -> Reading:
        now = time.monotonic()
        for entry in list(self.probes):
            fields, probe, every = entry
            if self.turn % every:
                continue
            try:
                self.held.update(probe(pids, now))
            except self.nvml.NVMLError as error:
                for name in fields:
                    self.held.pop(name, None)
                if self._drop(fields, error):
                    self.probes.remove(entry)
        if self.lost:
            self.held.clear()
        self.turn += 1
        return {f"{self.gpu.channel}.{name}": value for name, value in self.held.items()}

    def read_fast(self, pids: Sequence[int]) -> Reading:
        found: Reading = {}
        for probe in list(self.fast):
            try:
                found.update(probe(pids, time.monotonic()))
            except self.nvml.NVMLError as error:
                if self._drop((), error):
                    self.fast.remove(probe)
        return {f"{self.gpu.channel}.{name}": value for name, value in found.items()}

    def _utilisation(self, pids: Sequence[int], now: float) -> Reading:
        rates = self.nvml.nvmlDeviceGetUtilizationRates(self.gpu.handle)
        return {"util_pct": float(rates.gpu), "mem_util_pct": float(rates.memory)}

    def _memory_used(self, pids: Sequence[int], now: float) -> Reading:
        return {"mem_used_mib": _memory(self.nvml, self.gpu.handle)}

    def _power(self, pids: Sequence[int], now: float) -> Reading:
        # on Ampere and later nvmlDeviceGetPowerUsage is a mean over one second
        value = self._fields([POWER_INSTANT])[0]
        if math.isnan(value) or value <= 0:
            value = float(self.nvml.nvmlDeviceGetPowerUsage(self.gpu.handle))
        return {"power_w": value / 1000}

    def _clock(self, kind: int, name: str) -> Probe:
        return lambda pids, now: {
            name: float(self.nvml.nvmlDeviceGetClockInfo(self.gpu.handle, kind))
        }

    def _clock_limits(self, pids: Sequence[int], now: float) -> Reading:
        mask = self.nvml.nvmlDeviceGetCurrentClocksEventReasons(self.gpu.handle)
        return {"clock_limits": float(mask)}

    def _tree_memory(self, pids: Sequence[int], now: float) -> Reading:
        tree, total = set(pids), 0.0
        for process in self.nvml.nvmlDeviceGetComputeRunningProcesses(self.gpu.handle):
            if process.pid not in tree:
                self.foreign_pids_seen = True
                continue
            self.own_pids_seen = True
            if process.usedGpuMemory is None:
                return {"tree_mem_mib": NAN}
            total += process.usedGpuMemory / 2**20
        return {"tree_mem_mib": total if self.own_pids_seen else NAN}

    def _tree_utilisation(self, pids: Sequence[int], now: float) -> Reading:
        samples = self.nvml.nvmlDeviceGetProcessUtilization(
            self.gpu.handle, self.last_process_sample
        )
        latest, tree = dict[int, Any](), set(pids)
        for sample in samples:
            self.last_process_sample = max(self.last_process_sample, sample.timeStamp)
            if sample.pid in tree and sample.timeStamp > getattr(
                latest.get(sample.pid), "timeStamp", 0
            ):
                latest[sample.pid] = sample
        return {"tree_util_pct": float(sum(s.smUtil for s in latest.values())) if latest else NAN}

    def _fields(self, ids: Sequence[int | tuple[int, int]]) -> list[float]:
        """Return the values of NVML fields; NaN for a field that the driver lacks, and for all if
        the call fails.

        Args:
            ids: numbers of the fields, some with a scope.
        """
        try:
            values = self.nvml.nvmlDeviceGetFieldValues(self.gpu.handle, list(ids))
        except self.nvml.NVMLError:  # older drivers and MIG: the callers have another way
            return [NAN] * len(ids)
        return [field_number(value) for value in values]

    def _pcie(self, pids: Sequence[int], now: float) -> Reading:
        sent, received = self._fields([PCIE_TX, PCIE_RX])
        if not (math.isnan(sent) or math.isnan(received)):
            return {
                "pcie_tx_mib_s": self.rates["pcie_tx"](now, sent / 2**20),
                "pcie_rx_mib_s": self.rates["pcie_rx"](now, received / 2**20),
            }
        # older drivers: a mean over 20 ms, in KB/s, for which the call waits
        handle, get = self.gpu.handle, self.nvml.nvmlDeviceGetPcieThroughput
        return {
            "pcie_tx_mib_s": get(handle, 0) * 1000 / 2**20,
            "pcie_rx_mib_s": get(handle, 1) * 1000 / 2**20,
        }

    def _nvlink(self, pids: Sequence[int], now: float) -> Reading:
        sent, received = self._fields([(NVLINK_TX, ALL_LINKS), (NVLINK_RX, ALL_LINKS)])
        if math.isnan(sent) or math.isnan(received):
            self._refuse(("nvlink_tx_mib_s", "nvlink_rx_mib_s"), "no NVLink counters")
            return {}
        return {  # counters in KiB
            "nvlink_tx_mib_s": self.rates["nvlink_tx"](now, sent / 1024),
            "nvlink_rx_mib_s": self.rates["nvlink_rx"](now, received / 1024),
        }

    def _gpm(self, pids: Sequence[int], now: float) -> Reading:
        return self.gpm.read() if self.gpm is not None else {}

    def close(self) -> None:
        channel = f"{self.gpu.channel}.tree_mem_mib"
        if not self.own_pids_seen and channel not in self.missing:
            self.missing[channel] = (
                "the driver lists pids of another namespace (container)"
                if self.foreign_pids_seen
                else "the command was never listed on this GPU"
            )
        self.free()

    def free(self) -> None:
        """Close the GPM samples that this holds in the NVML library."""
        if self.gpm is not None:
            self.gpm.close()
            self.fast_gpm.close()
            self.gpm, self.fast = None, [self._power]

    def again(self) -> _Watch:
        """Return new probes of the same GPU, after the NVML library was initialised again. The GPU
        is found by its UUID. What is `missing` of it is looked for again."""
        handle, parent = self.nvml.nvmlDeviceGetHandleByUUID(self.gpu.uuid), self.gpu.parent
        if self.gpu.mig:
            parent = self.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        for key in [key for key in self.missing if key.startswith(f"{self.gpu.channel}.")]:
            del self.missing[key]
        opened = _Watch(self.nvml, replace(self.gpu, handle=handle, parent=parent), self.missing)
        opened.own_pids_seen = self.own_pids_seen
        opened.foreign_pids_seen = self.foreign_pids_seen
        return opened


def field_number(value: Any) -> float:
    """Return the number in an nvmlFieldValue_t, from the member of its union that its type names;
    NaN if the field was not read."""
    if value.nvmlReturn != 0:
        return NAN
    member = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
    name = member.get(value.valueType)
    return float(getattr(value.value, name)) if name is not None else NAN


class NvmlSampler:
    """Samples the chosen GPUs. Their channels are named ``gpu0``, ``gpu0:1`` and so on."""

    device: Device = "gpu"

    def __init__(self, nvml: Any, gpus: Sequence[Gpu]) -> None:
        self.nvml, self.gpus = nvml, list(gpus)
        self.missing: dict[str, str] = {}
        self._watches = [_Watch(nvml, gpu, self.missing) for gpu in gpus]
        self._pause_s, self._reopen_at = REOPEN_S, 0.0

    def begin(self) -> None:
        for watch in self._watches:
            watch.begin()

    def read(self, pids: Sequence[int]) -> Reading:
        found = {key: value for watch in self._watches for key, value in watch.read(pids).items()}
        if not any(watch.lost for watch in self._watches):
            self._pause_s = REOPEN_S
        elif (now := time.monotonic()) >= self._reopen_at:
            self._reopen_at, self._pause_s = (
                now + self._pause_s,
                min(2 * self._pause_s, REOPEN_MAX_S),
            )
            self._reopen()
        return found

    def _reopen(self) -> None:
        """Initialise the NVML library again, and find every sampled GPU again. Other users of the
        library in this process must find theirs again, too."""
        for watch in self._watches:
            watch.free()
            watch.lost = True
        with contextlib.suppress(self.nvml.NVMLError):
            for _ in range(MOST_HOLDERS):
                self.nvml.nvmlShutdown()
        for place, watch in enumerate(self._watches):
            with contextlib.suppress(self.nvml.NVMLError):
                if not place:
                    self.nvml.nvmlInit()
                self._watches[place] = watch.again()

    def read_fast(self, pids: Sequence[int]) -> Reading:
        return {k: v for watch in self._watches for k, v in watch.read_fast(pids).items()}

    def describe(self) -> list[dict[str, object]]:
        versions: dict[str, object] = {}
        for key, function in (
            ("driver", "nvmlSystemGetDriverVersion"),
            ("nvml", "nvmlSystemGetNVMLVersion"),
        ):
            try:
                versions[key] = _decode(getattr(self.nvml, function)())
            except (self.nvml.NVMLError, AttributeError):
                versions[key] = None
        return [
            {
                "channel": gpu.channel,
                "device": "gpu",
                "name": gpu.name,
                "uuid": gpu.uuid,
                "memory_mib": None if math.isnan(gpu.memory_mib) else round(gpu.memory_mib),
                "mig": gpu.mig,
                **versions,
            }
            for gpu in self.gpus
        ]

    def close(self) -> None:
        for watch in self._watches:
            watch.close()
        with contextlib.suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()
