"""Opening files that came from outside this program: named by a person, or kept by another process.

Such a name may lead to a pipe, a device, a socket, a folder or an endless file, or the file may be
gone by the time it is read. The functions here never wait for a pipe or device, read a limited
part, and raise an OSError that says what is wrong. Of a growing file, only the part that it held
when it was opened is read. Links are followed; with `within`, only inside that folder.

Standard library only, as `features.files`.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
MIB = 2**20
SMALL = 4 * MIB  # what a person writes: settings, scripts, tokens
LARGE = 256 * MIB  # what a program writes to be read at once: metrics, Slurm's answers
LARGEST = 4096 * MIB  # what one process keeps for the next: snapshots, results
_HOW = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def descriptor(path: str | Path, *, within: Path | None = None, follow: bool = True) -> int:
    """Return a descriptor of a regular file, open for reading. The caller closes it.

    Args:
        within: a folder that the file must lie in: links that lead out of it are refused.
        follow: follow a link; if False, a link is refused.

    Raises OSError if the file cannot be opened, is no regular file or is refused; `strerror` says
    why.
    """
    regular(path)  # to open a device may act on it
    file = os.open(path, _HOW if follow else _HOW | os.O_NOFOLLOW)
    try:
        _regular(os.fstat(file), path)  # another may lie there by now
        if within is not None:
            _inside(file, within, path)
    except BaseException:
        os.close(file)
        raise
    return file


def regular(path: str | Path) -> None:
    """Raise OSError unless `path` leads to a regular file. The file is not opened."""
    try:
        _regular(os.stat(path), path)
    except ValueError as error:  # a name that no file can have
        raise OSError(errno.EINVAL, str(error), str(path)) from None


@contextmanager
def opened(path: str | Path, *, within: Path | None = None) -> Iterator[io.BufferedReader]:
    """Open a regular file and yield it. It ends at the size that it had when it was opened.
    `within` as in `descriptor`."""
    with open(descriptor(path, within=within), "rb", buffering=0) as raw:
        size = os.fstat(raw.fileno()).st_size
        yield io.BufferedReader(_Held(raw, size), MIB // 4)


@contextmanager
def opened_text(
    path: str | Path, *, newline: str | None = None, errors: str = "strict"
) -> Iterator[TextIO]:
    """Read all of a regular file of at most LARGE bytes, and yield its text as an open file. Raises
    as `read_text`.
    """
    yield io.StringIO(read_text(path, LARGE, errors=errors), newline=newline)


def read_given(path: str | Path, most: int = SMALL, *, within: Path | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises OSError as `descriptor` does, or if the file holds more.
    """
    with open(descriptor(path, within=within), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        content = b"" if found.st_size > most else _to_the_end(file, most + 1)
        if found.st_size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"holds more than {_amount(most)}", str(path))
        return content


def read_text(
    path: str | Path, most: int = SMALL, *, errors: str = "strict", within: Path | None = None
) -> str:
    """Return the content of a regular file of at most `most` bytes, as UTF-8 text. See
    `read_given`.

    Raises OSError as `read_given` does, and UnicodeDecodeError if the content is not UTF-8 and
    `errors` is "strict".
    """
    return read_given(path, most, within=within).decode("utf-8", errors)


@contextmanager
def arrow_file(path: str | Path) -> Iterator[pa.NativeFile]:
    """Open a regular file and yield it as a file of Arrow, which reads without Python. Raises
    OSError as `descriptor` does."""
    import pyarrow as pa

    file = descriptor(path)
    try:
        with pa.OSFile(f"/proc/self/fd/{file}") as source:  # the same file, whatever lies there now
            yield source
    finally:
        os.close(file)


class _Held(io.RawIOBase):
    """A file that ends at the size it had when it was opened, so that text appended later is not
    read. Files of the kernel (/proc, /sys) report size 0 and are read to their end."""

    def __init__(self, raw: io.FileIO, size: int) -> None:
        self._raw, self._end = raw, size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self._end:
            return self._raw.seek(self._end + offset)
        return self._raw.seek(offset, whence)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        if self._end:
            view = view[: max(0, self._end - self._raw.tell())]
        return self._raw.readinto(view) or 0

    def fileno(self) -> int:
        return self._raw.fileno()


def _to_the_end(file: io.FileIO, most: int) -> bytes:
    parts = []
    while most > 0 and (part := file.read(min(most, MIB))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _inside(file: int, folder: Path, path: str | Path) -> None:
    """Raise OSError unless the open file `file` lies in `folder`. `path` is the name under which it
    was opened, for the message."""
    lies = os.readlink(f"/proc/self/fd/{file}")
    if not Path(lies).is_relative_to(os.path.realpath(folder)):
        raise OSError(errno.EACCES, "is a link out of its folder", str(path))


def _regular(found: os.stat_result, path: str | Path) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        text = f"is {KINDS.get(kind, 'something else')}, not a regular file"
        raise OSError(errno.EINVAL, text, str(path))


def _amount(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size} bytes"
