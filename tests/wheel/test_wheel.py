"""The wheel alone, outside the repository: `make wheel-test` (takes a minute, so not among all).

PELLUCID_PYTHONS names more interpreters to install it for, with blanks between them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.wheel import build, digest_of, install, left_out, sizes_mb
from pipeline.cli import EXTRAS
from tests.pipeline.test_replay import dump

pytestmark = pytest.mark.skipif(
    os.environ.get("PELLUCID_WHEEL") != "1", reason="builds and installs a wheel: make wheel-test"
)
Run = Callable[..., subprocess.CompletedProcess[str]]
PYTHONS = [sys.executable, *os.environ.get("PELLUCID_PYTHONS", "").split()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=PYTHONS)
def python(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return install(wheel, tmp_path_factory.mktemp("base") / "venv", request.param)


@pytest.fixture(scope="module")
def folder(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elsewhere")
    dump(path / "dump.txt", jobs=30)
    return path


@pytest.fixture(scope="module")
def pellucid(python: Path, folder: Path) -> Run:
    """Runs a command of the installed wheel; fails with what it printed."""

    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(python.with_name("pellucid")), *words]
        done = subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_two_builds_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert digest_of(build(tmp_path)) == digest_of(wheel)


def test_it_holds_every_file_of_the_packages(wheel: Path) -> None:
    assert left_out(wheel) == []


def test_no_training_library_comes_with_it(python: Path) -> None:
    names = [name for extra in EXTRAS.values() for name in extra]
    code = f"from importlib.util import find_spec; print([*filter(find_spec, {names})])"
    said = subprocess.run([str(python), "-c", code], capture_output=True, text=True, cwd="/")
    assert said.stdout.strip() == "[]", said.stderr
    assert sum(sizes_mb(python).values()) < 360


def test_every_command_has_its_help(pellucid: Run) -> None:
    from pipeline.app import COMMANDS

    for name in COMMANDS:
        assert "Usage" in pellucid(name, "--help").stdout


def test_a_dump_is_read_replayed_and_reported(pellucid: Run, folder: Path) -> None:
    said = pellucid("replay", "--sacct", "dump.txt", "--seeds", "2").stdout
    assert "Packing is left out" in said
    assert "Packing is left out" in (folder / "savings.html").read_text()
    pellucid("ingest", "dump.txt", "--format", "sacct", "--out", "site")
    pellucid("compare", "--trace", "site", "--policies", "fifo,qssf", "--out", "compared")
    assert "submitted" in pellucid("explain", "3", "--run", "compared/qssf").stdout
    pellucid("report", "--compare", "compared", "--trace", "site", "--out", "page.html")
    assert "<figure data-chart" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train --trace site --out bundle", "train"),
        ("evaluate duration --data site", "train"),
        ("simulate --trace site --policy pellucid", "train"),
        ("compare --trace site --policies fifo --where dask:2", "cluster"),
        ("compare --workload pollux:dump.txt", "reproductions"),
        ("serve --fake-gpus --database postgresql://nobody@nowhere/none", "postgres"),
    ],
)
def test_what_needs_more_names_the_extra_in_one_line(
    pellucid: Run, folder: Path, command: str, extra: str
) -> None:
    pellucid("ingest", "dump.txt", "--format", "sacct", "--out", "site")
    said = pellucid(*command.split(), status=2).stderr
    assert len(said.splitlines()) == 1
    assert f"pip install 'pellucid[{extra}]'" in said


@pytest.fixture
def service(python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    command = [str(python.with_name("pellucid")), "serve", "--fake-gpus", "--port", "0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=clean(), stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+:\d+", process.stdout.readline())
        assert found, (folder / "log").read_text()
        monkeypatch.setenv("PELLUCID_SERVER", found[0])
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def test_it_serves(pellucid: Run, service: None) -> None:
    from urllib.request import urlopen

    job = pellucid(
        "submit", "--vc", "research", "--gpus", "1", "--", "sleep", "600"
    ).stdout.split()[0]
    assert job in pellucid("ps", "--all").stdout
    assert pellucid("why", job).stdout.startswith(f"{job} is ")
    with urlopen(f"{os.environ['PELLUCID_SERVER']}/models") as page:
        assert b"charts.js" in page.read()
    pellucid("cancel", job)
