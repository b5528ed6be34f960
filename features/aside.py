"""Looks at files for a process that must not wait: in another, which may be left to hang.

A file system may keep whoever looks at a file of it for good: one that a user mounts (FUSE), or of
a server that is gone (NFS). No signal ends that, and to close such a file may hang as well. So a
process that must go on opens none of them: it asks here for a copy, and where no answer comes in
time, whoever was asked is left behind, and what lies at that place is let alone for a while.

Standard library only, as `features.files`.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Any

from features.given import descriptor, read_given

MAIN = "import features.aside as a; a.main()"
PATIENCE_S = 3.0  # for an answer, and for the answer to what the same user asked before
BEGIN_S, LATE_S = 10.0, 60.0  # for a process to begin; until it is replaced, since it doesn't
PAUSE_S, LONGEST_S = 60.0, 3600.0  # in which a place that hung is let alone, doubled each time
MOST_PLACES = 4  # that hang, before whatever is of the same user is let alone
PACKET = 65_536  # bytes of a question, and of an answer
KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "TZ")  # of the environment


class Hangs(OSError):
    """Raised if no answer came in time, if another question of the same user is still open after
    that time, or, without asking, if the place, or many places of that user, hung lately."""

    def __init__(self, place: str) -> None:
        super().__init__(errno.ETIMEDOUT, "lies where nothing answers", place)


@dataclass(slots=True)
class _Hung:
    until: float
    pause_s: float
    left: subprocess.Popen[bytes]  # it may hang still

    def holds(self, now: float) -> bool:
        return now < self.until or self.left.poll() is None


class Aside:
    """Asks functions of the given modules, in a process that begins with the first question.

    May be used by several threads. The questions of one user are answered one after the other;
    nobody waits for another user's: questions that are open at once go to different processes.

    Args:
        modules: loaded by each process as it begins.
    """

    def __init__(self, *modules: str) -> None:
        self._modules, self._changed = modules, Condition()  # never held by who waits for a process
        self._idle: list[_Process] = []
        self._busy = dict[object, bool]()  # users whose question is open: whether it has been put
        self._hung: dict[tuple[object, str], _Hung] = {}
        self._closed = False

    def ask(self, function: str, *given: Any, whose: object, place: str) -> Any:
        """Return what `module:function` returns for arguments that are plain JSON. A `Copy` that it
        returns comes as a descriptor of memory, which is the caller's to close.

        Args:
            whose: user who chose the place.
            place: folder or file that is looked at.

        Raises OSError: as the function does, or Hangs; EAGAIN if no process began in time; E2BIG if
            the arguments are too long; EIO if the function failed otherwise, or the process ended.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: whose not in self._busy, PATIENCE_S):
                raise Hangs(place) if self._busy[whose] else _none_begins()
            self._let_alone(whose, place)
            self._busy[whose] = False
        try:
            return self._asked(function, given, whose, place).value()
        finally:
            with self._changed:
                del self._busy[whose]
                self._changed.notify_all()

    def _asked(self, function: str, given: Sequence[Any], whose: object, place: str) -> _Found:
        for _ in range(2):
            self._busy[whose] = False
            process = self._taken()
            self._busy[whose] = True
            try:
                found = process.ask(function, given)
            except TimeoutError:
                self._leave(process, whose, place)
                raise Hangs(place) from None
            except OSError:
                self._give_back(process)
                raise
            except BaseException:  # what it answered is not understood
                process.end()
                raise
            if found is not None:
                self._give_back(process)
                with self._changed:
                    self._hung.pop((whose, place), None)
                return found
            process.end()  # somebody ended it
        raise OSError(errno.EIO, "ends the process that looks at it", place)

    def read(
        self, path: str | Path, most: int, *, whose: object, within: Path | None = None
    ) -> bytes:
        """Return the content of a regular file of at most `most` bytes. `whose` is as in `ask`,
        `within` as in `read_given`. Raises OSError as these two do.
        """
        given = str(path), most, None if within is None else str(within)
        place = str(Path(path).parent)
        file = self.ask("features.aside:whole", *given, whose=whose, place=place)
        with open(file, "rb") as memory:
            content: bytes = memory.read()
        return content

    def close(self) -> None:
        """End the idle processes now, and each busy one once it has answered."""
        with self._changed:
            idle, self._idle, self._closed = self._idle, [], True
        for process in idle:
            process.end()

    def _let_alone(self, whose: object, place: str) -> None:
        """Raise Hangs if a place hung lately or hangs still, or if `MOST_PLACES` of that user do.
        Forget places that hung long ago."""
        if not self._hung:
            return
        now = time.monotonic()
        held = {at: one.holds(now) for at, one in self._hung.items()}
        for at in [at for at, one in self._hung.items() if now > one.until + LONGEST_S]:
            if not held[at]:
                del self._hung[at]
        many = sum(holds for at, holds in held.items() if at[0] == whose) >= MOST_PLACES
        if held.get((whose, place)) or many:
            raise Hangs(place)

    def _taken(self) -> _Process:
        """Return a process that has begun, a new one if none is idle. Nobody else asks it until it
        is given back. Raises OSError if it does not begin in time.
        """
        with self._changed:
            process = self._idle.pop() if self._idle else None
        if process is None:
            process = _Process(self._modules)
        if process.has_begun(BEGIN_S):
            return process
        gone = process.ended or process.process.poll() is not None
        if time.monotonic() - process.born < LATE_S and not gone:
            self._give_back(process)  # to be asked later
        else:
            process.end()
        raise _none_begins()

    def _give_back(self, process: _Process) -> None:
        """Keep a process for the next question. Of two idle ones, keep one that has begun, and end
        the other. After `close`, end both."""
        with self._changed:
            there = sorted([*self._idle, process], key=lambda one: not one.has_begun(0.0))
            self._idle = [] if self._closed else there[:1]
            ended = there[len(self._idle) :]
        for one in ended:
            one.end()

    def _leave(self, process: _Process, whose: object, place: str) -> None:
        process.end()
        with self._changed:
            before = self._hung.get((whose, place))
            pause_s = PAUSE_S if before is None else min(LONGEST_S, 2 * before.pause_s)
            until = time.monotonic() + pause_s
            self._hung[whose, place] = _Hung(until, pause_s, process.process)


