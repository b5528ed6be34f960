"""Makes a control group (cgroup v2) for each attempt, below the service's own.

All processes that an attempt starts stay in its group, whatever session, parent or environment they
take, and can be killed together. Processes that it has others start (`systemd-run --user`, at,
cron, ssh to this host) are not in it. Standard library only, because the process that forks jobs
(`shim`) runs without site-packages.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

SUPERVISOR = "supervisor"  # DelegateSubgroup= of the unit: attempts are beside it
PREFIX = "pellucid-"
# Processes and threads of one attempt. A job on all GPUs of a host has some thousands (of threads,
# mostly); a fork bomb takes all there are, and then nothing can be started or ended here.
PIDS = 8192


def own(proc: Path = Path("/proc/self")) -> Path | None:
    """Return the folder of this process's control group, or None where there is no cgroup v2.
    `proc`: the process's folder in /proc.
    """
    try:
        groups = (proc / "cgroup").read_text().splitlines()
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    mine = next((line[3:] for line in groups if line.startswith("0::/")), None)
    for line in mounts if mine is not None else ():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, mount = fields.split()[3:5]
            return Path(mount) / os.path.relpath(mine or "/", root)
    return None


def base(group: Path | None = None) -> Path | None:
    """Return the folder in which groups of attempts can be made. Return None where there is no
    cgroup v2, or the kernel is older than `cgroup.kill` (Linux 5.14).
    """
    group = group or own()
    if group is None or ".." in group.parts:
        return None
    if group.name == SUPERVISOR:  # all below is ours, so we may have it counted there
        group = group.parent
        for controller in ("+memory", "+pids"):  # each alone: one may be missing
            with contextlib.suppress(OSError):
                (group / "cgroup.subtree_control").write_text(controller)
    trial = group / f"{PREFIX}{secrets.token_hex(8)}"
    try:
        trial.mkdir()
        usable = (trial / "cgroup.kill").exists() and os.access(group / "cgroup.procs", os.W_OK)
        trial.rmdir()
    except OSError:
        return None
    return group if usable else None


def make(group: Path, memory_mib: float | None) -> None:
    """Make a control group for an attempt, limited to `memory_mib` of memory and `PIDS` processes
    where the kernel counts them. Raise OSError where the group cannot be made.
    """
    group.mkdir(exist_ok=True)
    limits = {"pids.max": str(PIDS)}
    if memory_mib is not None:
        limits |= {"memory.max": str(int(memory_mib * 2**20)), "memory.oom.group": "1"}
    for name, value in limits.items():
        if (group / name).exists():
            (group / name).write_text(value)


def enter(group: Path) -> None:
    """Put this process, and all that it starts, into a control group. Raise OSError where that
    fails.
    """
    (group / "cgroup.procs").write_text("0")


def members(group: Path) -> list[int]:
    """Return the ids of the living processes of a control group and of the groups below it."""
    found = []
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in Path(folder, "cgroup.procs").read_text().split()]
    return sorted(found)


def end(group: Path, patience_s: float = 5.0) -> list[int]:
    """Kill all processes of a control group and remove the group. Return the ids of the processes
    that did not die within `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    while group.exists():
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # somebody is in it yet
                os.rmdir(folder)
        if group.exists() and time.monotonic() > deadline:
            return members(group)
        time.sleep(0.01)
    return []
