"""Whether a job's program is there, asked at submission."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from scheduler.backends.local.host import PLAIN, own_user


def missing(command: Sequence[str], workdir: str, environment: Mapping[str, str], user: str) -> str:
    """Why a command cannot be executed on this host, a sentence; "" = it can, or only its start can
    show it.

    A job in another account than the service's may see other files than the service does, and the
    answer must not say which of those there are: only the name of a program on the PATH that such
    an account is given is looked up.
    """
    program, mine = command[0], user in ("", own_user())
    path = environment.get("PATH")
    if path is None:
        path = os.environ.get("PATH", os.defpath) if mine else PLAIN.get("PATH", os.defpath)
    elif not mine:
        return ""
    if mine and workdir and not os.path.isdir(workdir):
        return f"the working directory {workdir} is not on the service's host"
    if "/" in program:
        found = not mine or _runs(Path(workdir or Path.home(), program))
        return "" if found else f"{program} is no executable file on the service's host"
    if any(not part.startswith("/") for part in path.split(":")):
        return ""  # looked for in the job's own folder, too
    if shutil.which(program, path=path):
        return ""
    return (
        f"there is no program {program!r} on the PATH of the service's host; give its path, or the "
        "PATH it is on with --env PATH=..."
    )


def _runs(file: Path) -> bool:
    return file.is_file() and os.access(file, os.X_OK)
