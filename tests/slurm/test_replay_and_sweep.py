"""A sweep whose runs are Slurm jobs, and a replay of what sacct tells of this very Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.slurm import SlurmCluster
from pipeline.replay.runs import VARIANTS, replay
from pipeline.replay.site import read_site
from pipeline.traces.dataset import read_dataset
from pipeline.traces.synthetic import default_config, write
from pipeline.tracks import plain

COLUMNS = (
    "JobID,JobName,User,Partition,Submit,Eligible,Start,End,Timelimit,State,NNodes,NodeList,"
    "ReqTRES,AllocTRES"
)


def test_a_sweep_runs_as_slurm_jobs_and_is_taken_up(tmp_path: Path) -> None:
    """The same figures as here; killed with -9 halfway it goes on; no job is left behind."""
    write(default_config("small", 0), tmp_path / "trace")
    command = [
        sys.executable, "-c", "from pipeline.cli import main; main()", "compare",
        "--trace", str(tmp_path / "trace"), "--cluster", "pipeline/clusters/small.yaml",
        "--policies", "fifo,fifo-skip,sjf", "--seeds", "2", "--durations", "gpus", "--json",
    ]  # fmt: skip
    kept = tmp_path / "kept"
    with SlurmCluster(nodes=2, open_nodes=2) as slurm:
        environment = {
            **os.environ,
            **slurm.environment,
            "DASK_JOBQUEUE__SLURM__LOG_DIRECTORY": str(tmp_path),
            "DASK_JOBQUEUE__SLURM__MEMORY": "2GiB",
        }
        there = [*command, "--where", "slurm:2", "--keep", str(kept)]
        run = subprocess.Popen(there, env=environment, stdout=subprocess.DEVNULL)
        while not list(kept.glob("[!.]*.pickle")):
            assert run.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
        assert any("dask-worker" in job["name"] for job in slurm.jobs().values())
        run.kill()
        run.wait()
        done = subprocess.run(there, env=environment, stdout=subprocess.PIPE, check=True)
        assert len(list(kept.glob("[!.]*.pickle"))) == 6
    here = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert waits(json.loads(done.stdout)) == waits(json.loads(here.stdout))


def waits(told: dict[str, Any]) -> list[float]:
    return [row["avg_queue_s_mean"] for row in told["policies"]]


def test_its_own_sacct_is_replayed_with_the_averages_of_simulate(
    accounted: SlurmCluster, tmp_path: Path
) -> None:
    """Two nodes of eight GPUs, jobs enough to queue; then sacct, scontrol and replay as told."""
    ids = [
        accounted.run("sbatch", "--parsable", "--partition=open", f"--gpus={gpus}", "--time=2",
                      "--wrap", f"sleep {seconds}", user="nobody").stdout.strip()
        for gpus, seconds in [(8, 2), (4, 3), (8, 2), (2, 2), (4, 1), (1, 2), (8, 1), (2, 1)]
    ]  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        told = accounted.run(
            "sacct", "-X", "-a", "-D", "-P", "-o", COLUMNS, "-j", ",".join(ids)
        ).stdout
        if told.count("|COMPLETED|") == len(ids):
            break
        time.sleep(0.5)
    (tmp_path / "dump.txt").write_text(told)
    (tmp_path / "nodes.txt").write_text(accounted.run("scontrol", "show", "nodes").stdout)
    site = read_site(tmp_path / "dump.txt", tmp_path, nodes=tmp_path / "nodes.txt")
    assert site.counts["replayed"] == site.counts["lines"] == len(ids)
    assert site.workload.cluster.gpus_per_node == 8
    assert site.workload.cluster.vcs["open"] == 2
    found = {row["key"]: row for row in replay(site, 1, variants=VARIANTS[:3])["variants"]}
    table = read_dataset(tmp_path / "dataset")
    for policy in ("fifo", "easy"):
        scenario = plain.scenario(table, "own", site.workload.cluster, None)
        jobs = scenario.simulate(policy)[0].jobs
        mean = sum(job.queue_s for job in jobs) / len(jobs)
        assert found[policy]["avg_wait_s"] == pytest.approx(mean, abs=0.51)  # Eligible, not Submit
