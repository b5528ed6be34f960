"""Simulates what a power cut takes: what was written to files and not waited for (fsync).

A file's content and its name are lost apart, as on a file system that keeps neither in order: a
rename may be undone, or be there with half a file, or an empty one, under the new name. Of SQLite
the service's own setting decides: with `synchronous=FULL` a commit waits for the disk, and SQLite
promises that it is there afterwards (https://www.sqlite.org/pragma.html#pragma_synchronous); with
less, all is lost that was not copied from the journal. A disk that says that it has written, and
has not, is nobody's to survive, and is not here.
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
    """What was written since it was last waited for.

    Attributes:
        lost: kinds of what power cuts took: names of files, and contents.
    """

    def __init__(self) -> None:
        # by path, not by inode: a file system gives out inodes again, as whoever else uses it makes
        # it do, and no two runs of a seed would be alike
        self._data: dict[Path, int] = {}  # how much of it is on disk
        self._synced: set[Path] = set()
        self._names: dict[Path, bytes | None] = {}  # what is found there if the name is lost
        self.lost: Counter[str] = Counter()

    def written(self, file: int) -> None:
        """Called before a file is written."""
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode):
            path = _path(file)
            self._data[path] = min(found.st_size, self._data.get(path, found.st_size))

    def synced(self, file: int) -> None:
        """Called when a file, or the names in a folder, were waited for."""
        path = _path(file)
        if stat.S_ISDIR(os.fstat(file).st_mode):
            self._names = {one: was for one, was in self._names.items() if one.parent != path}
        else:
            self._data.pop(path, None)
            self._synced.add(path)

    def renamed(self, source: Path, target: Path, was: bytes | None) -> None:
        """Called after a file or folder was renamed; `was` is the content of a file that it
        replaced.
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
        """Lose what was not waited for."""
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
    """Stands in for `os` in code that writes files and waits until they are on disk."""

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