def _none_begins() -> OSError:
    return OSError(errno.EAGAIN, "no process begins that could look at files")


@dataclass(frozen=True, slots=True)
class _Found:
    answer: dict[str, Any]
    files: Sequence[int]

    def value(self) -> Any:
        if "error" in self.answer:
            raise OSError(*self.answer["error"])
        return self.files[0] if self.files else self.answer["is"]


class _Process:
    """A process that looks, and the socket to it. Raises OSError where none can be started."""

    def __init__(self, modules: Sequence[str]) -> None:
        paths = [str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)]
        boot = f"import sys; sys.path[:] = {paths!r}; {MAIN}"
        self._line, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", boot, str(its.fileno()), *modules],
                    pass_fds=(its.fileno(),),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env={name: os.environ[name] for name in KEPT if name in os.environ},
                )
            except OSError:
                self._line.close()
                raise
        self.born, self._ready, self.ended = time.monotonic(), False, False

    def has_begun(self, patience_s: float) -> bool:
        """Return whether the process can be asked. Wait for that at most `patience_s` seconds."""
        if not self._ready:
            self._line.settimeout(patience_s)
            with suppress(OSError):
                first = self._line.recv(PACKET)
                self._ready, self.ended = first == b"ready", not first
            self._line.settimeout(PATIENCE_S)
        return self._ready

    def ask(self, function: str, given: Sequence[Any]) -> _Found | None:
        """Return the answer; None if the process has ended. Raises TimeoutError if no answer comes
        within `PATIENCE_S` seconds, and OSError for a question that is too long.
        """
        question = json.dumps([function, given]).encode()
        if len(question) > PACKET:  # it would get a part
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        try:
            self._line.send(question)
            data, files, _, _ = socket.recv_fds(self._line, PACKET, 1)
        except TimeoutError:
            raise
        except OSError:
            return None
        return _Found(json.loads(data), files) if data else None

    def end(self) -> None:
        """End the process; one that cannot be ended is left."""
        self._line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1)  # by itself, since nobody can ask it any more
            return
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)


# --- in that process ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Copy:
    """A part of a file, copied to memory. `file` is a descriptor of that memory. It is as large as
    the file and holds the part at the same place, with holes before and behind."""

    file: int


def copied(path: str, most: int, end: bool, uid: int | None) -> Copy:
    """Return a copy of at most `most` bytes of a regular file.

    Args:
        end: copy its last bytes; False: its first.
        uid: user that must own the file; None: any may.

    Raises OSError if the file cannot be read, is a link or no regular file, or is another user's.
    """
    file = descriptor(path, follow=False)
    try:
        found = os.fstat(file)
        if uid is not None and found.st_uid != uid:
            raise PermissionError(errno.EACCES, "belongs to another user", path)
        begin = max(0, found.st_size - most) if end else 0
        part = os.pread(file, most, begin)
    finally:
        os.close(file)  # before the answer: to close may hang, too
    return _held(part, begin, found.st_size)


def whole(path: str, most: int, within: str | None) -> Copy:
    """Return a copy of a regular file. Raises OSError as `read_given`."""
    content = read_given(path, most, within=None if within is None else Path(within))
    return _held(content, 0, len(content))


def stamp(path: str) -> tuple[int, int, int]:
    """Return (inode, size, time of the last change in nanoseconds) of a file. They differ once the
    file is replaced. Raises OSError if there is no such file."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _held(part: bytes, begin: int, size: int) -> Copy:
    memory = os.memfd_create("copy", os.MFD_CLOEXEC)
    try:
        os.truncate(memory, size)
        rest = memoryview(part)
        while rest:
            done = os.pwrite(memory, rest, begin)
            rest, begin = rest[done:], begin + done
    except BaseException:
        os.close(memory)
        raise
    return Copy(memory)


def main() -> None:
    """Answer questions until the other end of the socket is closed. The program's arguments are the
    number of its socket, and the modules to load."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in sys.argv[2:]:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as line:
        line.send(b"ready")
        while data := line.recv(PACKET):
            function, given = json.loads(data)
            answer, files = _answer(function, given)
            socket.send_fds(line, [json.dumps(answer).encode()], files)
            for file in files:
                os.close(file)


def _answer(function: str, given: Sequence[Any]) -> tuple[dict[str, Any], list[int]]:
    module, _, name = function.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)(*given)
    except OSError as error:
        return {"error": [error.errno, error.strerror, error.filename and str(error.filename)]}, []
    except Exception as error:  # a defect of ours: who asks next is answered all the same
        return {"error": [errno.EIO, repr(error), None]}, []
    return ({}, [found.file]) if isinstance(found, Copy) else ({"is": found}, [])
