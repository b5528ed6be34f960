"""The command line itself: what is loaded, how it ends, whatever its output and its signals."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline.app import COMMANDS, GROUPS

MAIN = "import sys; sys.argv = ['pellucid', *{words!r}]; from pipeline.cli import main; "
DEMO = ("simulate", "--help")


def python(code: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, **more)  # type: ignore[call-overload, no-any-return]


def test_help_names_every_command_once_and_imports_none() -> None:
    code = (
        MAIN.format(words=["--help"])
        + "import atexit\n"
        + "heavy = 'pandas', 'polars', 'pyarrow', 'numpy', 'rich'\n"
        + "loaded = lambda m: m.startswith('pipeline.commands.') or m in heavy\n"
        + "atexit.register(lambda: print([*filter(loaded, sys.modules)]))\n"
        + "main()"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    *page, loaded = done.stdout.splitlines()
    assert loaded == "[]"
    named = [line.split()[0] for line in page if line.startswith("  ") and line.split()]
    assert [name for name in named if name in COMMANDS] == list(COMMANDS)
    assert max(map(len, page)) <= 80
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))


def test_version() -> None:
    done = python(MAIN.format(words=["--version"]) + "main()")
    assert done.returncode == 0
    assert done.stdout.startswith("pellucid ")


def test_a_wrong_command_is_told_the_nearest() -> None:
    done = python(MAIN.format(words=["whyy"]) + "main()")
    assert done.returncode == 2
    assert "'why'" in done.stderr


@pytest.mark.parametrize("cpu_ms", [1, 20, 60, 120, 200, 300, 450, 700])
def test_an_interrupt_at_any_moment_leaves_no_traceback(cpu_ms: int) -> None:
    """Measured in CPU time of the process: a busy machine interrupts at the same places."""
    code = (
        "import os, signal; signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), 2)); "
        + MAIN.format(words=["simulate", "--trace", "/nonexistent", "--policy", "fifo"])
        + f"signal.setitimer(signal.ITIMER_PROF, {cpu_ms / 1000})\ntry: main()\n"
        + "finally: signal.setitimer(signal.ITIMER_PROF, 0)"
    )
    done = python(code)
    assert "Traceback" not in done.stderr
    assert done.returncode in (130, 2)  # interrupted, or done before


def test_a_closed_pipe_ends_it_quietly() -> None:
    code = (
        "import os; read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        + MAIN.format(words=DEMO)
        + "main()"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_locale_will_do(encoding: str) -> None:

    done = python(
        MAIN.format(words=DEMO) + "main()", env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert (done.returncode, done.stderr) == (0, "")
