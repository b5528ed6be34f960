"""The files about attempts: a folder for each, made by the process that may begin it, and a log of
acknowledgements.

    lock                   held by the service and by whatever may still begin something
    bell                   a FIFO: shims write a folder's name to it when they have changed it
    told.log               what was acknowledged, a line each
    attempts/NAME/claim    who begins it; the folder appears with it, in one step
    attempts/NAME/started  the command was executed
    attempts/NAME/over     how it ended; nothing more comes of it
    output/NAME.log        what it wrote

Standard library only: the process that forks jobs (`shim`) runs without site-packages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from features.files import sync, write_all, write_whole
from features.given import LARGE, opened, read_given
from scheduler.backends.busy import BackendBusy

CLAIM, STARTED, OVER = "claim", "started", "over"
NOT_STARTED = "not_started"  # as `scheduler.backends.base.Happened` has it
KEPT = 100_000  # acknowledged ends remembered, so that nothing is begun twice
LONGEST_NAME = 180
Key = tuple[str, int]


class Claim(TypedDict, total=False):
    """The record by which a process claims an attempt, so that no other process begins it, together
    with what the attempt is to run. An attempt that was prevented from beginning has fewer fields.
    """

    job_id: str
    attempt: int
    purpose: str
    command: list[str]
    nodes: list[int]
    gpus: list[int]
    partner: str | None
    memory_mib: float | None
    time_limit_s: float | None
    limit_s: float | None
    watch_s: float | None
    run_id: str
    group: str
    devices: Sequence[str]
    held_mib: dict[str, float]
    progress: bool
    amount: dict[str, float]
    own: str
    user: str
    pid: int
    ticks: int | None
    boot: str
    at: float


class Started(TypedDict, total=False):
    """The record of when the command was executed (by time of day and by the monotonic clock), and
    its process.
    """

    at: float
    monotonic: float
    pid: int


class Over(TypedDict, total=False):
    """The record of how an attempt ended. `at` and `reason` are always there, `detail` for attempts
    that never began or are lost, `survivors` for attempts that ran or are lost, and the other
    fields for those that ran."""

    at: float
    reason: str
    detail: str
    survivors: list[int]
    monotonic: float
    code: int | None
    ran_s: float
    peak_mib: float
    kernel_oom: bool


class SpoolError(RuntimeError):
    """Raised where the spool (the folder with the files about attempts) cannot be used. The message
    is one line for a person.
    """


def name_of(job_id: str, attempt: int) -> str:
    """Return the folder name of an attempt. Every job id has one, no two attempts share one, and
    none leads out of the spool.
    """
    name = quote(job_id, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(name) > LONGEST_NAME:
        digest = hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[:60]}~{digest}"  # no short name holds a tilde
    return f"{name}@{attempt:d}"


def start_ticks(pid: int) -> int | None:
    """Return when a living process began, in clock ticks since boot, or None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    return None if fields[0] in b"ZXx" else int(fields[19])


class SpoolBusy(SpoolError, BackendBusy):
    """Raised where another service uses the spool (the folder with the files about attempts)."""


