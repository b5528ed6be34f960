"""The cheap table of a real queue is the one that JSON tells, whatever users write."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from features.progress import Progress
from scheduler.slurm.follow.outputs import Outputs
from scheduler.slurm.read.job_states import OVER
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.table import Table
from tests.slurm.site import client
from tests.waiting import until

# a line of `scontrol show job -d`, and one of the table
FORGED = "x\n     Nodes=n1 CPU_IDs=0 Mem=100 GRES=gpu:1(IDX:7)\n1|RUNNING|3|"


@pytest.fixture(scope="module")
def busy() -> Iterator[SlurmCluster]:
    with SlurmCluster() as slurm:
        for asked in (
            ["--gpus=8", "--time=1-02:03:04"],
            ["--gpus-per-node=3", "-N2", "--mem=100", f"--job-name={FORGED}"],
            ["--gres=gpu:2", "-n4", "-c2", "--mem-per-cpu=50", "--comment=a|b\npellucid:alone"],
            ["--gpus-per-task=2", "-n2", "--mem=0"],
            ["--gpus=8", "-N1-2", "--begin=now+1hour"],
            ["--gpus=1", f"--array={','.join(str(n * n) for n in range(1, 31))}%2"],
            ["--gpus=8", "--dependency=afterany:1", f"--comment={FORGED}"],
            ["--gpus=8", "--hold", f"--job-name={'n' * 300}|"],
            ["-n1"],
        ):
            script = ["--output=/dev/null", "--chdir=/tmp", "--wrap", "sleep 600"]
            slurm.run("sbatch", *asked, *script, user="backup")
        yield slurm


def told(jobs: list[SlurmJob]) -> dict[str, SlurmJob]:
    """By id, without what the table leaves out, or what Slurm foresees of jobs that wait or run.
    The end of a run without a time limit is a year away in the JSON of 26.05.
    """
    found = {}
    for job in jobs:
        foreseen = {"start": None} if job.state == "PENDING" else {}
        foreseen |= {"end": None} if job.state not in OVER else {}
        plain = replace(
            job, max_nodes=0, admin_comment="", exclusive=False, min_cpus=1, least_mib=0
        )
        found[job.id] = replace(plain, nice=0, planned=(), array_limit=0, per="", **foreseen)  # type: ignore[arg-type]
    return found


def test_the_table_is_what_json_tells(busy: SlurmCluster) -> None:
    slurm = client(busy)
    table = Table(slurm)

    def settled() -> bool:
        return sum(job.state == "RUNNING" for job in slurm.jobs()) >= 4

    until(settled, "jobs to run")
    whole = told(slurm.jobs())

    def alike() -> bool:
        assert told(table.jobs()) == told(slurm.jobs())
        return True

    until(alike, "the same in both", not_yet=(AssertionError,))
    assert len(whole) == 8 + 30
    running = [job for job in table.jobs() if job.state == "RUNNING" and job.gpus]
    assert running
    assert all(job.held_gpus for job in running)
    forged = next(job for job in table.jobs() if job.name == FORGED)
    assert forged.id == "2"
    again = table.jobs()
    before = slurm.reads
    assert all(one is other for one, other in zip(again, table.jobs(), strict=True))
    assert slurm.reads == before + 1, "one read per look"


def test_parts_of_a_heterogeneous_job_are_kept_from_the_nodes_that_slurm_keeps_them_from(
    busy: SlurmCluster,
) -> None:
    slurm, script = client(busy), ["--output=/dev/null", "--wrap", "sleep 600"]
    parts = ["--hold", "-n1", ":", "--hold", "-n1", "--exclude=n[2-3]"]
    said = busy.run("sbatch", "--parsable", *script, *parts, user="backup").stdout.strip()
    excluded = {job.id: job.exc_nodes for job in Table(slurm).jobs()}
    both = ("n2", "n3")  # Slurm takes the nodes that any part excludes from all
    assert (excluded[f"{said}+0"], excluded[f"{said}+1"]) == (both, both)


def test_what_a_job_prints_of_how_far_it_is_is_read_where_slurm_says(
    busy: SlurmCluster,
) -> None:
    slurm, user = client(busy), "backup"
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    prints = "i=0; while :; do i=$((i+1)); echo step $i/1000; sleep 0.5; done"
    asked = ["-n1", f"--output={folder}/%x-%j.out", "--job-name=far", "--wrap", prints]
    job_id = busy.run("sbatch", "--parsable", *asked, user=user).stdout.strip()
    try:
        until(lambda: any(path.stat().st_size for path in folder.iterdir()), "it to print")
        assert slurm.outputs([job_id])[job_id][0] == job_id
        outputs, heard = Outputs(slurm), dict[str, Progress]()

        def said() -> bool:
            heard.update(outputs.look(Table(slurm).jobs(), time.time()))
            return job_id in heard

        until(said, "news of how far it is")
        assert 300 < heard[job_id].total_s < 900
    finally:
        busy.run("scancel", job_id)
        shutil.rmtree(folder)
