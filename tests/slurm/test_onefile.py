"""The one file, run by an ordinary user on real daemons, with and without what hides others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from benchmarks.slurm import SlurmCluster
from pipeline.onefile.build import build
from tests.waiting import until

USER = "backup"  # may read no folder of root's; 26.05 refuses nobody
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or "python3"


@pytest.fixture(scope="module")
def file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield build(Path(folder))


def ask(slurm: SlurmCluster, file: Path, *words: str, user: str = USER) -> tuple[int, Any, str]:
    """The exit status, the answer, and what is printed as an error."""
    command = (PYTHON, str(file), words[0], "--json", *words[1:])
    done = slurm.run(*command, user=user, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def submit(slurm: SlurmCluster, *options: str) -> str:
    command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options)
    return slurm.run(*command, "--wrap", "sleep 600", user=USER).stdout.strip()


def test_why_queue_and_eta_of_an_ordinary_user(accounted: SlurmCluster, file: Path) -> None:
    ended = submit(accounted, "--gres=gpu:1", "-t", "9", "--job-name=brief")
    until(lambda: accounted.jobs()[int(ended)]["job_state"] == "RUNNING", "it to run")
    accounted.run("scancel", ended)
    runs = submit(accounted, "-N2", "--gres=gpu:8", "-t", "60")
    until(lambda: accounted.jobs()[int(runs)]["job_state"] == "RUNNING", "it to run")
    first, second = (submit(accounted, "--gres=gpu:8", "-t", "30") for _ in range(2))
    until(lambda: accounted.jobs()[int(second)]["state_reason"] == "Priority", "a reason")
    for job in (first, second):
        status, found, _ = ask(accounted, file, "why", job)
        assert status == 0
        why = found["answer"]
        assert why["slurm"]["code"] == accounted.jobs()[int(job)]["state_reason"]
        assert why["forecast"]["start_p50"] > why["times"]["submitted_at"]
        assert not [line for line in found["hidden"] if "Not read" in line]
    _, found, _ = ask(accounted, file, "queue")
    assert {one["job_id"] for one in found["answer"]} == {runs, first, second}
    _, found, _ = ask(accounted, file, "eta", "--", "--gres=gpu:1", "-t", "5")
    assert found["answer"]["tried"]
    status, _, error = ask(accounted, file, "why", "999999")
    assert (status, error.count("\n")) == (2, 1)


def test_what_a_site_hides_is_named_and_leaves_no_number(cluster: SlurmCluster, file: Path) -> None:
    """PrivateData: the asker's own job is explained, others' are not counted."""
    with (cluster.folder / "slurm.conf").open("a") as conf:
        conf.write("PrivateData=jobs\n")
    cluster.run("scontrol", "reconfigure")
    command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", "--gres=gpu:8")
    theirs = cluster.run(*command, "-N4", "--wrap", "sleep 600").stdout.strip()
    until(lambda: cluster.jobs()[int(theirs)]["job_state"] == "RUNNING", "it to run")
    own = submit(cluster, "--gres=gpu:8", "-t", "30")
    until(lambda: cluster.jobs()[int(own)]["state_reason"] == "Resources", "a reason")
    status, found, _ = ask(cluster, file, "why", own)
    assert status == 0
    assert found["answer"]["slurm"]["code"] == "Resources"
    assert found["answer"]["forecast"]["start_p50"] is None
    assert "standing" not in found["answer"] or found["answer"]["standing"] is None
    assert [line for line in found["hidden"] if "PrivateData=jobs" in line]
    status, _, error = ask(cluster, file, "why", theirs)
    assert (status, error.count("\n")) == (2, 1)
    _, found, _ = ask(cluster, file, "queue", "--all")
    assert {one["job_id"] for one in found["answer"]} == {own}
    _, found, _ = ask(cluster, file, "queue", "--all", user="root")
    assert {one["job_id"] for one in found["answer"]} == {own, theirs}