class Spool:
    """The spool: the folder with the files about attempts. Reading and writing need no lock;
    beginning an attempt needs `lock`.

    Raises:
        SpoolError: the folder cannot be made, or others can write to it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.attempts, self.output = self.root / "attempts", self.root / "output"
        self.bell = self.root / "bell"
        try:
            for folder in (self.root, self.attempts, self.output):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.root.stat()
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.bell, 0o600)
        except OSError as error:
            raise SpoolError(f"spool {self.root}: {error.strerror or error}") from None
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise SpoolError(f"spool {self.root}: belongs to, or can be written by, somebody else")

    def lock(self, patience_s: float) -> int:
        """Take the lock of the spool, and return its file descriptor. A process that inherits the
        descriptor holds the lock, too.

        Raises:
            SpoolBusy: another process holds the lock for all of `patience_s` seconds.
        """
        file = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + patience_s
        try:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return file
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        why = f"spool {self.root}: in use by another service"
                        raise SpoolBusy(why) from None
                    time.sleep(0.01)
        except BaseException:
            os.close(file)
            raise

    # --- attempts -----------------------------------------------------------------------------

    def claim(self, name: str, records: Mapping[str, Mapping[str, Any]]) -> bool:
        """Make the folder of an attempt, with these records in it. Return False where another
        process was first.

        The folder is safely on disk when this returns, so that the attempt begins at most once,
        power cuts included.
        """
        temporary = self.attempts / f".{secrets.token_hex(8)}"
        temporary.mkdir(mode=0o700)
        try:
            for kind, values in records.items():
                write_whole(temporary / kind, _encoded(values), durable=True, mode=0o600)
            os.rename(temporary, self.attempts / name)  # onto a folder with anything in it: fails
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        sync(self.attempts)
        return True

    def record(self, name: str, kind: str, values: Mapping[str, Any], *, durable: bool) -> None:
        """Write a record of an attempt, whole or not at all. `kind`: its file name; `durable`: wait
        until it is safely on disk.
        """
        path = self.attempts / name / kind
        write_whole(path, _encoded(values), durable=durable, mode=0o600, folders=False)

    def read(self, name: str, kind: str) -> Any:
        """Return a record of an attempt, or None when there is none, or a power cut has emptied
        it.
        """
        try:
            return json.loads(read_given(self.attempts / name / kind, LARGE))
        except (FileNotFoundError, ValueError):
            return None

    def names(self) -> list[str]:
        """Return the folder name of every attempt, and remove folders that were left half-made."""
        found = []
        for name in os.listdir(self.attempts):
            if name.startswith("."):
                shutil.rmtree(self.attempts / name, ignore_errors=True)
            else:
                found.append(name)
        return found

    def remove(self, name: str) -> None:
        """Delete the folder of an attempt. Its output stays."""
        shutil.rmtree(self.attempts / name, ignore_errors=True)

    def log(self, name: str) -> Path:
        """Return the path of the file with an attempt's output. `name`: name of the attempt's
        folder.
        """
        return self.output / f"{name}.log"

    def prune_output(self, most_mib: float, keep: Container[str]) -> None:
        """Remove the oldest outputs, except those in `keep`, until all together are at most
        `most_mib`. The samples of an attempt's GPU usage are removed with its output.
        """
        attempts: dict[str, list[tuple[Path, os.stat_result]]] = {}
        for path in self.output.iterdir():
            attempts.setdefault(path.stem, []).append((path, path.stat()))
        size = sum(found.st_size for files in attempts.values() for _, found in files)
        ages = {stem: max(one.st_mtime for _, one in files) for stem, files in attempts.items()}
        for stem in sorted(ages, key=lambda stem: ages[stem]):
            if size <= most_mib * 2**20:
                return
            if stem not in keep:
                for path, found in attempts[stem]:
                    path.unlink(missing_ok=True)
                    size -= found.st_size

    def ring(self, name: str) -> None:
        """Wake the service: write the folder name of an attempt to the pipe that the service reads.
        Do nothing if no service reads it.
        """
        with contextlib.suppress(OSError):  # nobody listens, or it has a lot to read already
            file = os.open(self.bell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(file, f"{name}\n".encode())
            finally:
                os.close(file)


class Acks:
    """The acknowledged reports: which reports of unfinished attempts, and which attempts are
    finished.

    They are kept in a file of lines, each with a job, an attempt, what happened and when. Of
    finished attempts, the newest `KEPT` are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[Key, str] = {}
        self.partly: dict[Key, set[str]] = {}
        self.latest = 0.0
        for line in self._read():
            with contextlib.suppress(TypeError, ValueError):  # nothing that was written here
                self._take(*line)
        self._compact()
        self._file = self._open()

    def add(self, lines: Iterable[tuple[str, int, str, bool, float]]) -> None:
        """Add lines of (job, attempt, what happened, whether the attempt is finished, when)."""
        text = ""
        for line in lines:
            self._take(*line)
            text += json.dumps(line, separators=(",", ":")) + "\n"
        write_all(self._file, text.encode())
        if len(self.done) > 2 * KEPT:
            self.close()
            self._compact()
            self._file = self._open()

    def mend(self, by_s: float) -> None:
        """Move the latest time in the file back by `by_s` seconds, because it was written while the
        host's clock was wrong.
        """
        self.latest = max(0.0, self.latest - by_s)
        self._compact()

    def begun(self) -> set[Key]:
        """Return the finished attempts, except those that never began."""
        return {key for key, what in self.done.items() if what != NOT_STARTED}

    def close(self) -> None:
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _take(self, job_id: str, attempt: int, what: str, final: bool, at: float) -> None:
        key = job_id, attempt
        self.latest = max(self.latest, at)
        if final:
            self.done[key] = what
            self.partly.pop(key, None)
        else:
            self.partly.setdefault(key, set()).add(what)

    def _read(self) -> Iterator[tuple[str, int, str, bool, float]]:
        with contextlib.suppress(FileNotFoundError), opened(self.path) as file:
            for line in file:
                with contextlib.suppress(ValueError):  # it was cut short, and is sent again
                    if line.endswith(b"\n"):
                        yield json.loads(line)

    def _compact(self) -> None:
        """Write the file again without old lines, which also repairs a last line that was cut
        short.
        """
        for key in list(self.done)[:-KEPT]:
            del self.done[key]
        lines = [
            (job_id, attempt, what, False, self.latest)
            for (job_id, attempt), whats in self.partly.items()
            for what in sorted(whats)
        ]
        lines += [(*key, what, True, self.latest) for key, what in self.done.items()]
        write_whole(self.path, b"".join(_encoded(line) + b"\n" for line in lines), mode=0o600)


def _encoded(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode()
