"""Reads published files that are plain, compressed, or the only file in an archive."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, BinaryIO

# what reading one that is broken raises
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
          NotImplementedError, RuntimeError)  # fmt: skip
_STREAMS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))
_TAR_AT = 257
_IN_TAR = b"ustar"


class SeveralFiles(ValueError):
    """Raised for an archive of more than one file. The message is one line that names them."""


@contextmanager
def unpacked(raw: BinaryIO, path: Path) -> Iterator[IO[bytes]]:
    """Yield the decompressed content of a file, as a binary file; of an archive, that of its only
    file.

    Raises SeveralFiles for an archive of several files, and one of the exceptions in `BROKEN` if
    the file is damaged.
    """
    start = raw.read(8)
    raw.seek(0)
    with ExitStack() as stack:
        if start.startswith(b"PK\x03\x04"):
            archive = stack.enter_context(zipfile.ZipFile(raw))
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            yield stack.enter_context(archive.open(_only(names, path)))
            return
        opened: IO[bytes] = raw
        for magic, way in _STREAMS:
            if start.startswith(magic):
                opened = stack.enter_context(way(raw, "rb"))  # type: ignore[arg-type]
        if not _is_tar(opened):
            opened.seek(0)
            yield opened
            return
        opened.seek(0)
        tar = stack.enter_context(tarfile.open(fileobj=opened, mode="r:"))
        members = {one.name: one for one in tar if one.isfile()}
        found = tar.extractfile(members[_only([*members], path)])
        assert found is not None
        yield stack.enter_context(found)


def _is_tar(opened: IO[bytes]) -> bool:
    return opened.read(_TAR_AT + len(_IN_TAR))[_TAR_AT:] == _IN_TAR


def _only(names: list[str], path: Path) -> str:
    kept = [name for name in names if not name.rpartition("/")[2].startswith((".", "__MACOSX"))]
    if len(kept) != 1:
        shown = ", ".join(kept[:5]) + (", ..." if len(kept) > 5 else "")
        raise SeveralFiles(
            f"{path.name}: holds {len(kept)} files ({shown}): unpack it and name one"
            if kept
            else f"{path.name}: holds no file"
        )
    return kept[0]
