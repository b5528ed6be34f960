"""`pellucid profile` and `pellucid colocate` as a person meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.profile import profile
from profiler import procs
from reproductions.colocation.command import colocate
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def app() -> typer.Typer:
    found = typer.Typer(pretty_exceptions_enable=False)
    found.command(name="profile")(profile)
    found.command(name="colocate")(colocate)
    return found


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app(), list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["-t", "0", "--", "true"], 2, "T_prof"),
        (["-t", "nan", "--", "true"], 2, "T_prof"),
        (["--", "no-such-command-here"], 127, "command not found: no-such-command-here"),
        (["--", "/etc"], 126, "is a directory"),
        (["--", "/etc/passwd"], 126, "no permission"),
        (["--hz", "0", "--device", "cpu", "--", "true"], 2, "1 to 20 Hz"),
        (["--env", "A B", "--device", "cpu", "--", "true"], 2, "--env"),
        (["--gpus", "0,,1", "--", "true"], 2, "--gpus"),
        (["--gpus", "0", "--device", "cpu", "--", "true"], 2, "no sense"),
        (["--memory-mib", "-1", "--", "true"], 2, "memory_mib"),
        (["--cwd", "/nowhere", "--device", "cpu", "--", "true"], 2, "does not exist"),
        ([], 2, "no command given"),
    ],
)
def test_bad_input_is_one_line_and_a_status(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    code, _, stderr = call("profile", "--out", str(tmp_path / "run"), *arguments)
    assert code == status
    lines = stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("pellucid: ")
    assert words in lines[0]


def test_gpu_troubles_have_statuses_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: object
) -> None:
    from profiler import session
    from profiler.errors import DriverMissing

    def nvml(gpus: list[object]) -> None:
        monkeypatch.setattr(session, "open_nvml", lambda module: fake.FakeNvml(*gpus))  # type: ignore[attr-defined]

    out = ["--out", str(tmp_path / "run")]
    nvml([fake.FakeGpu("GPU-a", processes={1: 9.0})])  # type: ignore[attr-defined]
    assert call("profile", *out, "--gpus", "0", "--", "true")[0] == 5
    assert call("profile", *out, "--gpus", "4", "--", "true")[0] == 4
    assert call("profile", *out, "--gpus", "0", "--shared", "--plot", "none", "--", "true")[0] == 0

    def missing(module: object) -> None:
        raise DriverMissing("no NVIDIA driver to talk to")

    monkeypatch.setattr(session, "open_nvml", missing)
    code, _, stderr = call("profile", *out, "--device", "gpu", "--", "true")
    assert code == 6
    assert stderr == "pellucid: no NVIDIA driver to talk to\n"


def test_json_and_files(tmp_path: Path) -> None:
    code, stdout, _ = call(
        "profile", "-t", "2", "--device", "cpu", "--json", "--out", str(tmp_path), "--",
        sys.executable, "-c", "import time; print('x', flush=True); time.sleep(9)",
    )  # fmt: skip
    assert code == 0
    found = json.loads(stdout)
    assert found["ending"]["last_lines"] == ["x"]
    assert found["device"] == "cpu"
    assert {p.name for p in tmp_path.iterdir()} == {
        "output.log", "profile.json", "profile.svg", "samples.parquet", "samples_fast.parquet"
    }  # fmt: skip


def test_a_failing_command_shows_its_last_lines(tmp_path: Path) -> None:
    code, stdout, _ = call(
        "profile", "--device", "cpu", "--plot", "none", "--out", str(tmp_path), "--",
        sys.executable, "-c", "raise ValueError('the learning rate is a string')",
    )  # fmt: skip
    assert code == 1
    assert "exit code 1" in stdout
    assert "the learning rate is a string" in stdout


def test_an_unwritable_run_directory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    code, _, stderr = call("profile", "--device", "cpu", "--out", str(blocked), "--", "true")
    assert code == 2
    assert "--out" in stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["NoSuchNet", "--device", "cpu", "--tiny"], "unknown workload 'NoSuchNet'"),
        (["VGG/0", "--tiny"], "neither a batch size"),
        (["A2C/amp", "--tiny"], "no mixed-precision"),
        (["VGG", "--minutes", "0", "--tiny"], "--minutes"),
        (["VGG", "--pairs", "-1", "--tiny"], "--pairs"),
        (["VGG", "--tolerance", "0", "--tiny"], "tolerance"),
        (["VGG", "--repeats", "0", "--tiny"], "repeats"),
    ],
)
def test_colocate_refuses_nonsense(tmp_path: Path, arguments: list[str], words: str) -> None:
    code, _, stderr = call("colocate", "--out", str(tmp_path / "bench"), *arguments)
    assert code == 2
    assert words in stderr
    assert len(stderr.strip().splitlines()) == 1


STUBBORN = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "for _ in range(2):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        if os.fork() == 0: time.sleep(300)\n"
    "        time.sleep(300)\n"
    "open('started', 'w').close()\n"
    "time.sleep(300)\n"
)


def test_the_whole_command_killed_with_9_leaves_no_process(tmp_path: Path) -> None:
    script = (
        "import typer; from pipeline.commands.profile import profile\n"
        "app = typer.Typer(); app.command()(profile); app()"
    )
    profiler = subprocess.Popen(
        [sys.executable, "-c", script, "--device", "cpu", "--grace", "0.2", "--out",
         str(tmp_path / "run"), "--cwd", str(tmp_path), "--", sys.executable, "-c", STUBBORN],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    until((tmp_path / "started").exists, "the command to start")

    def whole() -> Collection[int]:
        found = procs.all_descendants(profiler.pid)
        return found if len(found) >= 6 else ()

    tree = until(whole, "the guard, the command, two children and two daemons")
    os.kill(profiler.pid, signal.SIGKILL)
    profiler.wait()
    until(lambda: not any(map(procs.alive, tree)), "all of them to end")
