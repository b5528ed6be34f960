"""A program of the benchmarks that is told to end leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.ending import taken_down
from benchmarks.postgres import found_bin
from tests.waiting import until


@pytest.fixture(autouse=True)
def by_default() -> Iterator[None]:
    """Neither signal is ignored, though whoever runs the tests (nohup) may have it so."""
    told = signal.SIGTERM, signal.SIGHUP
    before = {number: signal.signal(number, signal.SIG_DFL) for number in told}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_takes_down_what_it_started(number: signal.Signals) -> None:
    done = []

    def told() -> None:
        with taken_down():
            try:
                os.kill(os.getpid(), number)
                signal.pause()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)  # told again: it goes on taking down
                done.append("taken down")

    with pytest.raises(SystemExit) as ended:
        told()
    assert (ended.value.code, done) == (128 + number, ["taken down"])
    assert signal.getsignal(number) is signal.SIG_DFL


def test_what_is_ignored_is_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with taken_down():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.skipif(found_bin() is None, reason="PostgreSQL is not installed")
def test_no_postgresql_is_left(tmp_path: Path) -> None:
    said = "import os, time; print(os.environ['PELLUCID_TEST_DATABASE'], flush=True); "
    said += "time.sleep(600)"
    asked = [sys.executable, "-m", "benchmarks.postgres", "--", sys.executable, "-c", said]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        folder = Path(program.stdout.readline().strip().rpartition("host=")[2])
        assert (folder / "data" / "postmaster.pid").exists()
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        below = psutil.Process(program.pid).children()
        program.terminate()
        assert program.wait(120) == 128 + signal.SIGTERM
    until(lambda: not psutil.pid_exists(server), "the end of the server")
    assert not folder.exists()
    assert not any(one.is_running() for one in below)
