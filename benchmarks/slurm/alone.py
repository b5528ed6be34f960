"""Runs a command with a time limit, and makes sure that it leaves no process or temporary file
behind.

    python -m benchmarks.slurm.alone --limit 600 --again '-n 0 --last-failed' pytest tests/slurm

Whatever the command starts stays a descendant of this process, daemons too: an orphan is given to
the nearest ancestor that calls itself a subreaper (prctl(2)). What outlives the command by two
minutes is named on standard error, killed, and makes the exit code 1. Past the limit, or when this
is told to end, all is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
LINGER_S = 120.0  # what ends by itself after the command is none that was left; hosts are busy
TIMED_OUT = 124  # as timeout(1) says it


def run(command: Sequence[str], limit_s: float) -> int:
    """Run the command, and kill what it leaves behind. Return its exit code; 1 if that is 0, but a
    process outlived it by `LINGER_S` seconds; 124 if it ran longer than `limit_s`."""
    process = subprocess.Popen(list(command))
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        _say(f"not over after {limit_s:g} s; killed with all it started")
        _kill()
        return TIMED_OUT
    except BaseException:
        _kill()
        raise
    until = time.monotonic() + LINGER_S
    while (left := _alive()) and time.monotonic() < until:
        time.sleep(0.1)
    for one in left:
        _say(f"left behind: {_shown(one)}")
    _kill()
    return code or int(bool(left))


def _alive() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def _shown(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.Error:
        return str(process.pid)


def _kill() -> None:
    """Kill all processes that the command left, repeatedly, since a process may just have started
    another.
    """
    until = time.monotonic() + LINGER_S
    while (left := _alive()) and time.monotonic() < until:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=0.2)


def _say(text: str) -> None:
    sys.stderr.write(f"benchmarks.slurm.alone: {text}\n")


def main() -> None:
    """Run the command given on the command line."""
    parser = argparse.ArgumentParser(description="Run a command, and leave nothing of it behind.")
    parser.add_argument(
        "--limit",
        type=float,
        default=600.0,
        help="seconds after which the command is stopped (default 600)",
    )
    parser.add_argument(
        "--again", help=("if the command fails, run it once more with these arguments added")
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    for told in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(told, lambda number, _: sys.exit(128 + number))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
        Path(folder).chmod(0o755)  # daemons of other users work there
        os.environ["TMPDIR"] = folder
        code = run(asked.command, asked.limit)
        if code not in (0, TIMED_OUT) and asked.again is not None:
            code = run([*asked.command, *asked.again.split()], asked.limit)
    sys.exit(code)


if __name__ == "__main__":
    main()
