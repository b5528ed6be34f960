"""Advise in front of a cluster as universities have them (`benchmarks.slurm.university`)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from benchmarks.slurm import SlurmCluster
from tests.slurm.test_serve import Serve
from tests.waiting import until

USER = "backup"


@pytest.fixture(scope="module")
def university() -> Iterator[SlurmCluster]:
    with SlurmCluster(university=True, accounting=True) as slurm:
        slurm.account(
            "add account physics Fairshare=30",
            "add account chem Fairshare=10",
            f"add user {USER} Account=physics Fairshare=10",
            "add user games Account=chem",
            "add qos high Priority=100",
            "add qos limited Priority=10 MaxJobsPerUser=1 GrpTRES=gres/gpu=4",
            "modify account physics set qos=normal,high,limited",
        )
        yield slurm


def submit(slurm: SlurmCluster, *asked: str, user: str = USER) -> str:
    script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
    return slurm.run("sbatch", "--parsable", *asked, *script, user=user).stdout.strip()


def test_advise_shows_nodes_and_jobs_as_they_are(university: SlurmCluster, tmp_path: Path) -> None:
    slurm = university
    old = submit(slurm, "--gres=gpu:2080ti:8")
    mig = submit(slurm, "--gres=gpu:a100_3g.20gb:1")
    plain = submit(slurm, "-p", "cpu", "-n", "4")
    until(lambda: slurm.jobs()[int(plain)]["job_state"] == "RUNNING", "jobs to run")
    slurm.mark("n6", "drain", "disk is broken")
    submit(slurm, "--gres=gpu:2080ti:8")
    waiting = submit(slurm, "-p", "short,long", "--gres=gpu:2080ti:8")
    held = submit(slurm, "--hold", "--gpus=1")
    behind = submit(slurm, f"--dependency=afternotok:{old}", "--gpus=1")
    serving = Serve(slurm, tmp_path / "advise", "advise", "")
    try:
        until(lambda: serving.pellucid("why", plain).exit_code == 0, "an answer")
        shown = json.loads(serving.pellucid("node", "list", "--json").stdout)
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/") as page:
            board = page.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/jobs/{waiting}") as page:
            of_waiting = page.read().decode()
        jobs = json.loads(serving.pellucid("ps", "--json").stdout)
        asked = ("--user", USER, "--", "--gres=gpu:2080ti:1", "--time=20")

        def told() -> Result | None:
            """None: the host was too busy to try each partition."""
            found = serving.pellucid("eta", *asked)
            return None if "there was no time" in found.stdout else found

        eta = until(told, "every partition to be tried")
        why, *others = (serving.pellucid("why", job) for job in (waiting, held, behind, old))
    finally:
        code = serving.end()
    assert code == 0
    assert eta.exit_code == 0, eta.output
    lines = {line.split()[0]: line for line in eta.stdout.splitlines()}
    assert {"PARTITION", "short", "long", "Not", "Pellucid:"} == set(lines)
    assert "Not in cpu: it has no nodes that suit, were they empty." in eta.stdout
    assert f"{waiting} is" in why.stdout
    assert "Slurm says " in why.stdout
    assert (
        f'<p class="lead">Slurm says {why.stdout.split("Slurm says ")[1].split(":")[0]}'
        in of_waiting
    )
    assert "Who must finish" not in of_waiting
    assert [one.exit_code for one in others] == [0, 0, 0]
    of_held, of_behind, of_running = (one.stdout for one in others)
    assert f"{held} is submitted: Slurm says JobHeldUser: it is held by its user" in of_held
    assert f"Slurm says Dependency: it waits for afternotok:{old}" in of_behind
    assert f"{old} is running: Slurm started it" in of_running
    assert "Waited" not in of_running
    nodes = {node["name"]: node for node in shown}
    assert {n: len(node["gpus"]) for n, node in nodes.items()} == {
        "n1": 8, "n2": 8, "n3": 4, "n4": 4, "n5": 0, "n6": 0
    }  # fmt: skip
    assert nodes["n1"]["gpu_type"] == "2080ti"
    assert nodes["n4"]["gpu_type"] == "a100+a100_3g.20gb"
    assert "disk is broken" in nodes["n6"]["reason"]
    assert not nodes["n6"]["open"]
    there = {job["job_id"]: job for job in jobs}
    assert there[old]["gpus"] == 8
    assert {there[job]["phase"] for job in (old, mig, plain)} == {"running"}
    assert waiting in there
    assert "n6" in board
