"""`pellucid ingest` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.ingest import ingest
from pipeline.errors import UserError
from pipeline.testing.samples import samples
from tests.pipeline.traces.samples import write_helios, write_sacct

app = typer.Typer()
app.command()(ingest)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_summary_for_a_person(tmp_path: Path) -> None:
    jobs = [*samples(), samples()[0], samples()[1].with_raw(gpus="0")]
    shown = run(write_helios(tmp_path, jobs), "--out", tmp_path / "out")
    assert "12  jobs kept" in shown
    assert "1  quarantined: no_gpu" in shown
    assert "1  quarantined: duplicate" in shown


def test_summary_for_a_program(tmp_path: Path) -> None:
    source = write_sacct(tmp_path, samples())
    shown = run(source, "--out", tmp_path / "out", "--timezone", "Europe/Berlin", "--json")
    summary = json.loads(shown)
    assert summary["format"] == "sacct"
    assert summary["kept"] == 12
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "nope"], "format: 'nope' is none of auto, helios"),
        (["--timezone", "Mars/Base"], "timezone: 'Mars/Base' is not known"),
        (["--origin", "soon"], "origin: 'soon' is no instant"),
        (["--origin", "2020-01-01"], "origin: given, but times of format helios are dates"),
        (["--format", "sacct"], "cluster_log.csv as sacct: "),
    ],
)
def test_one_line_on_bad_input(tmp_path: Path, arguments: list[str], message: str) -> None:
    source = write_helios(tmp_path, samples())
    with pytest.raises(UserError) as caught:
        run(source, "--out", tmp_path / "out", *arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
