"""Starts the daemons of one private cluster in the foreground, finds every process that belongs to
the cluster, and makes sure that all of them end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

PATIENCE_S = 120.0  # for daemons and commands; busy hosts are slow
MARK = "PELLUCID_SLURM"  # in the environment of every daemon, with the cluster's folder


class SlurmError(RuntimeError):
    """Raised when a daemon did not start, or a command failed. The message names it, and quotes its
    output.
    """


class Processes:
    """The daemons of one private cluster, which run in the foreground as children of this process.

    Args:
        folder: folder of the cluster; logs go there, and its path marks every process.
        cluster_name: Slurm's name for the cluster, which Slurm hands on to every job.
    """

    def __init__(self, folder: Path, cluster_name: str) -> None:
        self._folder, self._name = folder, cluster_name
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        command: Sequence[str],
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a daemon. `user` is the account it runs as; None means this process's own."""
        become = [] if user is None else as_user(user)
        env = {**os.environ, **(environment or {}), MARK: str(self._folder)}
        with (self._folder / f"{name}.out").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*become, *command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,
            )

    def alive(self, name: str) -> bool:
        """Return whether the daemon of that name is running."""
        daemon = self._running.get(name)
        return daemon is not None and daemon.poll() is None

    def end(self, name: str, signal: int, timeout_s: float = PATIENCE_S) -> None:
        """Send a signal to one daemon and wait for its end. Kill it if that takes longer than
        `timeout_s` seconds.
        """
        daemon = self._running.pop(name, None)
        if daemon is None or daemon.poll() is not None:
            return
        daemon.send_signal(signal)
        try:
            daemon.wait(timeout_s)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def names(self) -> list[str]:
        """Return the names of the daemons that were started and not ended, in the order of their
        starts.
        """
        return list(self._running)

    def strays(self) -> list[psutil.Process]:
        """Return every living process of the cluster: daemons, step managers, jobs.

        A process belongs to the cluster if its environment has the cluster's mark or, for jobs,
        Slurm's name of the cluster; or if its parent belongs. A slurmstepd, which overwrites its
        environment with its title, belongs if it runs in the cluster's folder.
        """
        marks = {(MARK, str(self._folder)), ("SLURM_CLUSTER_NAME", self._name)}
        own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        found: set[psutil.Process] = set()
        for process in psutil.process_iter():
            try:
                if process.pid in own or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                environment = process.environ()
                marked = any(environment.get(key) == value for key, value in marks)
                # where it has a root of its own, its folder's name is all that is the same
                if marked or Path(process.cwd()).name == self._folder.name:
                    found |= {process, *process.children(recursive=True)}
            except psutil.Error:
                continue
        return [process for process in found if process.pid not in own]

    def sweep(self, patience_s: float = PATIENCE_S) -> list[str]:
        """Kill every process of the cluster that is left. Return one line for each that is still
        alive after `patience_s` seconds.
        """
        end = time.monotonic() + patience_s
        while left := self.strays():
            if time.monotonic() > end:
                return [f"{process.pid} {' '.join(process.cmdline())}" for process in left]
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.05)
        return []


def as_user(user: str) -> list[str]:
    """Return the words to put before a command to run it as another user."""
    return ["setpriv", f"--reuid={user}", f"--regid={user_group(user)}", "--clear-groups", "--"]


def user_group(user: str) -> int:
    """Return the numeric id of a user's primary group."""
    import pwd

    return pwd.getpwnam(user).pw_gid


def free_ports(count: int) -> list[int]:
    """Return `count` different port numbers of the loopback interface that no process uses now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def until(holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until the function `holds` returns true.

    Raises:
        SlurmError: that takes longer than `timeout_s` seconds; the message names `what`.
    """
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            raise SlurmError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(0.05)


def listening(port: int) -> bool:
    """Return whether a process listens on a port of the loopback interface."""
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex(("127.0.0.1", port)) == 0
