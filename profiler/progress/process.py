"""The process that reads what tenants write, for a service that does not read it itself.

It is handed open files and can open none: no rights but to read those. Whatever a text makes of
it, all that it can do is to answer (`profiler.progress.wire`) or to die.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from features.commands import of_command, of_commands, work_of
from features.shell import of_script
from profiler.ends import last_lines, memory_complaint
from profiler.progress.names import Terms
from profiler.progress.news import Beside, Follower
from profiler.progress.tail import Tail
from profiler.progress.wire import PACKET, Answer, greeting, line_of, packed

ONCE_S = 1.0  # processor time of one request; the kernel ends who takes more
MOST_MIB = 1024
MOST_TEXT = 2**20  # bytes of a script and a command
FILES = 32
# Its account is nobody's: not that of "nobody", as whom a job may run, and which could end it. Of
# 65520 to 65533 none is given out, by Debian nor by systemd (https://systemd.io/UIDS-GIDS).
READER = 65_533
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWIPC = 0x40000000, 0x08000000
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446  # the same on every architecture
_PR_SET_SECCOMP, _FILTER = 22, 2
_ARCHITECTURES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # and their socket()
_IO_URING_SETUP, _OTHER_CALLS = 425, 0x40000000  # x32's
_LANDLOCK_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # of files, by the version of its interface


class Job:
    """The output of one job, its file of progress, and what was read of both."""

    def __init__(self, asked: dict[str, Any]) -> None:
        command, amount = asked["command"], asked["amount"]
        found = of_command(command)
        if asked["script"]:
            found = of_commands(of_script(asked["script"], asked["arguments"]))
        elif not (found.epochs or found.steps):  # by a file that it names, read by who submitted it
            found = found._replace(**amount)
        self.files: dict[str, int] = {}
        own = (lambda: self._file("own")) if asked["own"] else None
        tail = Tail(lambda: self._file("output"), found, own)
        self.follower = Follower(tail, Terms(*asked["terms"]))
        self.beside: Beside | None = None

    def _file(self, name: str) -> int:
        if name not in self.files:
            raise FileNotFoundError(name)
        return os.dup(self.files[name])


class Desk:
    """Answers the requests of a service, in the reading process."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}

    def answer(self, asked: dict[str, Any], files: dict[str, int]) -> Answer:
        """Do what a request asks about a job, and return the answer. `files` holds the open files
        by name.
        """
        job, what = asked["job"], asked["do"]
        if what == "follow":
            self._jobs[job] = Job(_read_all(files["asked"]))
            return Answer(0)
        if what == "work":
            return Answer(0, line=_work(_read_all(files["asked"])))
        if what == "drop":
            self._jobs.pop(job, None)
            return Answer(0)
        known = self._jobs.get(job)
        if known is not None:
            known.files = files
        # what is read is what is there now, some time after it was asked for
        at = asked["at"] + time.monotonic() - asked["then"]
        if what == "end":
            return self._ended(known, asked["at"], files)
        assert known is not None, "it is followed first"
        if what == "beside":
            known.beside = known.follower.beside(at, asked["for"])
            return Answer(0, beside=known.beside is not None)
        if known.beside is not None:
            return Answer(0, beside=True, speed=known.beside.speed(at))
        return Answer(0, progress=known.follower.look(at))

    def _ended(self, job: Job | None, at: float, files: dict[str, int]) -> Answer:
        progress = None if job is None else job.follower.look(at, last=True)
        lines: Sequence[str] = last_lines(files["output"]) if "output" in files else ()
        complaint = memory_complaint(lines) or ""
        return Answer(0, False, progress, complaint=complaint, line=lines[-1] if lines else "")

    def forget(self, job: int) -> None:
        """Forget a job that cannot be read any more; its output is not read again."""
        self._jobs.pop(job, None)


def _work(asked: dict[str, Any]) -> str:
    """Return the amount of work that a job asks for, as the line of an answer."""
    script = ["bash", "-c", asked["script"], "script", *asked["arguments"]]
    return line_of(work_of(script if asked["script"] else asked["command"]))


def serve(line: socket.socket) -> None:
    """Answer requests from the socket until it is closed."""
    desk = Desk()
    while True:
        data, held, _, _ = socket.recv_fds(line, PACKET, 4)
        if not data:
            return
        try:
            asked = json.loads(data)
            files = dict(zip(asked["files"], held, strict=True))
            line.send(packed(_timed(desk, asked, files)))
        finally:
            for file in held:
                os.close(file)


def _timed(desk: Desk, asked: dict[str, Any], files: dict[str, int]) -> Answer:
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, ONCE_S)
    try:
        found = desk.answer(asked, files)
        packed(found)  # a value that has no place there is the text's fault, too
    except Exception:  # whatever a text makes of it
        desk.forget(asked["job"])
        found = Answer(0, failed=True)
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return replace(found, number=asked["number"], cpu_s=time.process_time() - began)


def _read_all(file: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.pread(file, MOST_TEXT + PACKET, 0))
    return found


# --- rights ---------------------------------------------------------------------------------------


def shut_in(parent: int) -> None:
    """Give up every right that reading open files and answering does not need."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)  # it died before that
    if os.geteuid() == 0:
        libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC)
        os.setgroups([])
        os.setresgid(READER, READER, READER)
        os.setresuid(READER, READER, READER)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0)
    _opens_nothing(libc)
    _talks_to_nobody(libc)
    for limit, most in (
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_AS, MOST_MIB * 2**20),
    ):
        resource.setrlimit(limit, (most, most))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user takes it away


def _opens_nothing(libc: ctypes.CDLL) -> None:
    """Have the kernel refuse to open any file by name, if it can (Landlock)."""
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    rights = _LANDLOCK_RIGHTS.get(min(version, max(_LANDLOCK_RIGHTS)))
    if rights is None:
        return
    network = 3 if version >= 4 else 0  # to bind, and to connect
    wanted = ctypes.create_string_buffer(struct.pack("<QQ", (1 << rights) - 1, network), 16)
    rules = libc.syscall(_LANDLOCK_CREATE, wanted, 16 if version >= 4 else 8, 0)
    if rules >= 0:
        libc.syscall(_LANDLOCK_RESTRICT, rules, 0)
        os.close(rules)


def _talks_to_nobody(libc: ctypes.CDLL) -> None:
    """Have the kernel refuse to make any socket, if it can (seccomp): also where the service may
    not give the process a network of its own, and for what Landlock does not know.
    """
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None or sys.maxsize < 2**32:
        return
    architecture, makes_socket = known
    load, equal, from_here_on, say = 0x20, 0x15, 0x35, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    rules = [  # code, steps to skip if so and if not, value
        (load, 0, 0, 4),
        (equal, 0, 5, architecture),
        (load, 0, 0, 0),
        (from_here_on, 3, 0, _OTHER_CALLS),
        (equal, 2, 0, makes_socket),
        (equal, 1, 0, _IO_URING_SETUP),  # which makes them, too
        (say, 0, 0, allow),
        (say, 0, 0, refuse),
    ]
    packed_rules = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    program = ctypes.create_string_buffer(packed_rules, len(packed_rules))
    asked = struct.pack("HP", len(rules), ctypes.addressof(program))
    libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(asked, len(asked)), 0, 0)


def main() -> None:
    """Run the reading process. Its arguments are the numbers of its socket and of the process that
    started it.
    """
    line, parent = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready = greeting()  # reads the site's formats, while a file can be opened
    shut_in(parent)
    with socket.socket(fileno=line) as asked:
        asked.send(ready)
        serve(asked)
