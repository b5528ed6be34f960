"""Power-down advice from a recorded run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipeline import runs
from pipeline.cli import _load, app
from pipeline.errors import UserError
from pipeline.explain.run import RunError, RunFolder, seconds
from pipeline.powerdown import advise, busy_nodes, merged, stints
from scheduler.policies.ces import INTERVAL_S, PUBLISHED
from tests.pipeline.test_runs import small

PHILLY = PUBLISHED["philly"]


@pytest.fixture(scope="module", params=["fifo-skip", "lucid", "srtf"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp(request.param)
    runs.run(small(), request.param, folder)
    return RunFolder(folder)


def test_stints_add_up_to_what_the_jobs_ran(run: RunFolder) -> None:
    """Every stint lies in its job's life, and node-seconds cover the time jobs ran."""
    jobs = seconds(pq.read_table(run.folder / "jobs.parquet")).to_pydict()
    held = sum(until - since for since, until, _ in stints(run))
    least = sum(ran for ran in jobs["ran_s"] if ran is not None)
    nodes = [-(-gpus // 8) for gpus in jobs["gpus"]]
    assert held >= least * (1 - 1e-9)
    spent = zip(jobs["ran_s"], jobs["profile_s"], nodes, strict=True)
    most = sum((ran or 0.0) * (n + 7) + (looked or 0.0) * (n + 7) for ran, looked, n in spent)
    assert held <= most * (1 + 1e-6) + 1.0


def test_as_many_nodes_are_busy_as_the_jobs_need(run: RunFolder) -> None:
    """Never fewer than the GPUs of the jobs that hold them alone fill, never more than there are.

    Jobs that share and jobs that are stopped are left out of the lower bound.
    """
    series, ends = busy_nodes(run)
    total = sum(run.summary["cluster"].values())
    assert series.max() <= total
    assert (np.diff(ends) == INTERVAL_S).all()
    jobs = seconds(pq.read_table(run.folder / "jobs.parquet")).to_pylist()
    sure = [j for j in jobs if not j["preemptions"] and not j["pairings"] and j["start_time"]]
    at = ends - INTERVAL_S / 2
    used = np.zeros(len(at))
    for job in sure:
        used += job["gpus"] * ((job["start_time"] <= at) & (at < job["end_time"]))
    assert (series >= np.ceil(used / 8)).all()


def test_spans_that_overlap_or_touch_are_one() -> None:
    assert list(merged([(0, 5), (1, 2), (5, 7), (8, 9)])) == [(0, 7), (8, 9)]


def test_advice_keeps_what_is_in_use_awake(run: RunFolder) -> None:
    saving = advise(run.folder, PHILLY)
    assert 0 <= saving.asleep <= saving.nodes
    assert saving.busy_pct >= saving.busy_all_pct
    for advice in saving.advice:
        assert advice.awake >= min(advice.busy, saving.nodes)


def test_the_command(run: RunFolder, tmp_path: Path) -> None:
    _load()
    out = tmp_path / "advice.parquet"
    told = CliRunner().invoke(
        app, ["powerdown", str(run.folder), "--settings", "philly", "--out", str(out), "--json"]
    )
    assert told.exit_code == 0, told.output
    saving = advise(run.folder, PHILLY)
    assert json.loads(told.stdout)["asleep"] == pytest.approx(saving.asleep)
    assert pq.read_table(out).num_rows == len(saving.advice)


def test_what_cannot_be_advised_on(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run"):
        advise(tmp_path, PHILLY)
    with pytest.raises(UserError, match="a forecast from the first 10 % of it needs"):
        advise(run.folder, PUBLISHED["venus"], learn=0.1)
