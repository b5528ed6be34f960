"""Whatever is read can be simulated and compared, on the cluster that is inferred of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.app import app
from pipeline.testing import samples
from tests.pipeline.traces.samples import WRITERS


@pytest.mark.parametrize("name", WRITERS)
def test_a_trace_of_every_format_is_simulated(name: str, tmp_path: Path) -> None:
    source = WRITERS[name](tmp_path, samples(8))
    runner, trace = CliRunner(), str(tmp_path / "trace")
    read = runner.invoke(app, ["ingest", str(source), "--format", name, "--out", trace])
    assert read.exit_code == 0, read.output
    told = runner.invoke(app, ["simulate", "--trace", trace, "--policy", "easy", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)
