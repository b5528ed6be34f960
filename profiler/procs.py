"""Process trees read from /proc. Standard library only: the guardian runs without site-packages.

There are two ways to list a tree. `descendants` follows the kernel's lists of children. It takes a
few microseconds per thread, and may miss a process that is just being created. `all_descendants`
reads every process of the machine, which is slower but complete.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import time
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
TICKS = os.sysconf("SC_CLK_TCK")
MARKER = "PELLUCID_RUN_ID"  # in the environment of all that a run starts


SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}


def leave_session_keyring() -> None:
    """Give this process a new, empty session keyring, because a keyring stays when a process
    changes its user. Do nothing if the kernel has no keyrings, or does not permit this. Raise
    OSError if this user has too many keys."""
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is None:
        return
    join = 1
    if ctypes.CDLL(None, use_errno=True).syscall(number, join, None) == -1:
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EPERM):
            raise OSError(error, os.strerror(error), "session keyring")


def prctl(option: int, value: int) -> None:
    """Call prctl(2). Raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"prctl({option})")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:  # the process has gone, or is not ours to read
        return b""


def readable(files: Iterable[int], timeout_s: float) -> set[int]:
    """Wait at most so many seconds until one of the open files `files` (their descriptors) has
    something to read or has reached its end. Return those that do.

    `select.select` would raise ValueError for a descriptor above 1023.
    """
    waiting = select.poll()
    for file in files:
        waiting.register(file, select.POLLIN)
    return {file for file, _ in waiting.poll(1000.0 * timeout_s)}


def parent_and_state(pid: int) -> tuple[int, str] | None:
    """Return the parent pid and the state letter of a process, or None when it has ended."""
    text = _read(f"/proc/{pid}/stat")
    # the command name stands in brackets and may itself hold brackets and blanks
    fields = text[text.rfind(b")") + 2 :].split()
    return (int(fields[1]), fields[0].decode()) if len(fields) > 1 else None


def alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    found = parent_and_state(pid)
    return found is not None and found[1] not in "ZXx"


def name(pid: int) -> str:
    """Return the kernel's name of a process, at most 15 characters; "" if it cannot be read."""
    try:
        return _read(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def pids() -> list[int]:
    """Return the pids of all processes of this machine (of this pid namespace)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _children(pid: int) -> list[int] | None:
    """Return the children of a process by the kernel's own list: [] if the process is gone,
    None if the kernel keeps no such list.
    """
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        path = f"/proc/{pid}/task/{thread}/children"
        text = _read(path)
        if text:
            found.extend(int(child) for child in text.split())
        elif not found and not os.path.exists(path) and os.path.isdir(f"/proc/{pid}/task/{thread}"):
            return None
    return found


def descendants(root: int) -> list[int]:
    """Return the pids below `root`, without it, zombies included. Cheap; may miss a process that is
    just being created. If the kernel keeps no lists of children, return `all_descendants`."""
    found: list[int] = []
    queue = [root]
    while queue:
        children = _children(queue.pop())
        if children is None:
            return all_descendants(root)
        found += children
        queue += children
    return found


def all_descendants(root: int) -> list[int]:
    """Return the living pids below `root`, without it. Reads every process of the machine once."""
    below: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid in pids():
        known = parent_and_state(pid)
        if known is None:
            continue
        below.setdefault(known[0], []).append(pid)
        if known[1] in "ZXx":
            dead.add(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        children = below.get(queue.pop(), [])
        found += children
        queue += children
    return [pid for pid in found if pid not in dead]


def marked(run_id: str) -> list[int]:
    """Return the pids of living processes with the marker of this run (`run_id`) in their
    environment, wherever they are in the process tree.

    Only processes of the same user can be read. This finds what a walk of the process tree cannot,
    after the guardian itself has been killed.
    """
    needle = f"{MARKER}={run_id}".encode()
    found = []
    for pid in pids():
        if needle in _read(f"/proc/{pid}/environ").split(b"\0") and alive(pid):
            found.append(pid)
    return found


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process used; 0 when it has ended."""
    text = _read(f"/proc/{pid}/stat")
    fields = text[text.rfind(b")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if len(fields) > 12 else 0.0


def ready(pid: int) -> bool:
    """Return whether a thread of a process runs, or is ready to run and waits for a processor."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    found = (_read(f"/proc/{pid}/task/{thread}/stat") for thread in threads)
    return any(text[text.rfind(b")") + 2 :][:1] == b"R" for text in found)


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB, shared pages included; 0 when it has
    ended.
    """
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE_MIB if len(fields) > 1 else 0.0


def pss_mib(pid: int) -> float:
    """Return the proportional memory in MiB (a page shared by n counts 1/n), or the resident memory
    where that is not readable.
    """
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) / 1024
    return rss_mib(pid)


class Gauge:
    """Resident memory and main-thread CPU time of one process, cheap enough to read 50 times a
    second.

    The files stay open and are read in place: a tenth of the cost of opening them each time.
    """

    def __init__(self, pid: int) -> None:
        self._files = [
            os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in ("statm", "schedstat")
        ]

    def read(self) -> tuple[float, float]:
        """Return the resident MiB, and the CPU seconds of the main thread. Raise OSError once the
        process has ended.
        """
        memory, cpu = (os.pread(file, 128, 0) for file in self._files)
        if not memory:
            raise ProcessLookupError
        return int(memory.split()[1]) * PAGE_MIB, int(cpu.split()[0]) / 1e9 if cpu else 0.0

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


def oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot (0 if
    unknown)."""
    for line in _read("/proc/vmstat").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return 0


def available_mib() -> float:
    """Return the memory of this machine, MiB, that programs can get without swapping; all its
    memory if that is unknown."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) / 1024
    return os.sysconf("SC_PHYS_PAGES") * PAGE_MIB


def send(targets: Iterable[int], sig: int) -> int:
    """Send a signal to each process. Return how many received it. Those that have ended, or may not
    be signalled by this user, are passed over."""
    sent = 0
    for pid in targets:
        try:
            os.kill(pid, sig)
        except (ProcessLookupError, PermissionError):
            continue
        sent += 1
    return sent


def writing(path: str) -> list[int]:
    """Return the pids of the other processes that have a file open for writing. Only root sees
    those of other users."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        folder = f"/proc/{pid}/fd"
        try:
            files = [f"{folder}/{number}" for number in os.listdir(folder)]
            writes = any(os.readlink(f) == path and os.lstat(f).st_mode & 0o200 for f in files)
        except OSError:
            continue  # it has ended, or is another's
        if writes and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def sweep(run_id: str, patience_s: float = 5.0) -> list[int]:
    """Kill every process with the marker of `run_id` in its environment, until none is left. Return
    the pids that still live after `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    while left := marked(run_id):
        send(left, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(0.02)
    return []
