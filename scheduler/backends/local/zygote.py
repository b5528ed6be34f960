"""The service's side of the zygote (the process that forks shims): sends it requests, and replaces
a zygote that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from profiler import environment

PIPE_BYTES = 2**20
MAIN = "import scheduler.backends.local.shim as s; s.main()"


class Zygote:
    """A zygote process, started when it is first needed.

    Args:
        root: the spool's folder.
        lock: descriptor of the spool's lock, which the zygote inherits: every process that may
            still begin an attempt holds it.
    """

    def __init__(self, root: Path, lock: int) -> None:
        self._root, self._lock = root, lock
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = -1

    @property
    def pid(self) -> int | None:
        """Return the process id of the zygote (the process that forks shims), or None if it does
        not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def ask(self, request: bytes) -> bool:
        """Send a request (one line) to the zygote process. Start that process first if needed.
        Return False if it cannot be started, or had died; then a second call starts a new one.
        """
        if self._process is None and not self._call():
            return False
        try:
            while request:
                request = request[os.write(self._requests, request) :]
        except BrokenPipeError:
            self.dismiss()
            return False
        return True

    def dismiss(self) -> None:
        """Close the request pipe of the zygote process, and wait until that process ends."""
        if self._process is not None:
            os.close(self._requests)
            self._process.wait()
            self._process = None

    def _call(self) -> bool:
        root = str(Path(__file__).resolve().parents[3])
        boot = f"import sys; sys.path.insert(0, {root!r}); {MAIN}"
        read, self._requests = os.pipe()
        with contextlib.suppress(OSError):  # room for a pass that starts hundreds
            fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        where = map(str, (self._root, read, self._lock))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot, *where],
                pass_fds=(read, self._lock),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=environment.scrubbed(os.environ),
            )
        except OSError:  # no process, or no memory
            os.close(self._requests)
            return False
        finally:
            os.close(read)
        return True


def end_strays(root: Path) -> bool:
    """Kill a zygote or shim of an ended service that hangs before it has claimed its attempt. Such
    a process holds the lock of the spool, so that no service could decide. Return whether there was
    one.

    Nothing is lost: an attempt that is not claimed is started again, and a shim that has claimed
    its attempt has released the lock. Do nothing while the process that took the lock lives.
    """
    found, lock = False, root / "lock"
    if _owner_lives(lock):
        return False
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            argv = Path("/proc", process, "cmdline").read_bytes().split(b"\0")
            ours = any(part.endswith(MAIN.encode()) for part in argv) and os.fsencode(root) in argv
            if ours and any(_is_open(lock, file) for file in _files(process)):
                os.kill(int(process), signal.SIGKILL)
                found = True
    return found


def _owner_lives(lock: Path) -> bool:
    """Return whether the process that took a lock still exists. Processes that only inherited the
    lock do not count.
    """
    inode = str(lock.stat().st_ino)
    try:
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:  # nobody says: nothing is to be killed
        return True
    owners = [w[4] for w in held if w[1] == "FLOCK" and w[5].rpartition(":")[2] == inode]
    return any(Path("/proc", pid).exists() for pid in owners)


def _files(process: str) -> list[Path]:
    return list(Path("/proc", process, "fd").iterdir())


def _is_open(path: Path, file: Path) -> bool:
    try:
        return file.samefile(path)
    except OSError:
        return False
