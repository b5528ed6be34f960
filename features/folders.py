"""Folders into which only their owner can put files."""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LOCK = ".in-use"


class OpenFolder(ValueError):
    """Raised for a folder into which other users could put files. The message is one line and names
    the remedy.
    """


def private_folder(path: str | Path) -> Path:
    """Return a folder into which only this user and root can put files. Create it if missing.

    Raises OpenFolder: another user owns the folder or one above it, or can write to one. Above the
    folder, folders with the sticky bit (as /tmp) and groups without other members are allowed.
    Raises OSError if the folder cannot be made or read.
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
        if found.st_mode & 0o020 and found.st_gid != 0 and (others := _others_of(found.st_gid)):
            raise OpenFolder(
                f"{folder}: {above} can be written by its group ({found.st_gid}), {others}: "
                f"chmod g-w {above}, or keep the state elsewhere"
            )
    return folder


@contextmanager
def temporary_folder(prefix: str, base: str | Path | None = None) -> Iterator[Path]:
    """Yield a new temporary folder, as `tempfile.TemporaryDirectory` does. First remove folders
    with this prefix that killed processes of this user left on this host.

    A locked file in the folder marks it as in use. Forked processes inherit the lock and so keep
    the folder in use.
    """
    base = Path(base or tempfile.gettempdir())
    for left in base.glob(f"{prefix}*"):
        _remove_if_left(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=base) as name:
        made = Path(name)
        lock = os.open(made / f"{LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # no locks there: it is never removed by others
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(lock, socket.gethostname().encode())
                (made / f"{LOCK}.new").rename(made / LOCK)
            yield made
        finally:
            os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Remove a temporary folder if no process uses it any more: it belongs to this user, was made
    on this host, and its lock is free.

    The folder is opened once and emptied by its descriptor, because another user could put a
    different folder in its place meanwhile.
    """
    with suppress(OSError), ExitStack() as stack:
        made = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        stack.callback(os.close, made)
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=made)
        stack.callback(os.close, lock)
        if {os.fstat(made).st_uid, os.fstat(lock).st_uid} != {os.geteuid()}:
            return
        if os.read(lock, 256).decode(errors="replace") != socket.gethostname():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in sorted(os.listdir(made), key=LOCK.__eq__):  # the lock last
            if stat.S_ISDIR(os.stat(name, dir_fd=made, follow_symlinks=False).st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=made)
            else:
                os.unlink(name, dir_fd=made)
        folder.rmdir()


def _others_of(gid: int) -> str:
    """Return a text that names the members of group `gid` other than this user and root: the first
    name and the number of others. Return "" if there are none. If this host does not list the
    members, the text says so."""
    accounts, ours = pwd.getpwall(), (0, os.geteuid())
    try:
        named = grp.getgrgid(gid).gr_mem
    except KeyError:
        return "whose members this host does not list"
    if os.geteuid() not in (account.pw_uid for account in accounts):
        return "and this host does not list who else is of it"
    mine = {account.pw_name for account in accounts if account.pw_uid in ours}
    first = {account.pw_name for account in accounts if account.pw_gid == gid}
    others = sorted((first | set(named)) - mine)
    if not others:
        return ""
    return f"of which {others[0]} is" + (f" and {len(others) - 1} more" if others[1:] else "")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
