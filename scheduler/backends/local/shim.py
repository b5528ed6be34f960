"""The zygote, and the shims it forks: one shim stands by each running command.

The zygote is a small interpreter that the service starts once. For each request it forks; the child
is the shim of one attempt. The shim claims the attempt, runs the command as `profiler.guardian`
does (own session, limits, no process left behind) and writes down how it ended. It needs no other
process: the service may die, come back and read.

Standard library only, single-threaded. Requests come through a pipe, as JSON lines; a signal
SIGTERM to a shim ends its command.
"""

from __future__ import annotations

import contextlib
import gc
import grp
import json
import os
import pwd
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from features.clock import boot_id
from profiler import procs
from profiler.guardian import Config, Guardian
from scheduler.backends.local import cgroup
from scheduler.backends.local.spool import CLAIM, OVER, STARTED, Claim, Over, Spool, start_ticks

POLL_S, MEMORY_POLL_S, RETRY_S = 2.0, 0.2, 1.0


class Refused(Exception):
    """Raised where a job's command cannot be started at all. The text is the reason."""


class Shim(Guardian):
    """A guardian (parent of one command) that reports to files in the spool instead of to a parent
    process.
    """

    def __init__(self, spool: Spool, name: str, config: Config, control: int) -> None:
        super().__init__(control, -1, config)
        self.spool, self.name = spool, name
        self.began = self.ended = 0.0  # time.monotonic()
        self.reason = ""
        self.oom_before = procs.oom_kills()
        self.account: Account | None = None
        self.group: Path | None = None
        self.poll_s = POLL_S if config["memory_mib"] is None else MEMORY_POLL_S

    def orphaned(self) -> bool:
        return False  # it is meant to outlive the service

    def become_user(self) -> None:
        if self.group is not None:
            cgroup.enter(self.group)
        if self.account is not None:
            self.account.become()

    def say(self, event: str, **values: Any) -> None:
        now = time.monotonic()
        if event == "started":
            self.began = now
            record = {"at": time.time(), "monotonic": now, "pid": values["pid"]}
            with contextlib.suppress(OSError):  # it runs all the same
                self.spool.record(self.name, STARTED, record, durable=False)
            self.spool.ring(self.name)
        elif event == "exec_failed":
            raise Refused(_refusal(values["errno"], values["where"], self.config))
        elif event == "exited":
            self.ended = now
        elif event == "stopping":
            self.reason, self.ended = values["reason"], self.ended or now
        elif event == "gone":
            self.over(values)

    def over(self, values: Mapping[str, Any]) -> None:
        """Write the record of how the command ended to the spool. `values`: what the guardian
        reports about the end.
        """
        status = values["status"]
        survivors = set(values["survivors"])
        if self.group is not None:
            survivors.update(cgroup.end(self.group))
        code = None if status is None else os.waitstatus_to_exitcode(status)
        write_down(
            self.spool,
            self.name,
            {
                "at": time.time(),
                "monotonic": self.ended,
                "reason": self.reason,
                "code": code,
                "ran_s": self.ended - self.began,
                "peak_mib": round(values["peak_mib"], 1),
                "kernel_oom": code == -signal.SIGKILL and procs.oom_kills() > self.oom_before,
                "survivors": sorted(survivors),
            },
        )

    def live(self) -> None:
        """Run the command to its end. Raise Refused or OSError where it cannot be started."""
        config = self.config
        self.account = Account.named(config["user"]) if config["user"] else None
        if self.account is not None:
            _leave_keyring()  # as root: the account may have no key left to make
            os.fchown(self.output, self.account.uid, self.account.gid)
            config["env"] = {**config["env"], **self.account.environment()}
            config["cwd"] = config["cwd"] or self.account.home
        config["cwd"] = config["cwd"] or os.path.expanduser("~")
        if config.get("group"):
            with contextlib.suppress(OSError):  # without one it runs all the same
                cgroup.make(Path(config["group"]), config["memory_mib"])
                self.group = Path(config["group"])
        try:
            self.run()
        except (Refused, OSError):
            if self.group is not None:
                cgroup.end(self.group)
            raise


