"""With slurmdbd: what sacct tells is what the trace adapter reads."""

from __future__ import annotations

import csv
import json
import re
from datetime import datetime
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from benchmarks.slurm import SlurmCluster
from pipeline.app import app
from pipeline.replay.runs import VARIANTS, replay
from pipeline.replay.site import DumpOptions, read_site
from pipeline.traces import ingest, read_dataset
from pipeline.worlds import plain
from tests.waiting import until

USER = "backup"
REPLAYED = (
    "JobID,JobName,User,Partition,Submit,Eligible,Start,End,Timelimit,State,NNodes,NodeList,"
    "ReqTRES,AllocTRES"
)
COLUMNS = (
    "JobID,JobName,User,Partition,Submit,Eligible,Start,End,Elapsed,ElapsedRaw,Timelimit,State,"
    "ExitCode,NNodes,ReqTRES,AllocTRES"
)


def _rows(slurm: SlurmCluster, columns: str = COLUMNS) -> tuple[str, list[dict[str, str]]]:
    """sacct's own text, and its rows."""
    text = slurm.run("sacct", "-X", "-a", "-D", "-P", "-o", columns).stdout
    return text, list(csv.DictReader(text.splitlines(), delimiter="|"))


def _ended(slurm: SlurmCluster, count: int) -> bool:
    _, rows = _rows(slurm)
    return sum(row["End"] != "Unknown" for row in rows) >= count


def _seconds(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.fixture(scope="module")
def history(accounted: SlurmCluster) -> SlurmCluster:
    """Jobs that are over: they waited, ended well, badly, or were ended."""
    commands = [("sleep 1", 8), ("sleep 2", 8), ("sleep 1; exit 3", 4), ("true", 1), ("sleep 2", 8)]
    for script, gpus in commands * 2:
        command = ["sbatch", f"--gres=gpu:{gpus}", "--output=/dev/null"]
        accounted.run(*command, "--time=5", "--wrap", script, user=USER)
    command = ["sbatch", "--parsable", "--output=/dev/null", "--time=5", "--wrap"]
    stopped = accounted.run(*command, "sleep 100", "--gpus=1", user=USER).stdout.strip()
    until(lambda: accounted.jobs()[int(stopped)]["job_state"] == "RUNNING", "it to run")
    never = accounted.run(*command, "sleep 100", "-N2", "--gres=gpu:8", user=USER).stdout.strip()
    accounted.run("scancel", stopped, never)
    until(lambda: _ended(accounted, 2 * len(commands) + 2), "every end in the accounts")
    return accounted


def test_the_adapter_reads_the_same_averages(history: SlurmCluster, tmp_path: Path) -> None:
    text, rows = _rows(history)
    (tmp_path / "dump.txt").write_text(text)
    summary = ingest(tmp_path / "dump.txt", tmp_path / "trace", timezone="UTC")
    assert (summary.kept, summary.quarantined) == (len(rows), {})
    table = read_dataset(tmp_path / "trace").sort_by("submit_time")
    jobs = {job["job_id"]: job for job in table.to_pylist()}
    started = [row for row in rows if row["AllocTRES"]]
    assert len(started) == len(rows) - 1
    ran = [jobs[row["JobID"]] for row in started]
    waits = [(job["start_time"] - job["submit_time"]).total_seconds() for job in ran]
    lengths = [(job["end_time"] - job["start_time"]).total_seconds() for job in ran]
    told = [_seconds(row["Start"]) - _seconds(row["Submit"]) for row in started]
    assert fmean(waits) == fmean(told)
    assert fmean(lengths) == fmean(float(row["ElapsedRaw"]) for row in started)
    states = {row["JobID"]: row["State"].split()[0].lower() for row in rows}
    assert {name: job["state"] for name, job in jobs.items()} == states
    gpus = [int(re.findall(r"gres/gpu=(\d+)", row["AllocTRES"])[0]) for row in started]
    assert [job["gpus"] for job in ran] == gpus


def test_replay_reads_what_sacct_wrote(history: SlurmCluster, tmp_path: Path) -> None:
    text, _ = _rows(history)
    dump, nodes, page = (tmp_path / name for name in ("dump.txt", "nodes.txt", "page.html"))
    dump.write_text(text)
    nodes.write_text(history.run("scontrol", "show", "nodes").stdout)
    asked = ["replay", "--sacct", str(dump), "--nodes", str(nodes), "--out", str(page)]
    done = CliRunner().invoke(app, [*asked, "--seeds", "1", "--quiet", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)
    assert "<html" in page.read_text()


def test_its_own_sacct_is_replayed_with_the_averages_of_simulate(
    accounted: SlurmCluster, tmp_path: Path
) -> None:
    """Two nodes of eight GPUs, jobs enough to queue; then sacct, scontrol and replay as told."""
    ids = [
        accounted.run("sbatch", "--parsable", "--output=/dev/null", f"--gpus={gpus}", "--time=2",
                      "--wrap", f"sleep {seconds}", user="backup").stdout.strip()
        for gpus, seconds in [(8, 2), (4, 3), (8, 2), (2, 2), (4, 1), (1, 2), (8, 1), (2, 1)]
    ]  # fmt: skip

    def completed() -> str:
        asked = "-X", "-a", "-D", "-P", "-o", REPLAYED, "-j", ",".join(ids)
        said = accounted.run("sacct", *asked).stdout
        return said if said.count("|COMPLETED|") == len(ids) else ""

    told = until(completed, "all jobs to end", every_s=0.5, patience_s=300.0)
    (tmp_path / "dump.txt").write_text(told)
    (tmp_path / "nodes.txt").write_text(accounted.run("scontrol", "show", "nodes").stdout)
    site = read_site(tmp_path / "dump.txt", tmp_path, DumpOptions(nodes=tmp_path / "nodes.txt"))
    assert site.counts["replayed"] == site.counts["lines"] == len(ids)
    assert site.workload.cluster.gpus_per_node == 8
    assert site.workload.cluster.vcs["main"] == 2
    found = {
        row["key"]: row
        for row in replay(site, 1, variants=[v for v in VARIANTS if v.key in ("fifo", "easy")])[
            "variants"
        ]
    }
    table = read_dataset(tmp_path / "dataset")
    for policy in ("fifo", "easy"):
        scenario = plain.scenario(table, "own", site.workload.cluster, None)
        jobs = scenario.simulate(policy)[0].jobs
        mean = sum(job.queue_s for job in jobs) / len(jobs)
        assert found[policy]["avg_wait_s"] == pytest.approx(mean, abs=0.51)  # Eligible, not Submit


def test_a_job_cancelled_while_held_is_found_by_its_id_only(accounted: SlurmCluster) -> None:
    """It was never eligible, and sacct looks for eligible jobs in a span of time."""
    command = ["sbatch", "--parsable", "--hold", "--gpus=1", "--output=/dev/null", "--wrap=true"]
    job = accounted.run(*command, user=USER).stdout.strip()
    accounted.run("scancel", job)
    sacct = ["sacct", "-X", "-n", "-P", "-o", "State,Eligible"]
    until(lambda: bool(accounted.run(*sacct, "-j", job).stdout), "it to be in the accounts")
    assert accounted.run(*sacct, "-j", job).stdout == "CANCELLED by 0|Unknown\n"
    _, rows = _rows(accounted)
    assert job not in [row["JobID"] for row in rows]
