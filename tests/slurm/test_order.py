"""Order mode on real daemons: never against QOS, limits or holds, and taken back in one command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from typer.testing import CliRunner

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import as_user, free_ports
from pipeline.app import app
from scheduler.assembly import CoreSpec
from scheduler.service.log.header import FOLLOWED, LogHeader
from scheduler.slurm.follow.follower import Follower, Following
from scheduler.slurm.read.shape import Shape
from tests.slurm.site import client, physics
from tests.slurm.test_serve import MAIN
from tests.waiting import until

USER = "backup"


def submit(slurm: SlurmCluster, *asked: str) -> int:
    script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
    said = slurm.run("sbatch", "--parsable", *asked, *script, user=USER)
    return int(said.stdout.strip())


def ours(slurm: SlurmCluster) -> dict[int, str]:
    """AdminComments that Pellucid wrote, by job; scontrol keeps the quotes they were given in."""
    said = {job: one["admin_comment"].strip('"') for job, one in slurm.jobs().items()}
    return {job: text for job, text in said.items() if text.startswith("pellucid")}


@pytest.fixture(scope="module")
def university() -> Iterator[SlurmCluster]:
    """A university's cluster on which nothing more starts: one job has all of its nodes."""
    with physics(USER) as slurm:
        full = submit(slurm, "-N6", "--exclusive", "-t", "30", "--qos=limited")
        until(lambda: slurm.jobs()[full]["job_state"] == "RUNNING", "it to run")
        yield slurm


def test_order_keeps_to_qos_limits_and_holds_and_is_taken_back(university: SlurmCluster) -> None:
    slurm = university
    shape = Shape.followed(client(slurm).nodes())
    wide = "--gres=gpu:2080ti:8"
    small = [submit(slurm, wide, "-t", "10", "--nice=5000"), submit(slurm, wide, "-t", "10")]
    urgent = submit(slurm, wide, "--qos=high", "-t", "50")
    limited = submit(slurm, wide, "--qos=limited", "-t", "1")
    held = submit(slurm, wide, "-t", "1", "--hold")
    sites = submit(slurm, wide, "-t", "10", "--nice=99")
    slurm.run("scontrol", "update", f"jobid={sites}", "AdminComment=the site's own")
    until(lambda: slurm.jobs()[limited]["state_reason"].startswith("QOSMaxJobs"), "its limit")
    before = slurm.jobs()
    assert before[small[0]]["priority"] < before[small[1]]["priority"]
    spec = CoreSpec.of(shape.spec, "pellucid")
    header = LogHeader(spec, time.time(), backend=FOLLOWED, names=shape.names)
    follower = Follower(header, shape, client(slurm), None, Following(order=True))
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
    assert not ours(slurm)
    assert back[sites]["admin_comment"] == "the site's own"
    assert [back[job]["priority"] for job in (held, small[1])] == [0, 0]
    assert 0 <= back[small[0]]["priority"] - before[small[0]]["priority"] < 200
    assert [back[job]["nice"] for job in small] == [before[job]["nice"] for job in small]
    assert CliRunner().invoke(app, ["slurm", "release-all"], env=slurm.environment).output == (
        "Taken back: 0 of 0.\n"
    )


ORDERS, ANSWERS = "games", "daemon"  # accounts of the two services


class Service:
    """`pellucid serve` as another user, in a folder of that user's."""

    def __init__(self, slurm: SlurmCluster, folder: Path, mode: str, user: str, *more: str) -> None:
        folder.mkdir()
        shutil.chown(folder, user)
        self.log, environment = folder / "log", {**os.environ, **slurm.environment}
        asked = [
            "serve", "--backend", "slurm", "--slurm-mode", mode,
            "--database", f"sqlite:///{folder}/p.db", "--state-dir", f"{folder}/state", *more,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*as_user(user), sys.executable, "-P", *MAIN[1:], *asked],
                env={**environment, "HOME": str(folder), "PELLUCID_SLURM_INTERVAL_S": "2"},
                cwd="/tmp",
                stdout=log,
                stderr=log,
            )

    def listens(self) -> bool:
        mine = psutil.Process(self.process.pid)
        every = [mine, *mine.children(recursive=True)]
        return any(one.status == "LISTEN" for p in every for one in p.net_connections("inet"))

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def test_who_answers_people_has_no_right_and_who_has_it_answers_nobody(
    university: SlurmCluster,
) -> None:
    """As `deploy/slurm` has it: two accounts, which share nothing but Slurm."""
    slurm = university
    slurm.run("sacctmgr", "-i", "add", "user", ORDERS, "Account=root", "AdminLevel=Admin")
    known = ("scontrol", "show", "assoc_mgr", f"users={ORDERS}", "flags=users")
    until(lambda: "AdminLevel=Administrator" in slurm.run(*known).stdout, "slurmctld to know it")
    wide = "--gres=gpu:2080ti:8"
    jobs = [submit(slurm, wide, "-t", "10", "--nice=5000"), submit(slurm, wide, "-t", "10")]
    before = slurm.jobs()

    def ordered() -> list[int]:
        return [job for job, said in ours(slurm).items() if said.startswith("pellucid: was=")]

    with tempfile.TemporaryDirectory(prefix="pellucid-order-") as made:
        folder, [port] = Path(made), free_ports(1)
        folder.chmod(0o755)
        ordering = Service(slurm, folder / "order", "order", ORDERS, "--api-workers", "0")
        answering = Service(slurm, folder / "advise", "advise", ANSWERS, "--port", str(port))
        try:
            until(lambda: bool(ordered()), "an order")
            changed = ordered()[0]

            def why() -> str:  # without tokens it serves its own account only
                asks = [*as_user(ANSWERS), sys.executable, "-P", *MAIN[1:], "why", str(changed)]
                server = {**os.environ, "PELLUCID_SERVER": f"http://127.0.0.1:{port}"}
                return subprocess.run(asks, env=server, cwd="/tmp", text=True, stdout=PIPE).stdout

            until(lambda: "Slurm says" in why(), "an answer")
            assert answering.listens()
            assert not ordering.listens()
            tried = slurm.run(
                "scontrol", "update", f"jobid={changed}", "priority=1", user=ANSWERS, check=False
            )
            assert tried.returncode != 0
        finally:
            codes = [one.end() for one in (answering, ordering)]
            print(*(one.log.read_text() for one in (ordering, answering)), sep="\n")
    assert codes == [0, 0]
    assert not ordered(), "it takes back what it gave"
    after = slurm.jobs()
    apart = [one[jobs[1]]["priority"] - one[jobs[0]]["priority"] for one in (before, after)]
    assert abs(apart[1] - apart[0]) < 200  # all that fair share takes meanwhile it takes of both
    assert [after[job]["nice"] for job in jobs] == [before[job]["nice"] for job in jobs]
