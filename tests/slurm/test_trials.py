"""What is tried on a copy of Slurm comes true when it is done: before submission, and otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import SlurmError
from scheduler.assembly import CoreSpec
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.answers import ETA, TRIED
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import slurm_word
from scheduler.slurm.read.table import Table
from tests.slurm.site import client, physics
from tests.waiting import until

USER = "backup"


def submit(slurm: SlurmCluster, asked: str) -> str:
    script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
    said = slurm.run("sbatch", "--parsable", *asked.split(), *script, user=USER)
    return said.stdout.strip()


@pytest.fixture(scope="module")
def university() -> Iterator[SlurmCluster]:
    """n2's GPUs, the a100 of n3 and n4 but one, and a QOS that lets one job run are taken; n5 and
    n6 are wanted for maintenance in twenty minutes."""
    with physics(USER) as slurm:
        slurm.run(
            "scontrol", "create", "reservation", "reservationname=maintenance", "users=root",
            "starttime=now+20minutes", "duration=60", "nodes=n[5-6]", "flags=maint",
        )  # fmt: skip
        taken = [
            submit(slurm, "-p long --gres=gpu:2080ti:8 -t 60"),
            submit(slurm, "-p long --gres=gpu:a100:3 -w n3 -t 60"),
            submit(slurm, "-p long --gres=gpu:a100:2 -w n4 -t 60"),
            submit(slurm, "-p short --qos=limited -w n1 -t 10"),
        ]
        until(lambda: all(running(slurm, job) for job in taken), "jobs to run")
        yield slurm


def running(slurm: SlurmCluster, job: str) -> bool:
    return bool(slurm.jobs()[int(job)]["job_state"] == "RUNNING")


@pytest.fixture
def follower(university: SlurmCluster) -> Follower:
    slurm = client(university)
    shape = Shape.followed(slurm.nodes())
    spec = CoreSpec.of(shape.spec, "slurm")
    header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
    return Follower(header, shape, slurm, None, Following(table=Table(slurm)))


def eta(follower: Follower, asked: str) -> dict[str, Any]:
    return follower.answer(ETA, {"options": asked.split(), "user": USER})


def test_a_job_that_would_start_at_once_does_and_one_that_would_wait_waits_for_that(
    university: SlurmCluster, follower: Follower
) -> None:
    follower.look()
    asked = "--gres=gpu:2080ti:8 -t 30"
    told = eta(follower, f"-p long {asked}")
    by = {one["partition"]: one for one in told["tried"]}
    assert set(by) == {"long", "short"}
    assert {one["partition"]: one["why"] for one in told["closed"]} == {
        "cpu": "has no nodes that suit, were they empty"
    }
    assert by["short"]["reason"] == ""
    assert by["long"]["reason"] == "Resources"
    assert by["long"]["start_p50"] > told["now"]
    waits, starts = submit(university, f"-p long {asked}"), submit(university, f"-p short {asked}")
    until(lambda: running(university, starts), "it to start")

    def word() -> str:
        said = {job.id: job for job in client(university).jobs()}
        return slurm_word(said[waits].reason)

    until(lambda: word() == "Resources", "the other to be looked at")
    university.run("scancel", waits, starts)


@pytest.mark.parametrize("asked", ["--frobnicate", "-p nowhere", "--time=soon", "--mem=lots"])
def test_options_that_sbatch_would_refuse_are_refused(follower: Follower, asked: str) -> None:
    follower.look()
    assert "these options cannot be tried" in eta(follower, asked)["refused"]


@pytest.mark.parametrize(
    ("asked", "word", "begins"),
    [
        ("-p long --gres=gpu:2080ti:8 -t 30", "Resources", "partition=short"),
        ("-p long --gres=gpu:a100:2 -t 30", "Resources", "gpu:a100:1"),
        ("-p short --qos=limited -t 5", "QOSMaxJobsPerUserLimit", "qos=high"),
        ("-p cpu -n4 -t 60", "ReqNodeNotAvail", "timelimit=15"),
    ],
)
def test_what_would_help_helps(
    university: SlurmCluster, follower: Follower, asked: str, word: str, begins: str
) -> None:
    job = submit(university, asked)

    def waits() -> bool:
        said = {one.id: one for one in client(university).jobs()}
        return slurm_word(said[job].reason) == word

    until(waits, f"it to wait for {word}")
    follower.look()
    told = follower.answer(TRIED, {"job_id": job})
    commands = [one["command"] for one in told["tried"] if not one["reason"]]
    (command,) = [one for one in commands if one.endswith(begins)]
    assert not running(university, job)
    university.run(*command.split())
    until(lambda: running(university, job), "it to start")
    university.run("scancel", job)


@pytest.mark.parametrize("named", ["-A gone", "-A root", "--qos=gone"])
def test_what_slurm_refuses_by_its_associations_is_not_forecast(
    university: SlurmCluster, follower: Follower, named: str
) -> None:
    follower.look()
    told = eta(follower, f"-p long {named} -t 5")
    assert told["refused"].startswith("Slurm refuses this job: there is no ")
    with pytest.raises(SlurmError, match=r"Invalid (account|qos)"):
        submit(university, f"-p long {named} -t 5")
    assert "refused" not in eta(follower, "-p long -A physics --qos=high -t 5")
