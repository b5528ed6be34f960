"""Simulates what a power cut takes: what was written to files but not synced (fsync).

A file's content and its name are lost independently, as on a file system that keeps neither in
order: a rename may be undone, or it stays while the file under the new name is empty or half
written. For SQLite the service's own setting decides: with `synchronous=FULL` a commit waits for
the disk, and SQLite promises that it is there afterwards
(https://www.sqlite.org/pragma.html#pragma_synchronous); with less, all is lost that was not copied
from the journal. A disk that reports a write as done and loses it cannot be survived by any
program, and is not simulated.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Unsynced:
    """A record of what was written to files since each was last synced to disk.

    Attributes:
        lost: counts what power cuts took: "name" for renames undone, and contents of files.
    """

    def __init__(self) -> None:
        # by path, not by inode: a file system gives out inodes again, as whoever else uses it makes
        # it do, and no two runs of a seed would be alike
        self._data: dict[Path, int] = {}  # how much of it is on disk
        self._synced: set[Path] = set()
        self._names: dict[Path, bytes | None] = {}  # what is found there if the name is lost
        self.lost: Counter[str] = Counter()

    def written(self, file: int) -> None:
        """Record that a file (a file descriptor) is about to be written. Called before the
        write.
        """
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode):
            path = _path(file)
            self._data[path] = min(found.st_size, self._data.get(path, found.st_size))

    def synced(self, file: int) -> None:
        """Record that a file's content, or the names in a folder, are safe on disk. Called after
        the sync.
        """
        path = _path(file)
        if stat.S_ISDIR(os.fstat(file).st_mode):
            self._names = {one: was for one, was in self._names.items() if one.parent != path}
        else:
            self._data.pop(path, None)
            self._synced.add(path)

    def renamed(self, source: Path, target: Path, was: bytes | None) -> None:
        """Record that a file or folder was renamed. Called after the rename; `was` is the content
        of the file that it replaced.
        """
        for one in self._under(target):
            self._data.pop(one, None)
            self._synced.discard(one)
        for one in self._under(source):
            there = target / one.relative_to(source)
            if one in self._data:
                self._data[there] = self._data.pop(one)
            if one in self._synced:
                self._synced.remove(one)
                self._synced.add(there)
        self._names = {_moved(path, source, target): old for path, old in self._names.items()}
        if target.is_file() and target not in self._synced:
            self._data.setdefault(target, 0)  # written by somebody who does not say so
        self._names.setdefault(target, was)

    def cut(self, draw: random.Random) -> None:
        """Undo or shorten, by chance, what was written and not synced, as a power cut would."""
        for path, was in sorted(self._names.items(), reverse=True):
            if os.path.lexists(path) and draw.random() < 0.5:
                self.lost["name"] += 1
                _put_back(path, was)
        for path, least in sorted(self._data.items()):
            if path.is_file() and draw.random() < 0.5:
                self.lost["content"] += 1
                size = path.stat().st_size
                os.truncate(path, min(size, draw.choice([least, (least + size) // 2])))
        self._data.clear()
        self._names.clear()

    def _under(self, path: Path) -> list[Path]:
        return sorted(one for one in {*self._data, *self._synced} if one.is_relative_to(path))


def _path(file: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{file}"))


def _moved(path: Path, source: Path, target: Path) -> Path:
    return target / path.relative_to(source) if path.is_relative_to(source) else path


def _put_back(path: Path, was: bytes | None) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif was is None:
        path.unlink()
    else:
        path.write_bytes(was)


class WaitedFor:
    """Stands in for the module `os` in code that writes and syncs files, and records both."""

    def __init__(self, unsynced: Callable[[], Unsynced], point: Callable[[str], None]):
        self._unsynced, self._point = unsynced, point

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, file: int) -> None:
        self._unsynced().synced(file)

    def rename(self, source: Any, target: Any) -> None:
        self._point("before a rename")
        there = Path(target)
        was = there.read_bytes() if there.is_file() else None
        os.rename(source, target)
        self._unsynced().renamed(Path(source), there, was)
        self._point("after a rename")

    replace = rename
