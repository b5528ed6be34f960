"""Sweeps and sharded fits whose parts run as Slurm jobs (dask-jobqueue)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow.parquet as pq
import pytest
from joblib.externals.loky import get_reusable_executor
from typer.testing import CliRunner

from benchmarks.slurm import SlurmCluster
from models.training.duration import PRESETS
from models.training.sharded import fit_sharded
from pipeline.app import app
from pipeline.cluster import Keep, mapped, question_of
from pipeline.traces.synthetic.generate import default_config, write
from tests.models.drawn import drawn
from tests.waiting import until


@pytest.fixture(scope="module")
def nodes() -> Iterator[SlurmCluster]:
    """Two nodes."""
    with SlurmCluster(nodes=2) as slurm:
        yield slurm


def python() -> str:
    """How a job runs this Python: the daemons of a release in a folder have another root."""
    inside = Path(shutil.which("slurmd") or "").parent.name == "pellucid-bin"
    return f"chroot /proc/{os.getpid()}/root {sys.executable}" if inside else sys.executable


def workers(slurm: SlurmCluster) -> list[str]:
    return [job["job_state"] for job in slurm.jobs().values() if "dask-worker" in job["name"]]


def test_a_sweep_killed_halfway_is_taken_up(nodes: SlurmCluster, tmp_path: Path) -> None:
    """The figures are those of the same command on one machine."""
    write(default_config("small", 0), tmp_path / "trace")
    asked = [
        "compare", "--trace", str(tmp_path / "trace"),
        "--cluster", str(Path("pipeline/worlds/clusters/small.yaml").resolve()),
        "--policies", "fifo,sjf", "--seeds", "2", "--durations", "gpus", "--json",
    ]  # fmt: skip
    kept = tmp_path / "kept"
    environment = {
        **os.environ,
        **nodes.environment,
        "DASK_JOBQUEUE__SLURM__LOG_DIRECTORY": str(tmp_path),
        "DASK_JOBQUEUE__SLURM__MEMORY": "2GiB",
        "DASK_JOBQUEUE__SLURM__PYTHON": python(),
    }
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *asked]
    there = [*command, "--where", "slurm:2", "--keep", str(kept)]
    run = subprocess.Popen(there, env=environment, stdout=subprocess.DEVNULL)

    def one_is_kept() -> bool:
        assert run.poll() is None, "it ended before it could be killed"
        return any(kept.glob("[!.]*.pickle"))

    until(one_is_kept, "a run to be kept", patience_s=300.0)
    run.kill()
    run.wait()
    finished = {path: path.stat().st_mtime_ns for path in kept.glob("[!.]*.pickle")}
    assert "RUNNING" in workers(nodes), "it was a Slurm job that made it"
    done = subprocess.run(there, env=environment, stdout=subprocess.PIPE, check=True)
    assert len(list(kept.glob("[!.]*.pickle"))) == 8, "2 policies, 2 seeds, both loops"
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "none was made twice"
    here = CliRunner().invoke(app, asked)
    assert waits(json.loads(done.stdout)) == waits(json.loads(here.stdout))


def waits(told: dict[str, Any]) -> list[float]:
    return [row["avg_queue_s_mean"] for row in told["policies"]]


def test_shards_are_fitted_by_slurm_jobs_as_they_are_here(
    nodes: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{i}.parquet" for i in range(2)]
    for i, file in enumerate(files):
        pq.write_table(drawn(2_000, i).table(), file, row_group_size=1_000)
    preset = replace(PRESETS["fast"], interactions=2, outer_bags=2, max_rounds=60)
    monkeypatch.setenv("SLURM_CONF", nodes.environment["SLURM_CONF"])
    keep = Keep(tmp_path / "kept", question_of("shards", files), label=lambda file: file.name)
    told: list[int] = []
    with (
        dask.config.set(
            {
                "jobqueue.slurm.log-directory": str(tmp_path),
                "jobqueue.slurm.python": python(),
            }
        ),
        mapped("slurm:2", keep) as over,
    ):
        there, _ = fit_sharded(
            files, cut=1e12, seed=0, preset=preset, map_shards=over, progress=told.append
        )
    assert told == [1, 2], "progress is told shard by shard"
    assert len(list(keep.folder.glob("[!.]*.pickle"))) == 2
    with mapped("local:2") as over:
        here, _ = fit_sharded(files, cut=1e12, seed=0, preset=preset, map_shards=over)
    get_reusable_executor().shutdown(wait=True)  # its processes would wait for more for minutes
    X = drawn(200, 7).X
    np.testing.assert_array_equal(there.score_batch(X), here.score_batch(X))
