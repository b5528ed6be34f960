"""Samples CPU, memory and I/O of a process tree with psutil. Without a GPU this is the whole
profile, with one it is the host's part. The channel of its figures is ``host``."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from profiler import procs
from profiler.samplers import Device, Rate, Reading

WATCHED = 4  # processes whose memory and CPU are read fast: the heaviest


def cpu_name() -> str:
    """Return the model name of the processor from /proc/cpuinfo, or else its architecture."""
    with suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


class HostSampler:
    """Samples the processes of a tree. What ended processes used stays in the sums."""

    device: Device = "cpu"

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        self._processes: dict[int, psutil.Process] = {}
        self._cpu: dict[int, float] = {}
        self._read: dict[int, float] = {}
        self._write: dict[int, float] = {}
        self._watched: tuple[int, ...] = ()
        self._gauges: list[procs.Gauge] = []
        self._rates = {name: Rate() for name in ("cpu", "read", "write", "main_cpu")}

    def begin(self) -> None:
        self._rates = {name: Rate() for name in self._rates}

    def read(self, pids: Sequence[int]) -> Reading:
        rss, count = 0.0, 0
        for pid in pids:
            try:
                process = self._processes.get(pid)
                if process is None:
                    process = self._processes[pid] = psutil.Process(pid)
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
                    self._read_io(pid, process)
            except psutil.Error:  # it ended between two reads; its last sums stay
                self._processes.pop(pid, None)
                continue
            # without waited-for children: those that were seen have sums of their own here
            self._cpu[pid] = times.user + times.system
            rss += memory.rss / 2**20
            count += 1
        now = time.monotonic()
        return {
            "host.cpu_pct": 100 * self._rates["cpu"](now, sum(self._cpu.values())),
            "host.rss_mib": rss,
            "host.read_mib_s": self._rates["read"](now, sum(self._read.values()) / 2**20),
            "host.write_mib_s": self._rates["write"](now, sum(self._write.values()) / 2**20),
            "host.processes": float(count),
        }

    def _read_io(self, pid: int, process: psutil.Process) -> None:
        if "host.read_mib_s" in self.missing:
            return
        try:
            counters = process.io_counters()
        except psutil.AccessDenied:
            for name in ("read", "write"):
                self.missing[f"host.{name}_mib_s"] = "no permission to read /proc/PID/io"
            return
        with suppress(AttributeError):  # read_chars is Linux's own
            self._read[pid] = counters.read_chars
            self._write[pid] = counters.write_chars

    def read_fast(self, pids: Sequence[int]) -> Reading:
        """Return the memory and the main-thread CPU use of the few heaviest processes. Training
        steps show in these. Return {} if one of them has ended."""
        if tuple(pids) != self._watched:
            self._watch(pids)
        rss = cpu = 0.0
        for gauge in self._gauges:
            try:
                memory, used = gauge.read()
            except OSError:
                self._watched = ()  # one has gone: look again at the next reading
                return {}
            rss += memory
            cpu += used
        if not self._gauges:
            return {}
        return {
            "host.main_cpu_pct": 100 * self._rates["main_cpu"](time.monotonic(), cpu),
            "host.rss_mib": rss,
        }

    def _watch(self, pids: Sequence[int]) -> None:
        for gauge in self._gauges:
            gauge.close()
        self._gauges = []
        self._watched = tuple(pids)
        self._rates["main_cpu"] = Rate()
        for pid in sorted(pids, key=procs.rss_mib, reverse=True)[:WATCHED]:
            with suppress(OSError):
                self._gauges.append(procs.Gauge(pid))

    def describe(self) -> list[dict[str, object]]:
        memory = psutil.virtual_memory()
        return [
            {
                "channel": "host",
                "device": "cpu",
                "name": cpu_name(),
                "cores": os.cpu_count(),
                "memory_mib": round(memory.total / 2**20),
                "kernel": platform.release(),
            }
        ]

    def close(self) -> None:
        self._processes.clear()
        self._watch(())
