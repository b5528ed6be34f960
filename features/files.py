"""Writing files atomically: under a temporary name first, then renamed.

A reader finds the old file or the new one, never half of one, also when the writer is killed; with
`durable`, also when the power fails. Each writer has its own temporary name, so that two writers of
one file do not disturb each other: the file of the one that ends last stays. Only regular files are
replaced; a device or a pipe is refused. So is a link that another user has put into a shared folder
such as /tmp.

Standard library only: the local backend's zygote runs without site-packages.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from features.given import KINDS

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = ".writer"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of the file system


class FolderBusy(OSError):
    """Raised if another process is writing into the folder; `strerror` names that process."""


@contextmanager
def replacing(
    path: str | Path, *, durable: bool = False, mode: int | None = None, folders: bool = True
) -> Iterator[Path]:
    """Yield the path of an empty temporary file. It replaces `path` when the block ends, and is
    removed if the block fails. If `path` is a link, the file that it points to is replaced.

    Args:
        durable: wait until the file, its name and new folders are on disk.
        mode: permission bits of the new file, less the umask; None: those of the replaced file, or
            0o666 less the umask if there is none.
        folders: create missing parent folders.

    Raises OSError if the file cannot be written, or if `path` is no regular file.
    """
    target, before = _target(path)
    if folders:
        _make(target.parent, durable=durable)
    own = f"{os.getpid()}.{secrets.token_hex(4)}"
    partial = target.with_name(f".{target.name[:50]}.{own}.partial")
    kept = before if mode is None else mode
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(partial, flags, 0o666 if kept is None else kept)
    try:
        if kept is not None and mode is None:
            os.fchmod(file, kept)  # what the umask took away
    finally:
        os.close(file)
    try:
        yield partial
        if durable:
            sync(partial)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync(target.parent)


def write_whole(
    path: str | Path,
    content: str | bytes,
    *,
    durable: bool = False,
    mode: int | None = None,
    folders: bool = True,
) -> None:
    """Write `content` to a file atomically, text as UTF-8. The arguments are those of
    `replacing`."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, durable=durable, mode=mode, folders=folders) as partial:
        file = os.open(partial, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_all(file, data)
        finally:
            os.close(file)


def write_json(path: str | Path, value: object) -> None:
    """Write a value as JSON to a file, atomically."""
    write_whole(path, json.dumps(value, indent=2) + "\n")


def write_table(path: str | Path, table: pa.Table) -> None:
    """Write a table as Parquet to a file, atomically."""
    import pyarrow.parquet as pq

    with replacing(path) as partial:
        pq.write_table(table, partial, compression="zstd")


def write_all(file: int, data: bytes) -> None:
    """Write all of `data` to the file descriptor `file`. Raise OSError when the disk is full."""
    while data:
        data = data[os.write(file, data) :]


def sync(path: Path) -> None:
    """Wait until a file's content, or the entries of a folder, are on disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _make(folder: Path, *, durable: bool) -> None:
    """Create a folder and its missing parents. With `durable`, sync each new entry to disk."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing if durable else ():
        sync(made.parent)


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary files of `replacing` in `folder`. Another process may be writing them,
    unless the caller holds `only_writer`: then killed processes left them."""
    return list(folder.glob(".*.partial"))


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into a folder while the block runs. Creates the folder if
    it is missing.

    The lock is freed also when this process is killed. Raises FolderBusy if another process holds
    it. On a file system without locks, nobody is kept out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    file = _locked(path)
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        os.ftruncate(file, 0)
        write_all(file, text.encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _locked(path: Path) -> int:
    """Open and lock the lock file at `path`, and return its descriptor. If the file system has no
    locks, the file stays unlocked. Raises FolderBusy if another process holds the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(path, flags, 0o666)  # a link may lead to what others want emptied
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held, named = os.fstat(file), os.stat(path)
            if (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev):
                return file
        except FileNotFoundError:
            pass  # its last holder removed it meanwhile
        except BlockingIOError:
            who = os.read(file, 200).decode(errors="replace") or "another process"
            os.close(file)
            busy = f"is being written by {who}"
            raise FolderBusy(errno.EBUSY, busy, str(path.parent)) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return file
            os.close(file)
            raise
        os.close(file)


def _not_planted(path: str | Path) -> None:
    """Raise OSError if `path` is a link in a folder that everybody can write to (such as /tmp), and
    neither this user nor the folder's owner made the link."""
    try:
        link, folder = os.lstat(path), os.stat(os.path.dirname(path) or ".")
    except FileNotFoundError:
        return
    everybodys = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    ours = link.st_uid in (os.geteuid(), folder.st_uid)
    if stat.S_ISLNK(link.st_mode) and everybodys and not ours:
        raise OSError(errno.EACCES, "is a link that another user has put there", str(path))


def _target(path: str | Path) -> tuple[Path, int | None]:
    """Return the path of the file to replace, with links followed, and its permission bits. These
    are None if the file does not exist. Raise OSError if it is not a regular file, or `path` is a
    link that another user has planted.
    """
    _not_planted(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    kind = stat.S_IFMT(mode)
    if kind != stat.S_IFREG:
        text = f"is {KINDS.get(kind, 'something else')}, not a regular file"
        raise OSError(errno.EINVAL, text, str(path))
    return Path(os.path.realpath(path)), mode & 0o777
