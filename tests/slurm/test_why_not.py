"""What is short where, by the books of a look, against what slurmctld does when it is mended."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.config import Own
from scheduler.assembly import CoreSpec
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.answers import TRIED
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.table import Table
from scheduler.slurm.reason import sentence
from tests.slurm.site import client
from tests.waiting import until

USER = "backup"


def gres(folder: Path) -> str:
    cards = f"NodeName=n[1-3] Name=gpu File={folder}/gpu[0-7]\n"
    return cards + "NodeName=n1 Name=nvme Count=100\n"


def lines(ports: Sequence[int]) -> list[str]:
    """n1 and n2 in `gpu`, n3 in `each`, where memory goes by the GPU."""
    host = socket.gethostname()
    has = ("gpu:8,nvme:100", "gpu:8", "gpu:8")
    nodes = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=32 "
        f"RealMemory=128000 Gres={what}"
        for i, (port, what) in enumerate(zip(ports, has, strict=True), start=1)
    ]
    return [
        "GresTypes=gpu,nvme", "PriorityType=priority/basic",
        "SchedulerParameters=bf_interval=1,sched_interval=1", *nodes,
        "PartitionName=gpu Nodes=n[1-2] Default=YES State=UP",
        "PartitionName=each Nodes=n3 State=UP",
    ]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_left(slurm: SlurmCluster) -> Iterator[None]:
    yield
    slurm.run("scancel", "-u", USER)
    until(lambda: not slurm.run("squeue", "-h").stdout, "all to be gone")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster(own=Own(3, gres, lines)) as made:
        made.mark("n2", "drain", "vendor case")
        yield made


def submit(slurm: SlurmCluster, *asked: str) -> str:
    script = ["--output=/dev/null", "--chdir=/tmp", "-t", "60", "--wrap", "sleep 600"]
    return slurm.run("sbatch", "--parsable", *asked, *script, user=USER).stdout.strip()


def look(slurm: SlurmCluster) -> Follower:
    of = client(slurm)
    shape = Shape.followed(of.nodes())
    spec = CoreSpec.of(shape.spec, "slurm")
    header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
    follower = Follower(header, shape, of, None, Following(table=Table(of)))
    follower.look()
    return follower


def state(slurm: SlurmCluster, job: str) -> str:
    return str(slurm.jobs()[int(job)]["job_state"])


def word(slurm: SlurmCluster, job: str) -> str:
    return str(slurm.jobs()[int(job)]["state_reason"])


@pytest.mark.parametrize(
    ("hog", "asked", "said", "mends"),
    [
        (
            ("--mem=120G", "-c", "1"), ("--gres=gpu:1", "--mem=32G"),
            "GPUs are free (8 of 8 on n1), memory is not: 5 GiB of 125 GiB free, it asks for 32",
            "minmemorynode=5120",
        ),
        (
            ("--gres=gpu:1,nvme:80", "--mem=1G"), ("--gres=gpu:1,nvme:40", "--mem=1G"),
            "GPUs are free (7 of 8 on n1), nvme is not: 20 of 100 free, it asks for 40",
            "",
        ),
        (
            ("--gres=gpu:5", "--mem=1G"), ("-N1", "--gres=gpu:4", "--mem=1G"),
            "on n1 GPUs are short: 3 of 8 free, it asks for 4", "gpu:3",
        ),
    ],
)  # fmt: skip
def test_what_is_short_is_named_and_with_less_of_it_the_job_starts(
    slurm: SlurmCluster, hog: tuple[str, ...], asked: tuple[str, ...], said: str, mends: str
) -> None:
    first = submit(slurm, *hog)
    until(lambda: state(slurm, first) == "RUNNING", "the first to run")
    job = submit(slurm, *asked)
    until(lambda: word(slurm, job) == "Resources", "it to wait for resources")
    follower = look(slurm)
    text = sentence(follower.reasons[job], job, time.time())
    assert text.startswith(said)
    assert ('n2 is drained ("vendor case")' in text) is ("nvme" not in said)  # n2 has none
    tried = follower.answer(TRIED, {"job_id": job})["tried"]
    commands = [one["command"] for one in tried if not one["reason"]]
    if mends:
        (command,) = [one for one in commands if one.endswith(mends)]
        assert [one["by_slurm"] for one in tried if one["command"] == command] == [True]
        slurm.run(*command.split())
        until(lambda: state(slurm, job) == "RUNNING", "it to start")


def test_memory_that_goes_by_the_gpu_is_what_was_asked_for(slurm: SlurmCluster) -> None:
    """While such a job waits its TRES count whole nodes: it was foreseen to start in no future."""
    first = submit(slurm, "-p", "each", "--gres=gpu:6", "--mem-per-gpu=4000")
    until(lambda: state(slurm, first) == "RUNNING", "the first to run")
    job = submit(slurm, "-p", "each", "--gres=gpu:4", "--mem-per-gpu=4000")
    until(lambda: word(slurm, job) == "Resources", "it to wait")
    follower = look(slurm)
    (waiting,) = [one for one in client(slurm).jobs() if one.id == job]
    assert (waiting.least_mib, waiting.per) == (4000, "gpu")
    (seen,) = [one for one in Table(client(slurm)).jobs() if one.id == job]
    assert (seen.least_mib, seen.per) == (4000, "gpu")
    text = sentence(follower.reasons[job], job, time.time())
    assert text.startswith("on n3 GPUs are short: 2 of 8 free, it asks for 4")
    assert follower._forecasts[job].start_p50 is not None
