"""`pellucid profile` and `pellucid colocate` as a person meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.profile import profile
from reproductions.colocation.command import colocate
from tests.profiler.fake_nvml import FakeGpu, FakeNvml

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
        (["--", "no-such-command-here"], 127, "command not found: no-such-command-here"),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from profiler import session
    from profiler.errors import DriverMissing

    def nvml(gpus: list[object]) -> None:
        monkeypatch.setattr(session, "open_nvml", lambda module: FakeNvml(*gpus))

    out = ["--out", str(tmp_path / "run")]
    nvml([FakeGpu("GPU-a", processes={1: 9.0})])
    assert call("profile", *out, "--gpus", "0", "--", "true")[0] == 5
    assert call("profile", *out, "--gpus", "4", "--", "true")[0] == 4
    assert call("profile", *out, "--gpus", "0", "--shared", "--plot", "none", "--", "true")[0] == 0

    def missing(module: object) -> None:
        raise DriverMissing("no NVIDIA driver to talk to")

    monkeypatch.setattr(session, "open_nvml", missing)
    for device in ([], ["--device", "gpu"]):
        code, stdout, stderr = call("profile", *out, *device, "--", "true")
        assert (code, stdout) == (6, "")
        assert stderr == ("pellucid: no NVIDIA driver to talk to; --device cpu measures the CPU\n")
    assert call("profile", *out, "--device", "cpu", "--plot", "none", "--", "true")[0] == 0


def test_json_and_files(tmp_path: Path) -> None:
    code, stdout, _ = call(
        "profile", "-t", "2", "--device", "cpu", "--json", "--out", str(tmp_path), "--",
        sys.executable, "-c", "import time; print('x', flush=True); time.sleep(0.5)",
    )  # fmt: skip
    assert code == 0
    found = json.loads(stdout)
    assert found["ending"]["last_lines"] == ["x"]
    assert found["device"] == "cpu"
    assert {p.name for p in tmp_path.iterdir()} == {
        "output.log", "profile.json", "profile.svg", "samples.parquet", "samples_fast.parquet"
    }  # fmt: skip
    assert (tmp_path / "profile.svg").read_text().lstrip().startswith("<?xml")


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
