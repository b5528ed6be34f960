"""Folders that only their user can put anything into."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


class OpenFolder(ValueError):
    """A folder that others could put files into; one line that says what to do."""


def private_folder(path: str | Path) -> Path:
    """A folder that nobody but this user, and root, can put anything into; made when missing.

    Raises OpenFolder: it belongs to, or can be written by, somebody else, or a folder above it does
    (where the sticky bit keeps others from renaming it, as in /tmp, that is no harm); OSError.
    """
    folder = Path(path).resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours = (0, os.geteuid())
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise OpenFolder(f"{folder} belongs to {_user(found.st_uid)}: run this as them")
    if found.st_mode & 0o022:
        raise OpenFolder(
            f"{folder} can be written by others: chmod go-w it, and look what is in it"
        )
    for above in folder.parents:
        found = above.stat()
        if found.st_uid not in ours:
            raise OpenFolder(f"{folder}: {above} belongs to {_user(found.st_uid)}")
        if found.st_mode & stat.S_ISVTX:
            continue
        if found.st_mode & 0o002:
            raise OpenFolder(f"{folder}: {above} can be written by everybody")
        if found.st_mode & 0o020 and found.st_gid not in (0, os.getegid()):
            raise OpenFolder(f"{folder}: {above} can be written by its group ({found.st_gid})")
    return folder


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
