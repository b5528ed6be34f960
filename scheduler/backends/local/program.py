"""Checks at submission whether a job's program exists."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from features.aside import Aside, Hangs
from scheduler.backends.local.host import PLAIN, own_user

MOST_LINKS = 40  # that are followed on a path, as the kernel does
MISSING = f"{__name__}:missing"


class Missing:
    """Calls `missing`, which finds out whether a program exists, in a process of its own. Tenants
    name the folders, and a folder may hang; then that process is abandoned."""

    def __init__(self) -> None:
        self._aside = Aside(__name__)

    def __call__(
        self, command: Sequence[str], workdir: str, environment: Mapping[str, str], user: str
    ) -> str:
        """Return what `missing` returns: why the command cannot be executed, or "". Return a
        sentence, too, if its folder cannot be looked at."""
        place = workdir or os.path.dirname(command[0]) or "the program's folder"
        path = {name: environment[name] for name in ("PATH",) if name in environment}
        given = [command[0]], workdir, path, user
        try:
            why: str = self._aside.ask(MISSING, *given, whose=user, place=place)
        except Hangs:
            return f"{place} cannot be looked at: nothing answers there, or elsewhere of yours"
        except OSError:  # only its start can show it
            return ""
        return why

    def close(self) -> None:
        """End the process."""
        self._aside.close()


def missing(command: Sequence[str], workdir: str, environment: Mapping[str, str], user: str) -> str:
    """Return why a command cannot be executed on this host, as a sentence; "" where it can, or
    where only its start can show that.

    For a job in another account than the service's, only what that account could find out itself
    counts, so that the answer does not reveal files which that account may not see.
    """
    program, mine = command[0], user in ("", own_user())
    account = None if mine else pwd.getpwnam(user)
    folder = workdir or (str(Path.home()) if account is None else account.pw_dir)
    uid = None if account is None else account.pw_uid
    if workdir and not _can_be(stat.S_ISDIR, workdir, uid):
        return f"the working directory {workdir} is not on the service's host"
    if "/" in program:
        found = _can_be(_is_executable, os.path.join(folder, program), uid)
        return "" if found else f"{program} is no executable file on the service's host"
    path = environment.get("PATH")
    if path is None:
        path = os.environ.get("PATH", os.defpath) if mine else PLAIN.get("PATH", os.defpath)
    elif not mine:
        return ""
    if any(not part.startswith("/") for part in path.split(":")):
        return ""  # looked for in the job's own folder, too
    if shutil.which(program, path=path):
        return ""
    return (
        f"there is no program {program!r} on the PATH of the service's host; give its path, or the "
        "PATH it is on with --env PATH=..."
    )


def _is_executable(mode: int) -> bool:
    return stat.S_ISREG(mode) and mode & 0o111 != 0


def _can_be(fits: Callable[[int], bool], path: str, uid: int | None) -> bool:
    """Return whether the file at an absolute path exists and `fits` accepts its mode bits. Return
    True, too, if the account `uid` (None: the service's own) may not look there.
    """
    with suppress(OSError, ValueError):
        os.stat(path)  # mounts what is mounted on demand
    try:
        return fits(_mode(path, uid))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True


def _mode(path: str, uid: int | None) -> int:
    """Return the mode bits of the file that an account (`uid`; None: the service's own) finds at an
    absolute path. Raise OSError where there is none, and PermissionError where the account may not
    look, though the service may.

    Each step opens from the folder of the step before. So a link that is exchanged meanwhile cannot
    lead the service to where the account may not look.
    """
    left, links = path.split("/")[::-1], 0
    at = os.open("/", os.O_PATH)
    try:
        while left:
            has = os.fstat(at)
            search = stat.S_IXUSR if has.st_uid == uid else stat.S_IXOTH
            if uid is not None and not has.st_mode & search and stat.S_ISDIR(has.st_mode):
                raise PermissionError
            step = os.open(left.pop() or ".", os.O_PATH | os.O_NOFOLLOW, dir_fd=at)
            if stat.S_ISLNK(os.fstat(step).st_mode):
                target, links = os.readlink("", dir_fd=step), links + 1
                os.close(step)
                if links > MOST_LINKS:
                    raise OSError("too many links")
                left += target.split("/")[::-1]
                if not target.startswith("/"):
                    continue
                step = os.open("/", os.O_PATH)
            os.close(at)
            at = step
        return os.fstat(at).st_mode
    finally:
        os.close(at)
