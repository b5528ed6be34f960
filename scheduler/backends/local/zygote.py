"""The service's end of the zygote: asking for shims, and replacing a zygote that was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from profiler import environment

PIPE_BYTES = 2**20


class Zygote:
    """A zygote, called when it is first needed.

    Args:
        root: the spool's folder.
        lock: its lock, which the zygote inherits: whoever may still begin something holds it.
    """

    def __init__(self, root: Path, lock: int) -> None:
        self._root, self._lock = root, lock
        self._process: subprocess.Popen[bytes] | None = None
        self._requests = -1

    @property
    def pid(self) -> int | None:
        """Its process, if it has been called and is there."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def ask(self, request: bytes) -> bool:
        """Hand it a request (a line). False: it was dead, and asking again will call another, or
        none could be called."""
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
        """Wait for its end; it ends by itself once nobody can ask it for anything."""
        if self._process is not None:
            os.close(self._requests)
            self._process.wait()
            self._process = None

    def _call(self) -> bool:
        root = str(Path(__file__).resolve().parents[3])
        boot = (
            f"import sys; sys.path.insert(0, {root!r}); "
            "import scheduler.backends.local.shim as s; s.main()"
        )
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
