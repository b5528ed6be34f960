"""Simulates the processes that run jobs: the local backend's shims (each starts and watches one
command) and the commands.

The service's own `LocalBackend`, spool and records are used. In place of the zygote, the process
that forks shims, shims run on the simulation's clock. They do not belong to the service's processes
and outlive them.

A command is `run SECONDS`, `fail SECONDS`, or `none` (a program that does not exist).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.chaos import system
from benchmarks.chaos.disk import Disk, FaultyOs, point, unsynced
from benchmarks.chaos.kernel import Crash, Host, Kernel, Process, active
from benchmarks.chaos.power import WaitedFor
from features import clock, files
from profiler import procs
from scheduler.backends.local import backend as local
from scheduler.backends.local import shim as shims
from scheduler.backends.local import spool as spools
from scheduler.backends.local.attempt import LocalAttempt
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.spool import CLAIM, STARTED, Over, Spool
from scheduler.service.log import bundles

Note = Callable[..., dict[str, Any]]  # writes into the history: what, and its fields


class Machine:
    """The simulated host on which jobs' commands run.

    Args:
        note: called when a command really begins or ends.
        begins: called by a shim before it claims its attempt, which may make the shim late.
    """

    def __init__(
        self, kernel: Kernel, host: Host, disk: Disk, note: Note, begins: Callable[[], None]
    ):
        self.kernel, self.host, self.disk, self.note = kernel, host, disk, note
        self.begins = begins
        self.running = 0  # commands
        self.shims: dict[int, Process] = {}
        self.may_begin: dict[int, Process] = {}  # shims that have not claimed their attempt yet

    def begin(self, root: Path, request: bytes, lock: int) -> None:
        """Start a shim for a request of the backend. The shim soon ceases to be the service's
        child, and outlives it.
        """
        asked = json.loads(request)
        process = self.kernel.process(f"shim {asked['name']}", self.host)
        process.role = "shim"
        self.shims[process.pid] = process
        held = [lock]

        def let_go() -> None:
            self.may_begin.pop(process.pid, None)
            while held:
                os.close(held.pop())

        process.on_death.append(let_go)  # perhaps before it did anything
        self.may_begin[process.pid] = process
        self.kernel.spawn(process, lambda: self._shim(Spool(root), asked, let_go, process))

    def _gone(self, process: Process) -> None:
        self.shims.pop(process.pid, None)

    def _shim(
        self, spool: Spool, asked: dict[str, Any], let_go: Callable[[], None], process: Process
    ) -> None:
        process.on_death.append(lambda: self._gone(process))
        name, asked_for = asked["name"], asked["claim"]
        claim = {"pid": process.pid, "ticks": process.ticks, "boot": boot_id()}
        try:
            self.begins()
            claim["at"] = time.time()
            if not spool.claim(name, {CLAIM: {**asked_for, **claim}}):
                return
        finally:
            let_go()
        _, how, *seconds = asked["config"]["argv"]
        if how == "none":
            why = "cannot execute 'none'"
            refused: Over = {"at": time.time(), "reason": "refused", "detail": why}
            shims.write_down(spool, name, refused)
        else:
            self._run(spool, asked, process, how, float(seconds[0]))
        spool.ring(name)

    def _run(
        self, spool: Spool, asked: dict[str, Any], process: Process, how: str, seconds: float
    ) -> None:
        name, claim, config = asked["name"], asked["claim"], asked["config"]
        key = {"job": claim["job_id"], "attempt": claim["attempt"]}
        began = self.kernel.clock
        self.running += 1
        purpose, limit_s = str(claim["purpose"]), config["limit_s"]
        self.note("began", **key, purpose=purpose, gpus=claim["devices"], nodes=claim["nodes"])
        try:
            record = {"at": time.time(), "monotonic": time.monotonic(), "pid": process.pid}
            with contextlib.suppress(OSError):  # it runs all the same
                spool.record(name, STARTED, record, durable=False)
            spool.ring(name)
            self.kernel.wait(lambda: bool(process.told), min(seconds, limit_s))
        finally:
            self.running -= 1
            ran_s = self.kernel.clock - began
            reason = "exited"
            if process.told:
                reason = "request"
            elif seconds > limit_s:
                reason = "limit"
            end = self.note("ended", **key, reason="lost" if process.dead else reason)
        code = {"run": 0, "fail": 1}[how] if reason == "exited" else -signal.SIGTERM
        over: Over = {
            "at": time.time(),
            "reason": reason,
            "code": code,
            "ran_s": ran_s,
            "peak_mib": 1.0,
            "kernel_oom": False,
            "survivors": [],
        }
        try:
            shims.write_down(spool, name, over)
        except Crash:  # perhaps before it was written
            end["reason"] = "unknown"
            raise


class Zygote:
    """Stands in for the process that forks shims."""

    of_run: Callable[[], Machine]  # the machine

    def __init__(self, root: Path, lock: int) -> None:
        self._root, self._lock = root, lock
        self.pid: int | None = None

    def ask(self, request: bytes) -> bool:
        kernel = self.of_run().kernel
        kernel.point("before a shim is asked for")
        self.pid = 1
        self.of_run().begin(self._root, request, os.dup(self._lock))
        kernel.point("after a shim is asked for")
        return True

    def dismiss(self) -> None:
        self.pid = None


def end_strays(root: Path) -> bool:
    machine = Zygote.of_run()
    there = list(machine.may_begin.values())
    for process in there:
        machine.kernel.kill(process, "shim: a stray")
    return bool(there)


def boot_id() -> str:
    kernel = active()
    return "" if kernel is None else f"{kernel.me.host.name}.{kernel.me.host.boot}"


def start_ticks(pid: int) -> int | None:
    process = Zygote.of_run().shims.get(pid)
    return None if process is None else process.ticks


def _signal(attempt: LocalAttempt, number: int) -> None:
    Zygote.of_run().kernel.point("before a signal")
    process = Zygote.of_run().shims.get(attempt.claim["pid"])
    if process is not None:
        process.told.append(number)
    Zygote.of_run().kernel.point("after a signal")


def _readable(files: list[int], timeout_s: float) -> set[int]:
    """Wait until one of the files has data, or the time limit is over; it is checked every so
    often. Return what `procs.readable` would.
    """
    kernel = Zygote.of_run().kernel
    kernel.wait(lambda: bool(procs.readable(files, 0.0)), timeout_s)
    return procs.readable(files, 0.0)


def install(patches: system.Patches, machine: Callable[[], Machine]) -> None:
    """Patch `LocalBackend`: it runs its commands on the simulated machine of the current run."""
    Zygote.of_run = staticmethod(machine)
    patches.put(local, "Zygote", Zygote)
    patches.put(local, "end_strays", end_strays)
    patches.put(local, "procs", SimpleNamespace(**{**vars(procs), "readable": _readable}))
    patches.put(local, "clear_up", lambda *_: [])
    patches.put(local, "cgroup", SimpleNamespace(base=lambda: None))
    patches.put(LocalAttempt, "signal", _signal)
    patches.swap(spools.start_ticks, start_ticks)
    patches.swap(clock.boot_id, boot_id)
    patches.put(files, "os", FaultyOs(unsynced, point))
    for module in (spools, bundles):
        patches.put(module, "os", WaitedFor(unsynced, point))
    _let_go_on_death(patches, lambda: machine().kernel)


def _let_go_on_death(patches: system.Patches, kernel: Callable[[], Kernel]) -> None:
    """Patch backends: when a simulated process dies, the files of its backend are closed."""
    opens, closes = LocalBackend.__init__, LocalBackend.close
    there: set[int] = set()  # backends that are open

    def let_go(self: LocalBackend) -> None:
        for name in ("_bell", "_lock"):
            if hasattr(self, name):
                os.close(getattr(self, name))
        if hasattr(self, "_acked"):
            self._acked.close()

    def opened(self: LocalBackend, *args: Any, **more: Any) -> None:
        try:
            opens(self, *args, **more)
        except BaseException:  # its process ends
            let_go(self)
            raise
        there.add(id(self))

        def die() -> None:
            if id(self) in there:
                there.discard(id(self))
                let_go(self)

        kernel().me.on_death.append(die)

    def closed(self: LocalBackend) -> None:
        there.discard(id(self))
        closes(self)

    patches.put(LocalBackend, "__init__", opened)
    patches.put(LocalBackend, "close", closed)
