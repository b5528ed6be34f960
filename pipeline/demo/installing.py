"""Installs packages into the environment of the Python that runs it, and prints its progress at
short intervals.

    .venv/bin/python pipeline/demo/installing.py -e '.[dev]'

It uses uv if that is on the machine, otherwise pip with its progress bar. Only the standard library
is needed. Packages are not compiled to bytecode, because that takes longer for 150 packages than
unpacking them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

EVERY_S = 5.0  # between two lines, while the installer says nothing


def commands(what: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command lines that install the packages `what`, the best first."""
    asked = ["-c", "constraints.txt", *what]
    if uv := shutil.which("uv"):
        yield [uv, "pip", "install", "--python", sys.executable, *asked]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    yield [*pip, *asked]


def packages() -> int:
    """Return the number of packages that are installed in this environment."""
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def run(command: Sequence[str], every_s: float = EVERY_S) -> int:
    """Run an installer. Meanwhile, print the number of installed packages every `every_s`
    seconds, at a terminal only if it has changed. Return the installer's exit status."""
    began, before = time.monotonic(), packages()
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait(every_s)
            except subprocess.TimeoutExpired:
                now = packages()
                if now != before or not sys.stdout.isatty():  # a terminal shows the tool's bar
                    spent = time.monotonic() - began
                    print(f"... {now} packages installed, {spent:.0f} s", flush=True)
                before = now


def main(what: Sequence[str]) -> int:
    """Install packages, given as arguments of pip, by the first installer that succeeds. Return
    the exit status of the last one that was tried."""
    status = 0
    for command in commands(what):
        print(f"Installing by {Path(command[0]).name}: {' '.join(what)}", flush=True)
        if not (status := run(command)):
            break
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
