"""Order mode on real daemons: never against QOS, limits or holds, and taken back in one command."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import until
from pipeline.app import app
from scheduler.assembly import CoreSpec
from scheduler.backends.slurm.shape import Shape
from scheduler.service.follow.follower import Follower
from scheduler.service.log.header import FOLLOWED, LogHeader
from tests.slurm.site import client

USER = "nobody"


def submit(slurm: SlurmCluster, *asked: str) -> int:
    script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
    said = slurm.run("sbatch", "--parsable", *asked, *script, user=USER)
    return int(said.stdout.strip())


@pytest.fixture(scope="module")
def university() -> Iterator[SlurmCluster]:
    with SlurmCluster(university=True, accounting=True) as slurm:
        for words in (
            "add account physics",
            f"add user {USER} Account=physics",
            "add qos high Priority=100",
            "add qos limited MaxJobsPerUser=1",
            "modify account physics set qos=normal,high,limited",
        ):
            slurm.run("sacctmgr", "-i", *words.split())
        yield slurm


def test_order_keeps_to_qos_limits_and_holds_and_is_taken_back(university: SlurmCluster) -> None:
    slurm = university
    full = submit(slurm, "-N6", "--exclusive", "-t", "30", "--qos=limited")
    until(lambda: slurm.jobs()[full]["job_state"] == "RUNNING", "it to run")
    shape = Shape.followed(client(slurm).nodes())
    wide = "--gres=gpu:2080ti:8"
    small = [submit(slurm, wide, "-t", "10", "--nice=50"), submit(slurm, wide, "-t", "10")]
    urgent = submit(slurm, wide, "--qos=high", "-t", "50")
    limited = submit(slurm, wide, "--qos=limited", "-t", "1")
    held = submit(slurm, wide, "-t", "1", "--hold")
    sites = submit(slurm, wide, "-t", "10", "--nice=99")
    slurm.run("scontrol", "update", f"jobid={sites}", "AdminComment=the site's own")
    until(lambda: slurm.jobs()[limited]["state_reason"].startswith("QOSMaxJobs"), "its limit", 60)
    before = slurm.jobs()
    assert before[small[0]]["priority"] < before[small[1]]["priority"]
    spec = CoreSpec.of(shape.spec, "pellucid")
    header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
    follower = Follower(header, shape, client(slurm), None, order=True)
    follower.look()
    after = slurm.jobs()
    assert after[small[0]]["priority"] > after[small[1]]["priority"], "in its order"
    assert max(after[job]["priority"] for job in small) < after[urgent]["priority"]
    for job in (urgent, limited, held, sites):
        assert abs(after[job]["priority"] - before[job]["priority"]) < 200, "its own, and its age"
    assert f"was={before[small[0]]['priority']}" in after[small[0]]["admin_comment"]
    slurm.run("scontrol", "hold", str(small[1]))

    done = CliRunner().invoke(app, ["slurm", "release-all"], env=slurm.environment)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Taken back: ")
    back = slurm.jobs()
    assert [job for job, one in back.items() if one["admin_comment"].startswith("pellucid")] == []
    assert back[sites]["admin_comment"] == "the site's own"
    assert [back[job]["priority"] for job in (held, small[1])] == [0, 0]
    assert 0 <= back[small[0]]["priority"] - before[small[0]]["priority"] < 200
    assert CliRunner().invoke(app, ["slurm", "release-all"], env=slurm.environment).output == (
        "Taken back: 0 of 0.\n"
    )
