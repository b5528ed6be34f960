"""Ends, or reports, processes that an attempt left behind because its shim has died.

A shim is the parent of all processes that its command starts, and ends them. So processes are left
behind only where the shim itself was killed, which a command in the service's own account can do.
They are searched for in the attempt's control group, by its marker in their environment, by the
output file they write to, among the orphans that the zygote inherited, and on its GPUs.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from features.clock import boot_id
from profiler import procs
from profiler.errors import ProfilerError
from profiler.samplers.nvml import choose, list_gpus, open_nvml
from scheduler.backends.local import cgroup
from scheduler.backends.local.spool import Claim, start_ticks

PATIENCE_S = 5.0


def clear_up(claim: Claim, output: Path, zygote: int | None) -> list[int]:
    """Kill the processes that an attempt left behind. Return the ids of those that did not die.

    Args:
        output: the file to which the attempt wrote.
        zygote: process id of the zygote; None: none runs.
    """
    left = set(cgroup.end(Path(claim["group"]))) if claim.get("group") else set()
    left.update(procs.sweep(claim["run_id"], PATIENCE_S))
    # a process without the marker, outside the tree, may still write to the attempt's output
    procs.send(procs.writing(str(output)), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while zygote is not None and (found := orphans(zygote)):
        procs.send(found, signal.SIGKILL)
        if time.monotonic() > deadline:
            left.update(found)
            break
        time.sleep(0.02)
    return sorted(filter(procs.alive, left))


def orphans(zygote: int) -> list[int]:
    """Return the ids of the processes below a zygote that belong to no shim, because theirs has
    died.

    A shim runs the same program as the zygote; all processes that it starts run another.
    """
    program = Path(f"/proc/{zygote}/cmdline")
    found: list[int] = []
    try:
        mine = program.read_bytes()
        for pid in procs.descendants(zygote):
            parent = procs.parent_and_state(pid)
            if parent is None or parent[0] != zygote or not procs.alive(pid):
                continue
            if Path(f"/proc/{pid}/cmdline").read_bytes() != mine:
                found += [pid, *procs.descendants(pid)]
    except OSError:  # somebody ended meanwhile
        return found
    return found


def on_gpus(
    devices: Sequence[str], claim: Claim, shims: Iterable[int], nvml_module: Any
) -> list[int]:
    """Return the ids of processes that compute on the GPUs of an attempt, began after it, and
    belong to no running attempt. Return [] where that cannot be found out.

    Args:
        devices: names of the attempt's GPUs.
        shims: pids of the shims of running attempts.
    """
    if claim["boot"] != boot_id():
        return []
    try:
        nvml = open_nvml(nvml_module)
    except ProfilerError:
        return []
    try:
        computing = set[int]()
        there = {gpu.uuid for gpu in list_gpus(nvml)} & {*devices}
        for gpu in choose(list_gpus(nvml), sorted(there)):
            with contextlib.suppress(nvml.NVMLError):  # what one refuses hides none on the others
                processes = nvml.nvmlDeviceGetComputeRunningProcesses(gpu.handle)
                computing.update(process.pid for process in processes)
    except (nvml.NVMLError, ProfilerError):
        return []
    finally:
        nvml.nvmlShutdown()
    known = {pid for shim in shims for pid in procs.descendants(shim)}
    later = {pid for pid in computing - known if (start_ticks(pid) or -1) >= (claim["ticks"] or 0)}
    return sorted(later)
