"""Ways around the job_submit plugin, tried by an ordinary user, judged by what Slurm shows.

All are tried first; then the scheduler is given time to start what it would start (a control job
proves that it does); then each is looked at.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import until

USER = "nobody"
SLEEP = ["--output=/dev/null", "--wrap", "sleep 300"]

# What a user adds to sbatch. Held: it is taken, and waits for Pellucid. Refused: there is no job.
HELD = {
    "gpus": ["--gpus=2"],
    "gpus-typed": ["--gpus=a100:2"],
    "gres-gpu": ["--gres=gpu"],
    "gres-gpu-count": ["--gres=gpu:2"],
    "gres-gpu-typed": ["--gres=gpu:a100:1"],
    "gpus-per-node": ["--gpus-per-node=2", "--nodes=2"],
    "gpus-per-task": ["--gpus-per-task=2", "--ntasks=2"],
    "nice": ["--gpus=1", "--nice=10"],
    "priority": ["--gpus=1", "--priority=4000000"],
    "begin": ["--gpus=1", "--begin=now+1"],
    "array": ["--gpus=1", "--array=0-3"],
    "array-throttled": ["--gpus=1", "--array=0-3%1"],
    "requeueable": ["--gpus=1", "--requeue"],
    "dependency": ["--gpus=1", "--dependency=singleton"],
    "reservation": ["--gpus=1", "--reservation=theirs"],
    "quality": ["--gpus=1", "--qos=normal"],
    "spread": ["--gpus=1", "--spread-job"],
    "deadline": ["--gpus=1", "--time=1", "--deadline=now+1hour"],
    "comment": ["--gpus=1", "--comment=gpus=0"],
}
REFUSED = {
    "nice-negative": ["--gpus=1", "--nice=-1000"],
    "slot": ["--gres=slot:2"],
    "slot-typed": ["--gres=slot:g0:1"],
    "slot-beside-gpu": ["--gres=gpu:1,slot:g0:1"],
    "slot-and-gpus": ["--gpus=1", "--gres=slot:g1:1"],
    "shard": ["--gres=shard:1"],
    "mps": ["--gres=mps:50"],
    "no-gpus": [],
    "zero-gpus": ["--gpus=0"],
    "gpus-twice": ["--gpus=2", "--gres=gpu:1"],
    "gpus-per-socket": ["--gpus-per-socket=1", "--sockets-per-node=1"],
    "ntasks-per-gpu": ["--gpus=1", "--ntasks-per-gpu=2"],
    "cpus-per-gpu": ["--gpus=1", "--cpus-per-gpu=2"],
    "mem-per-gpu": ["--gpus=1", "--mem-per-gpu=2G"],
    "gpu-bind": ["--gpus=1", "--gpu-bind=closest"],
    "gpu-freq": ["--gpus=1", "--gpu-freq=high"],
    "held-by-the-user": ["--gpus=1", "--hold"],
    "nodelist": ["--gpus=1", "--nodelist=n1"],
    "exclude": ["--gpus=1", "--exclude=n1"],
    "exclusive": ["--gpus=1", "--exclusive"],
    "exclusive-user": ["--gpus=1", "--exclusive=user"],
    "oversubscribe": ["--gpus=1", "--oversubscribe"],
    "node-range": ["--gpus=4", "--nodes=1-2", "--ntasks=4"],
    "two-partitions": ["--gpus=1", "--partition=main,profile"],
    "open-or-main": ["--gpus=1", "--partition=open,main"],
    "profiling": ["--gpus=1", "--partition=profile"],
    "het-job": ["--gpus=1", ":", "--gpus=1"],
    "het-slot": ["--gpus=1", ":", "--gres=slot:g0:1"],
    "as-root": ["--gpus=1", "--uid=0"],
}

# Commands that wait for their allocation: held means that they never get one.
WAITING = {
    "srun": ["srun", "--gpus=1", "sleep", "300"],
    "srun-immediate": ["srun", "--immediate=1", "--gpus=1", "sleep", "300"],
    "salloc": ["salloc", "--gpus=1", "sleep", "300"],
    "salloc-no-shell": ["salloc", "--no-shell", "--gpus=1"],
}

# What a user does to their own held job {job}, or to the cluster; each is refused by Slurm.
CHANGES = {
    "release": "release {job}",
    "hold": "hold {job}",
    "uhold": "uhold {job}",
    "top": "top {job}",
    "requeue": "requeue {job}",
    "requeuehold": "requeuehold {job}",
    "resume": "resume {job}",
    "update-nice": "update jobid={job} nice=10",
    "update-priority": "update jobid={job} priority=100000",
    "update-gres": "update jobid={job} gres=slot:g0:1",
    "update-gpu": "update jobid={job} gres=gpu:1",
    "update-admincomment": "update jobid={job} admincomment=gpus=0",
    "update-comment": "update jobid={job} comment=x",
    "update-partition": "update jobid={job} partition=open",
    "update-nodes": "update jobid={job} reqnodelist=n1",
    "update-numnodes": "update jobid={job} numnodes=2",
    "update-features": "update jobid={job} features=x",
    "update-start": "update jobid={job} starttime=now",
    "update-requeue": "update jobid={job} requeue=1",
    "update-reservation": "update jobid={job} reservationname=theirs",
    "update-shared": "update jobid={job} oversubscribe=yes",
    "update-time": "update jobid={job} timelimit=1",
    "partition": "update partitionname=main allowgroups=none",
    "node": "update nodename=n1 gres=slot:99",
    "make-reservation": "create reservation starttime=now duration=1 nodes=n1 users=nobody",
}


@dataclass(frozen=True)
class Tried:
    """What came of it, seen three seconds later."""

    code: int | None  # of the command; None = it was still waiting
    said: str
    jobs: list[dict[str, Any]]  # the jobs of that name


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(open_nodes=1) as cluster:
        reservation = ["reservationname=theirs", "starttime=now", "duration=60", "nodes=n1"]
        where = ["partition=main", f"users={USER}"]
        cluster.run("scontrol", "create", "reservation", *reservation, *where)
        yield cluster


@pytest.fixture(scope="module")
def tried(slurm: SlurmCluster) -> dict[str, Tried]:
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    waiting: dict[str, subprocess.Popen[str]] = {}
    for way, asked in {**HELD, **REFUSED}.items():
        command = ["sbatch", f"--job-name={way}", *asked, *SLEEP]
        done[way] = slurm.run(*command, user=USER, check=False)
    for way, (program, *asked) in WAITING.items():
        waiting[way] = slurm.start(program, f"--job-name={way}", *asked, user=USER)
    for way, change in CHANGES.items():
        command = ["sbatch", "--parsable", f"--job-name={way}", "--gpus=1", *SLEEP]
        job = slurm.run(*command, user=USER).stdout.strip()
        done[way] = slurm.run("scontrol", *change.format(job=job).split(), user=USER, check=False)
    # The control: Slurm would have started them by now if it meant to.
    slurm.run("sbatch", "--job-name=control", *SLEEP)
    until(lambda: _named(slurm, "control")[0]["job_state"] == "RUNNING", "the control to run")
    time.sleep(3.0)  # more than a round of either of Slurm's schedulers
    jobs = list(slurm.jobs().values())
    seen = {}
    for way, command in [*done.items(), *waiting.items()]:
        its = [job for job in jobs if job["name"] == way]
        if isinstance(command, subprocess.Popen):
            seen[way] = Tried(command.poll(), "", its)
            command.kill()
            command.communicate()
        else:
            seen[way] = Tried(command.returncode, command.stdout + command.stderr, its)
    return seen


def _named(slurm: SlurmCluster, name: str) -> list[dict[str, Any]]:
    return [job for job in slurm.jobs().values() if job["name"] == name]


def _assert_held(job: dict[str, Any]) -> None:
    assert job["job_state"] == "PENDING"
    assert job["state_reason"] in ("JobHeldUser", "BeginTime")
    assert job["priority"] == 0
    assert job["nice"] in (0, None)
    assert job["partition"] == "main"
    assert not job["requeue"]
    # Nothing of a GPU or a slot is asked of Slurm, so none can be given.
    for field in ("tres_per_job", "tres_per_node", "tres_per_task", "gres_detail"):
        assert not job[field], field
    assert "gres" not in job["tres_req_str"]


@pytest.mark.parametrize("way", HELD)
def test_it_is_held_and_what_it_asks_for_is_written_down(way: str, tried: dict[str, Tried]) -> None:
    outcome = tried[way]
    assert outcome.code == 0, outcome.said
    assert outcome.jobs
    for job in outcome.jobs:
        _assert_held(job)
        assert job["admin_comment"].startswith("gpus=")


@pytest.mark.parametrize("way", REFUSED)
def test_it_is_refused_with_a_sentence(way: str, tried: dict[str, Tried]) -> None:
    outcome = tried[way]
    assert outcome.code != 0
    assert "error: " in outcome.said
    assert outcome.jobs == []


@pytest.mark.parametrize("way", WAITING)
def test_it_never_gets_its_allocation(way: str, tried: dict[str, Tried]) -> None:
    outcome = tried[way]
    assert outcome.code != 0
    for job in outcome.jobs:
        assert job["job_state"] in ("PENDING", "FAILED", "CANCELLED")
        assert job["start_time"] == 0 or job["job_state"] != "PENDING" or job["nodes"] == ""
        if job["job_state"] == "PENDING":
            _assert_held(job)


@pytest.mark.parametrize("way", CHANGES)
def test_a_held_job_cannot_be_changed_by_its_owner(way: str, tried: dict[str, Tried]) -> None:
    outcome = tried[way]
    assert outcome.code != 0, outcome.said
    (job,) = outcome.jobs
    _assert_held(job)
    assert job["admin_comment"] == "gpus=1"
    assert (job["comment"], job["required_nodes"], job["features"]) == ("", "", "")


def test_totals_are_written_down(tried: dict[str, Tried]) -> None:
    told = {way: outcome.jobs[0]["admin_comment"] for way, outcome in tried.items() if outcome.jobs}
    assert told["gpus"] == told["gres-gpu-count"] == "gpus=2"
    assert told["gres-gpu"] == "gpus=1"
    assert told["gpus-per-node"] == told["gpus-per-task"] == "gpus=4"
    assert told["gpus-typed"] == "gpus=2 type=a100"
    assert told["comment"] == "gpus=1"


def test_no_slot_is_given_to_anybody(slurm: SlurmCluster, tried: dict[str, Tried]) -> None:
    for node in ("n1", "n2", "n3"):
        assert "slot:g0:0" in slurm.gres_used(node)
        assert set(slurm.slots_used(node).values()) == {0}


def test_jobs_of_the_open_partition_are_left_alone(slurm: SlurmCluster) -> None:
    command = ["sbatch", "--parsable", "--partition=open", "--gres=gpu:2", "--nice=5", *SLEEP]
    job = int(slurm.run(*command, user=USER).stdout)
    until(lambda: slurm.jobs()[job]["job_state"] == "RUNNING", "the open job to run")
    assert slurm.jobs()[job]["admin_comment"] == ""
    # It may not come over, either: neither running nor waiting.
    blocked = int(slurm.run(*command, "--gres=gpu:8", user=USER).stdout)
    for one in (job, blocked):
        moved = slurm.run(
            "scontrol", "update", f"jobid={one}", "partition=main", user=USER, check=False
        )
        assert moved.returncode != 0
        assert slurm.jobs()[one]["partition"] == "open"


def test_a_placed_job_cannot_be_taken_further_by_its_owner(slurm: SlurmCluster) -> None:
    job = slurm.run("sbatch", "--parsable", "--gpus=1", *SLEEP, user=USER).stdout.strip()
    slurm.place(job, "n2", [5])
    until(lambda: slurm.jobs()[int(job)]["job_state"] == "RUNNING", "the placed job to run")
    for way in ("requeue", "requeuehold", "suspend", "top"):
        assert slurm.run("scontrol", way, job, user=USER, check=False).returncode != 0, way
    for change in ("numnodes=2", "gres=slot:g6:1", "requeue=1", "timelimit=UNLIMITED"):
        command = ["scontrol", "update", f"jobid={job}", change]
        assert slurm.run(*command, user=USER, check=False).returncode != 0, change
    # A step takes no more than the job was given.
    step = ["srun", "--immediate=2", f"--jobid={job}", "--overlap", "--gres=slot:g6:1", "true"]
    assert slurm.run(*step, user=USER, check=False).returncode != 0
    assert slurm.jobs()[int(job)]["restart_cnt"] == 0
    assert slurm.slots_used("n2") == {index: int(index == 5) for index in range(8)}
    assert slurm.run("scancel", job, user=USER).returncode == 0  # which they always may


def test_directives_and_variables_are_no_other_way_in(slurm: SlurmCluster) -> None:
    script = "#!/bin/sh\n#SBATCH --gres=slot:g0:2\nsleep 300\n"
    assert slurm.run("sbatch", user=USER, stdin=script, check=False).returncode != 0
    variables = {"SBATCH_GRES": "slot:g0:2", "SBATCH_PARTITION": "main"}
    command = ["sbatch", "--job-name=variables", *SLEEP]
    assert slurm.run(*command, user=USER, environment=variables, check=False).returncode != 0
    assert _named(slurm, "variables") == []


def test_a_plugin_that_does_not_load_lets_nobody_through(slurm: SlurmCluster) -> None:
    """slurmctld takes a changed script up at the next job; it keeps the old for a broken one."""
    script = slurm.folder / "job_submit.lua"
    good = script.read_text()
    try:
        script.write_text("this is no lua")
        slurm.run("sbatch", "--gres=slot:g0:1", *SLEEP, user=USER, check=False)
        assert set(slurm.slots_used("n1").values()) == {0}
        assert "using previous script" in slurm.log()
    finally:
        script.write_text(good)
