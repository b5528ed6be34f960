"""The guardian: a process between the profiler and the command, which ends every process of a run.

It runs the command in a session of its own and is the *subreaper* of all processes of the run: a
child that forks twice, calls setsid or loses its parent is handed to the guardian, not to init. It
therefore finds the whole tree by parentage, and ends it when the command ends, at the time limit,
over the memory limit, when asked to, or when the profiler has died (its pipe closes, or the parent
changes), kill -9 included. If the guardian itself is killed, the command dies with it
(PR_SET_PDEATHSIG) and the profiler sweeps up the rest by its environment marker.

Standard library only, single-threaded; started by `profiler.runner` with two pipes. Messages are
JSON lines. In: one line of configuration, then `stop`. Out: `started`, `exec_failed`, `exited`,
`stopping`, `gone`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from typing import TypedDict

from profiler import procs

POLL_S = 0.1
TREE_REFRESH_S = 0.5
KILL_PATIENCE_S = 10.0  # a process in uninterruptible sleep cannot die: say so, do not hang


class Config(TypedDict, total=False):
    """A command, its input and its limits. `user` and `group` are set only when the local backend's
    shim runs the command."""

    executable: str
    argv: list[str]
    env: dict[str, str]
    cwd: str  # of a shim's: "" until it knows its account
    output: str
    limit_s: float
    grace_s: float
    memory_mib: float | None
    output_mib: float
    rlimits: dict[str, int]
    user: str
    group: str


class Guardian:
    """The guardian's handling of one run of a command, from its fork until its last process has
    ended."""

    poll_s = POLL_S

    def __init__(self, control: int, status: int, config: Config) -> None:
        self.control, self.status, self.config = control, status, config
        self.parent = os.getppid()
        self.main_pid = 0
        self.exit_status: int | None = None
        self.output = os.open(
            config["output"],
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        self.truncated = 0
        self.peak_mib = 0.0
        self._tree: list[int] = []
        self._tree_at = 0.0
        self._pss_at = 0.0

    def say(self, event: str, **values: object) -> None:
        line = json.dumps({"event": event, "t": time.monotonic(), **values}) + "\n"
        # a profiler that has died reads nothing: the run is cleaned up all the same
        with contextlib.suppress(OSError):
            os.write(self.status, line.encode())

    def start(self) -> bool:
        """Fork and exec the command. Return False when it could not be executed."""
        read, write = os.pipe()
        guardian = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_command(guardian, write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            failure = pipe.read()  # closed by a successful exec
        if failure:
            os.waitpid(pid, 0)
            number, _, where = failure.decode().partition(" ")
            self.say("exec_failed", errno=int(number), where=where)
            return False
        self.main_pid = pid
        self.say("started", pid=pid)
        return True

    def _become_command(self, guardian: int, failure: int) -> None:
        """In the child process, replace it by the command: set its session, limits, output and
        environment, then exec. Never returns.

        Args:
            guardian: pid of the guardian.
            failure: descriptor of a pipe to which an error of exec is written.
        """
        config, where = self.config, "start"
        try:
            os.setsid()
            where = "user"
            self.become_user()  # which takes the next line back, so it comes first
            where = "start"
            procs.prctl(procs.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:  # it died before the line above took effect
                os._exit(1)
            for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGCHLD"):
                signal.signal(getattr(signal, name), signal.SIG_DFL)  # ignored ones survive exec
            signal.set_wakeup_fd(-1)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (self.output, 1), (self.output, 2)):
                os.dup2(source, target)
            where = "limits"
            for name, value in config["rlimits"].items():
                kind = getattr(resource, name)
                hard = resource.getrlimit(kind)[1]
                ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (ceiling, ceiling))
            where = "cwd"
            os.chdir(config["cwd"])
            where = "exec"
            os.execvpe(config["executable"], config["argv"], config["env"])
        except OSError as error:
            os.write(failure, f"{error.errno} {where}".encode())
        except BaseException as error:  # nothing may leave this frame in the child
            os.write(failure, f"0 {where}: {error!r}".encode())
        os._exit(127)

    def become_user(self) -> None:
        """Switch, in the child process, to the user that the command runs as. This class keeps its
        own user; subclasses override this."""

    def orphaned(self) -> bool:
        """Return whether the profiler, the process that asked for the run, has died."""
        return os.getppid() != self.parent

    def reap(self) -> bool:
        """Collect the exit status of ended processes: of the command itself, and of its orphans,
        which the kernel hands to this process. Return False when no child is left.

        Every process of the run is a descendant of this one, so without a child the run has no
        process.
        """
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main_pid:
                self.exit_status = status

    def left(self) -> list[int]:
        """Return the pids of the living processes of the run. The list is empty only if there is
        none: every process of the machine is read before that is returned, unless this process has
        no child."""
        if not self.reap():
            return []
        cheap = filter(procs.alive, procs.descendants(os.getpid()))
        return list(cheap) or procs.all_descendants(os.getpid())

    def memory_mib(self) -> float:
        """Measure the memory of the process tree, and return it in MiB: the resident sizes, or the
        proportional ones when those exceed the limit. The highest value is kept in `peak_mib`.

        The sum of resident sizes counts a page shared by forked workers once for each, so it is
        never too low. It is cheap to read; the exact figure is read only when the sum exceeds the
        limit. If it is within the limit, the limit is returned instead of a higher sum for the next
        `TREE_REFRESH_S` seconds.
        """
        now = time.monotonic()
        if now - self._tree_at > TREE_REFRESH_S:
            self._tree, self._tree_at = procs.descendants(os.getpid()), now
        total = sum(map(procs.rss_mib, self._tree))
        limit = self.config["memory_mib"]
        if limit is not None and total > limit and now - self._pss_at > TREE_REFRESH_S:
            self._tree, self._tree_at = procs.descendants(os.getpid()), now
            total = sum(map(procs.pss_mib, self._tree))
            if total <= limit:
                self._pss_at = now
        elif limit is not None and total > limit:
            total = limit  # shared pages were counted once each a moment ago
        self.peak_mib = max(self.peak_mib, total)
        return total

    def bound_output(self, nobody_writes: bool = False) -> None:
        """Empty an output file that is larger than its limit, so that the disk does not fill. With
        `nobody_writes`, also free space reserved beyond its end (fallocate(2)).
        """
        found, limit = os.fstat(self.output), self.config["output_mib"] * 2**20
        if found.st_size > limit:
            os.ftruncate(self.output, 0)  # O_APPEND: writers go on at the new end
            self.truncated += 1
        elif nobody_writes and found.st_blocks * 512 > limit:
            os.ftruncate(self.output, found.st_size)

    def watch(self) -> str:
        """Wait until the run has to end. Return the reason: "exited", "limit", "memory", "request"
        or "orphaned". Meanwhile empty the output file whenever it is too large."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        deadline = time.monotonic() + self.config["limit_s"]
        while True:
            self.reap()
            if self.exit_status is not None:
                return "exited"
            left = deadline - time.monotonic()
            if left <= 0:
                return "limit"
            ready = procs.readable([self.control, wake_read], min(self.poll_s, left))
            if wake_read in ready:
                os.read(wake_read, 4096)
            if self.control in ready:
                return "request" if os.read(self.control, 64) else "orphaned"
            if self.orphaned():  # a forked sibling may hold the pipe open
                return "orphaned"
            limit = self.config["memory_mib"]
            if self.memory_mib() > (limit if limit is not None else float("inf")):
                return "memory"
            self.bound_output()

    def clear(self, reason: str) -> None:
        """End every process of the run: send SIGTERM, wait for the grace period, send SIGKILL until
        none is left, for `KILL_PATIENCE_S` seconds at most. If `reason` is "memory", there is no
        grace period. Report the reason, and then what was found, to the profiler."""
        found = self.left()
        self.say("stopping", reason=reason, processes=len(found))
        # over the memory limit there is no time for grace
        grace = 0.0 if reason == "memory" else self.config["grace_s"]
        if grace > 0 and found:
            procs.send(found, signal.SIGTERM)
            procs.send(found, signal.SIGCONT)  # a stopped process cannot answer
            deadline = time.monotonic() + grace
            while time.monotonic() < deadline and self.left():
                time.sleep(0.02)
        killed: set[int] = set()
        deadline = time.monotonic() + KILL_PATIENCE_S
        while left := self.left():
            killed.update(left)
            procs.send(left, signal.SIGKILL)
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        self.bound_output(nobody_writes=not left)  # nor would anybody do it after this
        self.say(
            "gone",
            status=self.exit_status,
            found=len(found),
            killed=len(killed),
            survivors=self.left(),
            peak_mib=self.peak_mib,
            truncated=self.truncated,
            cpu_s=time.process_time(),
        )

    def run(self) -> None:
        if not self.start():
            return
        reason = self.watch()
        if reason == "exited":
            self.say("exited", status=self.exit_status)
        self.clear(reason)


def _read_config(control: int) -> Config:
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(control, 65536)
        if not part:
            raise SystemExit("guardian: no configuration")
        text += part
    config: Config = json.loads(text)
    return config


def main() -> None:
    """Run the guardian. Its arguments are the numbers of two descriptors: one to read its
    configuration and `stop` from, one to write its messages to."""
    control, status = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    guardian = Guardian(control, status, _read_config(control))
    procs.prctl(procs.PR_SET_CHILD_SUBREAPER, 1)
    guardian.run()


if __name__ == "__main__":
    main()