class Account:
    """An account of this machine to which a process can switch."""

    def __init__(self, entry: pwd.struct_passwd) -> None:
        self.name, self.uid, self.gid = entry.pw_name, entry.pw_uid, entry.pw_gid
        self.home, self.shell = entry.pw_dir, entry.pw_shell
        self.groups = os.getgrouplist(self.name, self.gid)

    @classmethod
    def named(cls, name: str) -> Account | None:
        """Return the account called `name`, or None when this process already runs as it. Raise
        Refused where there is no such account, or this process may not switch to it.
        """
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise Refused(f"this host has no user {name!r}") from None
        if entry.pw_uid == os.geteuid():
            return None
        if os.geteuid() != 0:
            raise Refused(
                f"the service does not run as root and so cannot run a job as user {name!r}"
            )
        return cls(entry)

    def become(self) -> None:
        """Make this process run as the account of the job's user, for good, without the rights of
        the account that started it."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)
        with contextlib.suppress(PermissionError):
            os.setuid(0)
            os._exit(1)  # it must not have been possible

    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}


def _leave_keyring() -> None:
    try:
        procs.leave_session_keyring()
    except OSError as error:
        raise Refused(f"cannot be given a session keyring of its own: {error.strerror}") from None


def _refusal(number: int, where: str, config: Config) -> str:
    why = os.strerror(number) if number else where
    if where == "exec":
        return f"cannot execute {config['argv'][0]!r}: {why}"
    if where == "cwd":
        return f"cannot enter the working directory {config['cwd']!r}: {why}"
    return f"cannot be started: {why} ({where})"


def _stop_pipe() -> int:
    """Handle SIGTERM from now on. Return the end of a pipe that becomes readable once SIGTERM has
    asked this process to end its command.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGTERM, lambda *_: _write_quietly(write, b"stop\n"))
    return read


def _write_quietly(file: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(file, text)


class Request(TypedDict):
    """A request to the zygote (the process that forks shims) to begin an attempt: name of its
    folder, its claim, and how to run the command.
    """

    name: str
    claim: Claim
    config: Config


def shim(spool: Spool, request: Request, lock: int) -> None:
    """Run one attempt: claim it (make its folder, which only one process can) and run its command.
    Do nothing where another shim has claimed it. `lock`: descriptor of the spool's lock, which is
    released after the claim.
    """
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the zygote ignores it, and that is inherited
    procs.prctl(procs.PR_SET_CHILD_SUBREAPER, 1)
    name, control, me = request["name"], _stop_pipe(), os.getpid()
    claim: Claim = {"pid": me, "ticks": start_ticks(me), "boot": boot_id(), "at": time.time()}
    if not spool.claim(name, {CLAIM: {**request["claim"], **claim}}):
        return
    os.close(lock)  # from here on it can no longer begin anything
    process = None
    try:
        process = Shim(spool, name, request["config"], control)
        process.live()
    except (Refused, OSError) as error:
        if process is not None and process.began:
            raise  # the command dies with this process, and is lost
        values: Over = {"at": time.time(), "reason": "refused", "detail": str(error)}
        write_down(spool, name, values)
    spool.ring(name)


def write_down(spool: Spool, name: str, over: Over) -> None:
    """Write the record of an attempt's end, however long that takes. While the disk is full, try
    again.
    """
    while True:
        try:
            spool.record(name, OVER, over, durable=True)
        except FileNotFoundError:
            return  # whoever removed the folder knows
        except OSError:
            time.sleep(RETRY_S)
        else:
            return


def zygote(root: str, requests: int, lock: int) -> None:
    """Fork a shim (the process that starts and watches one command) for each request, until the
    service has ended. `root`: folder of the spool; `requests`, `lock`: descriptors of the request
    pipe and of the spool's lock."""
    spool = Spool(Path(root))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # what a shim that is killed stood by is handed on to here, where it is looked for
    procs.prctl(procs.PR_SET_CHILD_SUBREAPER, 1)
    grp.getgrall()  # whatever name service has to be loaded is loaded once, here
    gc.disable()
    gc.freeze()  # pages that are not touched stay shared
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return  # the service died while it wrote
            try:
                child = os.fork()
            except OSError:  # no process is to be had: the service asks again
                continue
            if child == 0:
                status = 1
                try:
                    os.close(requests)
                    shim(spool, json.loads(line), lock)
                    status = 0
                finally:
                    os._exit(status)


def main() -> None:
    """Run the zygote (the process that forks shims). The command line gives the spool's folder, and
    the descriptors of the request pipe and of the lock.
    """
    root, requests, lock = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(requests, False)
    os.set_inheritable(lock, False)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    zygote(root, requests, lock)
