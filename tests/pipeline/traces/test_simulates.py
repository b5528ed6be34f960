"""Whatever is read can be simulated, on the cluster that is inferred of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.app import app
from pipeline.testing import samples
from pipeline.traces import read_dataset
from tests.pipeline.traces.samples import WRITERS

JOBS = 12
# Formats that say on which kind of GPU a job ran: their samples hold several.
TYPED = {"openb", "pai2020", "spot2026", "sacct"}


@pytest.mark.parametrize("name", WRITERS)
def test_a_trace_of_every_format_is_compared(name: str, tmp_path: Path) -> None:
    source = WRITERS[name](tmp_path, samples(JOBS))
    runner, trace = CliRunner(), str(tmp_path / "trace")
    read = runner.invoke(app, ["ingest", str(source), "--format", name, "--out", trace])
    assert read.exit_code == 0, read.output
    words = ["compare", "--trace", trace, "--policies", "easy,srtf,pellucid", "--json"]
    told = runner.invoke(app, words)
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["policies"]
    assert [row["policy"] for row in rows] == ["easy", "srtf", "pellucid"]
    for row in rows:
        assert row["ended_mean"] == row["jobs_mean"] > 0
        assert row["refused_mean"] == 0
    kinds = set(read_dataset(Path(trace)).column("gpu_type").to_pylist()) - {None}
    assert len(kinds) > 1 or name not in TYPED
