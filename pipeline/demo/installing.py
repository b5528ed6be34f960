"""Installs packages into the environment of the interpreter that runs it, and never stays silent
for long.

    .venv/bin/python pipeline/demo/installing.py -e '.[dev]'

By uv where it is on the machine, else by pip with its progress bar. Needs nothing installed. What
is not imported is not compiled: bytecode of 150 packages takes longer than they take to unpack.
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
    """Yield the ways to install, best first."""
    asked = ["-c", "constraints.txt", *what]
    if uv := shutil.which("uv"):
        yield [uv, "pip", "install", "--python", sys.executable, *asked]
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    yield [*pip, *asked]


def packages() -> int:
    """Return how many packages are installed."""
    return len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))


def run(command: Sequence[str], every_s: float = EVERY_S) -> int:
    """Run an installer and show the count of installed packages meanwhile. Return its exit
    status.
    """
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
    """Install what is asked for, as pip would. Return the exit status."""
    status = 0
    for command in commands(what):
        print(f"Installing by {Path(command[0]).name}: {' '.join(what)}", flush=True)
        if not (status := run(command)):
            break
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
