"""The command line itself: what is loaded, how it ends, whatever its output and its signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline import console
from pipeline.app import COMMANDS, GROUPS, Lazy, app
from pipeline.cli import EXTRAS
from tests.commands import pellucid
from tests.pipeline.test_replay import dump

MAIN = "import sys; sys.argv = ['pellucid', *{words!r}]; from pipeline.cli import main; "
WITHOUT = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name in {} else find(name, *more)
"""
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


def test_a_base_install_replays_compares_and_reports(tmp_path: Path) -> None:
    """Without one library of an extra: pandas and those that train are some hundred MB."""
    dump(tmp_path / "dump.txt", jobs=30)
    absent = [name for names in EXTRAS.values() for name in names]
    for words in (
        "replay --sacct dump.txt --seeds 2",
        "ingest dump.txt --format sacct --out site",
        "compare --trace site --policies fifo,qssf --out compared",
        "explain 3 --run compared/qssf",
        "report --compare compared --trace site --out page.html",
    ):
        done = python(
            WITHOUT.format(absent) + MAIN.format(words=words.split()) + "main()", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
    assert "Packing is left out" in (tmp_path / "savings.html").read_text()
    assert "<figure data-chart" in (tmp_path / "page.html").read_text()


def test_version() -> None:
    done = pellucid("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("pellucid ")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_one_that_is_asked_to_end_leaves_no_temporary_folder(tmp_path: Path, name: str) -> None:
    """As `timeout`, a Slurm job's limit or a terminal that is closed do."""
    code = (
        MAIN.format(words=["version"])
        + "import os, signal, tempfile, time, pipeline.app\n"
        + f"signal.signal(signal.{name}, signal.SIG_DFL)\n"  # under nohup it is ignored
        + "def app():\n"
        + f"    with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):\n"
        + f"        os.kill(os.getpid(), signal.{name})\n"
        + "        time.sleep(60)\n"
        + "pipeline.app.app = app\n"
        + "main()"
    )
    done = python(code)
    assert done.returncode == 128 + getattr(signal, name)
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_serve_shows_the_defaults_of_its_settings_within_the_window() -> None:
    from scheduler.service.settings import Settings

    for wide in (80, 120):
        said = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": str(wide)}).output
        assert max(map(len, said.splitlines())) <= wide
    told = "".join(said.replace("│", " ").split())
    for name in ("backend", "slurm_mode", "database", "host", "port", "pace", "log_level"):
        assert f"[default:{Settings.model_fields[name].default}]" in told, name


def test_a_setting_says_what_it_is_where_it_is_declared_and_its_help_says_that() -> None:
    from scheduler.service.settings import Option, Settings

    said = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120"}).output
    told = "".join(said.replace("│", " ").split())
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"{name}:" not in (Settings.__doc__ or ""), name
        if any(isinstance(one, Option) for one in field.metadata):
            assert "".join(field.description.split()) in told, name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--log-level", "loud"], "log_level is loud"),
        (["--port", "65536"], "port is 65536"),
        (["--pace", "0"], "pace is 0"),
        (["--no-profiling", "--accept-clock", "soon"], "accept_clock is soon"),
        (["--fake-gpus", "--dry-run", "--api-workers", "-1"], "api_workers is -1"),
    ],
)
def test_what_serve_is_given_is_a_setting(words: list[str], says: str) -> None:
    said = CliRunner().invoke(app, ["serve", *words])
    assert says in str(said.exception).replace("'", "")


def test_a_wrong_command_is_told_the_nearest() -> None:
    done = pellucid("whyy")
    assert done.returncode == 2
    assert "'why'" in done.stderr


@pytest.mark.parametrize("cpu_ms", [60, 450])
def test_an_interrupt_at_any_moment_leaves_no_traceback(cpu_ms: int) -> None:
    """Measured in CPU time of the process: a busy machine interrupts at the same places."""
    code = (
        "import os, signal; signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), 2)); "
        + MAIN.format(words=["simulate", "--trace", "/nonexistent", "--policy", "fifo"])
        + f"signal.setitimer(signal.ITIMER_PROF, {cpu_ms / 1000})\ntry: main()\n"
        + "finally: signal.setitimer(signal.ITIMER_PROF, 0)"
    )
    done = python(code)
    # one that falls into a callback of Python's own imports is reported, and lost, by Python
    ignored = r"Exception ignored in: .*?KeyboardInterrupt: ?\n"
    assert "Traceback" not in re.sub(ignored, "", done.stderr, flags=re.DOTALL)
    assert done.returncode in (130, 2)  # interrupted, or done before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_class_is_made_leaves_no_traceback(number: int, status: int) -> None:
    code = (
        MAIN.format(words=DEMO)
        + "import os, pipeline.app\n"
        + "class Field:\n"
        + f"    def __set_name__(self, *_): os.kill(os.getpid(), {number:d})\n"
        + "pipeline.app.app = lambda: type('Record', (), {'field': Field()})\n"
        + "main()"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_closed_pipe_ends_it_quietly() -> None:
    code = (
        "import os; read, write = os.pipe(); os.close(read); os.dup2(write, 1); "
        + MAIN.format(words=DEMO)
        + "main()"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (141, "")


def test_any_locale_will_do() -> None:
    done = python(
        MAIN.format(words=DEMO) + "main()", env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_that_ends_has_json() -> None:
    group = Lazy(name="pellucid")
    with typer.main.get_command(app).make_context("pellucid", ["ps"]) as context:
        found = {name: group.get_command(context, name) for name in COMMANDS}
    told = {
        name: list(getattr(command, "commands", {"": command}).values())
        for name, command in found.items()
    }
    without = {
        name
        for name, commands in told.items()
        if not all(any("--json" in param.opts for param in one.params) for one in commands)
    }
    # they run until they are stopped; a restore is asked for by a person
    assert without == {"mcp", "restore", "serve", "serve-demo"}


def test_progress_goes_on_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.0)
    with console.bar("reading", 2_000, quiet=False) as done:
        done(1_000)
    with console.bar("reading", 2_000, quiet=True) as done:
        done(1_500)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "reading: 1,000 of 2,000\n")


def test_commands_of_users_load_neither_rich_nor_an_http_library() -> None:
    code = MAIN.format(words=["ps"]) + (
        "import atexit\nheavy = 'rich', 'httpx2', 'numpy', 'pyarrow', 'sqlalchemy'\n"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules]))\nmain()"
    )
    done = python(code, env={**os.environ, "PELLUCID_SERVER": "http://127.0.0.1:1"})
    assert "no answer from there" in done.stderr
    assert done.stdout.splitlines() == ["[]"]
