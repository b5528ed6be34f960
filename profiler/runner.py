"""Runs a user's command, unchanged, under limits, and reports how it ended.

>>> with start(["sleep", "60"], folder, limits=Limits(seconds=2)) as run:
...     run.wait()
>>> run.ending.outcome
<Outcome.LIMIT: 'stopped_at_limit'>

`start` returns once the command has been executed. Whatever happens afterwards (the limit, an
exception here, kill -9 of this process), the guardian process leaves no process of the run behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from profiler import procs
from profiler.errors import BadOption, CommandNotFound, NotExecutable, NotSupported, ProfilerError
from profiler.guardian import Config

OUTPUT_NAME = "output.log"
MAX_SECONDS = 7 * 86400.0


class Outcome(StrEnum):
    """How a profiled command ended."""

    FINISHED = "finished"  # by itself, with exit code 0: a short or debug job; its result counts
    FAILED = "failed"  # by itself, otherwise
    LIMIT = "stopped_at_limit"  # healthy: it was still running when T_prof was over
    OUT_OF_MEMORY = "out_of_memory"
    INTERRUPTED = "interrupted"  # the person who profiles has stopped it


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what a profiled command may use.

    Attributes:
        seconds: the longest time that the command runs (T_prof).
        grace_s: seconds between SIGTERM and SIGKILL.
        memory_mib: host memory of all its processes together (shared pages counted once); None: no
            limit. Watched at 10 Hz rather than set as RLIMIT_AS, which CUDA's address-space
            reservations break.
        data_mib: RLIMIT_DATA of each single process, enforced by the kernel; None: no limit.
        output_mib: size of its output, above which the output file is emptied.
        open_files: RLIMIT_NOFILE; None: that of this process.
    """

    seconds: float = 200.0
    grace_s: float = 5.0
    memory_mib: float | None = None
    data_mib: float | None = None
    output_mib: float = 256.0
    open_files: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= MAX_SECONDS:
            raise BadOption(
                f"seconds (T_prof) is {self.seconds:g}; it has to be above 0 and at most "
                f"{MAX_SECONDS:g}"
            )
        if not 0 <= self.grace_s <= 600:
            raise BadOption(f"grace is {self.grace_s:g} s; it has to be from 0 to 600")
        for name in ("memory_mib", "data_mib", "output_mib"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise BadOption(f"{name} is {value:g}; it has to be above 0")
        if self.open_files is not None and self.open_files < 16:
            raise BadOption(f"open_files is {self.open_files}; it has to be 16 or more")

    def rlimits(self) -> dict[str, int]:
        """Return the kernel limits to set for the command: {name in `resource`: value}."""
        found = {"RLIMIT_CORE": 0}
        if self.data_mib is not None:
            found["RLIMIT_DATA"] = int(self.data_mib * 2**20)
        if self.open_files is not None:
            found["RLIMIT_NOFILE"] = self.open_files
        return found


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended.

    Attributes:
        outcome: one of `Outcome`.
        detail: the outcome in one line for the user.
        exit_code, signal: how the command's own process ended; signal is 0 if no signal ended it,
            exit_code None if one did.
        duration_s: seconds from exec until the command's process ended or was being stopped.
        last_lines: the last lines of its output.
        left_behind: number of its processes that still ran when the command itself had ended.
        killed: number of processes that needed SIGKILL.
        survivors: pids that could not be killed (uninterruptible sleep); normally none.
        peak_memory_mib: highest memory of all its processes together, as sampled.
        output_emptied: how often the output outgrew its limit and was emptied.
        guardian_cpu_s: CPU seconds that the guardian process used.
    """

    outcome: Outcome
    detail: str
    exit_code: int | None
    signal: int
    duration_s: float
    last_lines: tuple[str, ...] = ()
    left_behind: int = 0
    killed: int = 0
    survivors: tuple[int, ...] = ()
    peak_memory_mib: float = 0.0
    output_emptied: int = 0
    guardian_cpu_s: float = 0.0


def resolve(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> str:
    """Return the absolute path of the program that `command` would execute with this environment
    and working directory. Raises CommandNotFound if it does not exist, NotExecutable if it may not
    be executed, and BadOption if `command` is empty or contains a NUL byte."""
    if not command or not command[0]:
        raise BadOption("no command given; write it after --, as in: profile -- python train.py")
    if any("\0" in part for part in command):
        raise BadOption("the command holds a NUL byte")
    name = command[0]
    if "/" not in name:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
        if found is None:
            elsewhere = shutil.which(name, mode=os.F_OK, path=env.get("PATH", os.defpath))
            if elsewhere is not None:
                raise NotExecutable(f"no permission to execute {elsewhere}")
            raise CommandNotFound(f"command not found: {name}")
        return os.path.join(cwd, found)
    path = cwd / name
    if not path.exists():
        raise CommandNotFound(f"command not found: {name}")
    if path.is_dir():
        raise NotExecutable(f"{name} is a directory, not a command")
    if not os.access(path, os.X_OK):
        raise NotExecutable(f"no permission to execute {name} (is its x bit set?)")
    return str(path)


@dataclass
class Run:
    """A run of a command, which is going on, or has ended (then `ending` is set)."""

    pid: int
    guardian: subprocess.Popen[bytes]
    run_id: str
    output: Path
    limits: Limits
    started: float  # time.monotonic()
    _control: int
    _status: int
    _buffer: bytes = b""
    _seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    _oom_before: int = 0
    ending: Ending | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def pids(self) -> list[int]:
        """Return the pids of all processes of the command, orphans included."""
        return procs.descendants(self.guardian.pid)

    def wait(self, on_tick: Callable[[Run], None] | None = None, tick_s: float = 0.25) -> Ending:
        """Wait until all processes of the run have ended, and return how the run ended. Meanwhile
        `on_tick` is called about every `tick_s` seconds."""
        while self.ending is None:
            self._listen(tick_s)
            if on_tick is not None and self.ending is None:
                on_tick(self)
        return self.ending

    def poll(self) -> Ending | None:
        """Return how the run ended, or None while it goes on."""
        if self.ending is None:
            self._listen(0.0)
        return self.ending

    def stop(self) -> Ending:
        """End the run now, unless it has ended: SIGTERM, a grace period, then SIGKILL. Return how
        it ended."""
        if self.ending is None:
            with contextlib.suppress(OSError):  # the guardian is gone; wait() finds that out
                os.write(self._control, b"stop\n")
        return self.wait()

    def _listen(self, timeout_s: float) -> None:
        """Read the guardian's messages, waiting at most `timeout_s` seconds for one. If the run is
        over, or the guardian has died, set `ending`."""
        if not procs.readable([self._status], timeout_s):
            return
        part = os.read(self._status, 65536)
        self._buffer += part
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._seen[message["event"]] = message
        if "gone" in self._seen or not part:
            self._settle()

    def _settle(self) -> None:
        self.guardian.wait()
        os.close(self._control)
        os.close(self._status)
        gone = self._seen.get("gone")
        if gone is None:  # the guardian was killed: sweep up by the marker
            survivors = procs.sweep(self.run_id)
            self.ending = Ending(
                outcome=Outcome.FAILED,
                detail="the guard process was killed; the command was stopped",
                exit_code=None,
                signal=signal.SIGKILL,
                duration_s=time.monotonic() - self.started,
                last_lines=_last_lines(self.output),
                survivors=tuple(survivors),
            )
            return
        stopping = self._seen["stopping"]
        end = self._seen.get("exited", stopping)
        tail = _last_lines(self.output)
        status = gone["status"]
        code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGKILL
        outcome, detail = self._judge(stopping["reason"], code, tail)
        self.ending = Ending(
            outcome=outcome,
            detail=detail,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else 0,
            duration_s=end["t"] - self._seen["started"]["t"],
            last_lines=tail,
            left_behind=gone["found"] if stopping["reason"] == "exited" else 0,
            killed=gone["killed"],
            survivors=tuple(gone["survivors"]),
            peak_memory_mib=gone["peak_mib"],
            output_emptied=gone["truncated"],
            guardian_cpu_s=gone["cpu_s"],
        )

    def _judge(self, reason: str, code: int, tail: Sequence[str]) -> tuple[Outcome, str]:
        if reason == "limit":
            return Outcome.LIMIT, f"healthy: still running after {self.limits.seconds:g} s, stopped"
        if reason == "memory":
            return (
                Outcome.OUT_OF_MEMORY,
                f"its processes held more than {self.limits.memory_mib:.0f} MiB of host memory",
            )
        if reason in ("request", "orphaned"):
            return Outcome.INTERRUPTED, "stopped on request"
        if code == 0:
            return Outcome.FINISHED, "ended by itself with exit code 0"
        if code == -signal.SIGKILL and procs.oom_kills() > self._oom_before:
            return Outcome.OUT_OF_MEMORY, "killed by the kernel for lack of host memory"
        from profiler.ends import memory_complaint

        short = memory_complaint(tail)
        if short is not None:
            return Outcome.OUT_OF_MEMORY, short
        if code < 0:
            return Outcome.FAILED, f"killed by {signal.Signals(-code).name}"
        return Outcome.FAILED, f"exit code {code}"


def _last_lines(output: Path) -> tuple[str, ...]:
    from profiler.ends import last_lines  # which no service is to load

    return last_lines(output)


def start(
    command: Sequence[str],
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limits: Limits | None = None,
) -> Run:
    """Start `command` under a guardian and return the run. Its output goes to `folder`/output.log.

    Args:
        command: the program and its arguments; the program is looked up on PATH of `env`.
        folder: folder for the output; created if missing.
        env: the command's whole environment (see `profiler.environment.scrubbed`); None: the
            caller's.
        cwd: the command's working directory; None: the caller's.

    Raises:
        CommandNotFound, NotExecutable: as `resolve`. BadOption: an argument is not acceptable.
            NotSupported: this system is not Linux. ProfilerError: it cannot be started for another
            reason. The command has not run then.
    """
    if not sys.platform.startswith("linux"):
        raise NotSupported("profiling a command needs Linux (process trees are read from /proc)")
    limits = limits or Limits()
    where = (cwd or Path.cwd()).absolute()
    if not where.is_dir():
        raise BadOption(f"working directory {where} does not exist")
    run_id = secrets.token_hex(8)
    environment = dict(os.environ if env is None else env) | {procs.MARKER: run_id}
    executable = resolve(command, environment, where)
    folder.mkdir(parents=True, exist_ok=True)
    output = (folder / OUTPUT_NAME).absolute()
    config: Config = {
        "executable": executable,
        "argv": list(command),
        "env": environment,
        "cwd": str(where),
        "output": str(output),
        "limit_s": limits.seconds,
        "grace_s": limits.grace_s,
        "memory_mib": limits.memory_mib,
        "output_mib": limits.output_mib,
        "rlimits": limits.rlimits(),
    }
    oom_before = procs.oom_kills()
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    root = str(Path(__file__).resolve().parents[1])
    boot = f"import sys; sys.path.insert(0, {root!r}); import profiler.guardian as g; g.main()"
    guardian = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", boot, str(control_read), str(status_write)],
        pass_fds=(control_read, status_write),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(control_read)
    os.close(status_write)
    run = Run(
        pid=0,
        guardian=guardian,
        run_id=run_id,
        output=output,
        limits=limits,
        started=time.monotonic(),
        _control=control_write,
        _status=status_read,
    )
    run._oom_before = oom_before
    _send_config(run, config)
    _await_start(run, command[0])
    return run


def _send_config(run: Run, config: Config) -> None:
    text = json.dumps(config).encode() + b"\n"
    while text:
        text = text[os.write(run._control, text) :]


def _await_start(run: Run, name: str) -> None:
    """Wait until the guardian has executed the command. Raise ProfilerError, or the subclass that
    fits, if it could not."""
    while not {"started", "exec_failed"} & run._seen.keys():
        part = os.read(run._status, 65536)
        if not part:
            run.guardian.wait()
            raise ProfilerError("the guard process did not start")
        *lines, run._buffer = (run._buffer + part).split(b"\n")
        for line in lines:
            message = json.loads(line)
            run._seen[message["event"]] = message
    failed = run._seen.get("exec_failed")
    if failed is None:
        run.pid = run._seen["started"]["pid"]
        run.started = run._seen["started"]["t"]
        if "gone" in run._seen:
            run._settle()
        return
    run.guardian.wait()
    os.close(run._control)
    os.close(run._status)
    number, where = failed["errno"], failed["where"]
    reason = os.strerror(number) if number else where
    if where == "cwd":
        raise BadOption(f"cannot enter the working directory: {reason}")
    if where != "exec":
        raise ProfilerError(f"cannot start {name}: {reason} ({where})")
    if number == errno.ENOENT:  # the file is there: its interpreter is not
        raise CommandNotFound(f"{name}: the interpreter in its first line does not exist")
    if number == errno.E2BIG:
        raise BadOption(f"{name}: arguments and environment are too long")
    raise NotExecutable(f"cannot execute {name}: {reason}")
