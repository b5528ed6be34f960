"""Two jobs on one GPU: Slurm keeps the cap, jobs see their own GPUs, and the traps are avoided."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import until

DEPLOY = Path("deploy/slurm")
QUIET = ["--output=/dev/null"]


def _states(slurm: SlurmCluster, jobs: list[str]) -> Counter[str]:
    known = slurm.jobs()
    return Counter(known[int(job)]["job_state"] for job in jobs)


def _over(slurm: SlurmCluster, jobs: list[str]) -> None:
    until(lambda: not {"PENDING", "RUNNING", "COMPLETING"} & set(_states(slurm, jobs)), "ends", 60)


@pytest.fixture
def notes() -> Iterator[Path]:
    """A folder in which a job of any user may write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def test_never_more_than_two_jobs_on_a_gpu(cluster: SlurmCluster, notes: Path) -> None:
    """Far more asked of the GPUs than two each: what Slurm starts at once never exceeds it."""
    chance = random.Random(8)
    script = "; ".join(
        (
            f"exec > {notes}/$SLURM_JOB_ID",
            'echo "$CUDA_VISIBLE_DEVICES"',
            "date +%s.%N",
            f"until [ -e {notes}/go ]; do sleep 0.1; done",
            "sleep $PAUSE",
            "date +%s.%N",
        )
    )
    given: dict[str, tuple[str, list[int]]] = {}
    for _ in range(64):
        count = chance.choice((1, 1, 1, 2, 2, 4, 8))
        node, gpus = chance.choice(cluster.nodes), sorted(chance.sample(range(8), count))
        export = f"--export=ALL,PAUSE={chance.uniform(0.2, 0.9):.2f}"
        command = ["sbatch", "--parsable", f"--gpus={count}", export, *QUIET, "--wrap", script]
        job = cluster.run(*command, user="nobody").stdout.strip()
        cluster.place(job, node, gpus)
        given[job] = node, gpus
    most = 0
    while set(_states(cluster, list(given))) & {"PENDING", "RUNNING"}:
        used = [count for node in cluster.nodes for count in cluster.slots_used(node).values()]
        most = max(most, *used)
        shown = Counter(
            (node, gpu)
            for job, state in cluster.jobs().items()
            if state["job_state"] == "RUNNING" and str(job) in given
            for node, gpus in [given[str(job)]]
            for gpu in gpus
        )
        assert max(shown.values(), default=0) <= 2
        (notes / "go").touch()  # those that run were seen together
        time.sleep(0.1)
    assert most == 2  # sharing did happen, and no counter passed the cap
    _over(cluster, list(given))
    assert _states(cluster, list(given)) == {"COMPLETED": len(given)}
    _assert_own_gpus(notes, given)
    # No counter is left behind.
    assert all(set(cluster.slots_used(node).values()) == {0} for node in cluster.nodes)


def _assert_own_gpus(notes: Path, given: dict[str, tuple[str, list[int]]]) -> None:
    """By the jobs' own clocks, too: what they saw, and how many were on each GPU at a time."""
    changes: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for job, (node, gpus) in given.items():
        visible, begun, ended = (notes / job).read_text().splitlines()
        assert visible == ",".join(map(str, gpus))
        for gpu in gpus:
            changes.setdefault((node, gpu), []).extend([(float(begun), 1), (float(ended), -1)])
    deepest = [max(accumulate(step for _, step in sorted(ones))) for ones in changes.values()]
    assert max(deepest) == 2


def test_a_whole_node_can_be_shared_by_two_jobs(cluster: SlurmCluster) -> None:
    """Trap 4: a job on shards cannot span GPUs; one on slots can."""
    jobs = [_submit(cluster, "sleep 30") for _ in range(3)]
    for job in jobs:
        cluster.place(job, "n1", range(8))
    until(lambda: _states(cluster, jobs)["RUNNING"] == 2, "two to run")
    time.sleep(1.5)
    assert _states(cluster, jobs) == {"RUNNING": 2, "PENDING": 1}
    cluster.run("scancel", *jobs)
    _over(cluster, jobs)


def test_a_request_for_gpus_becomes_slots_once(cluster: SlurmCluster) -> None:
    """Traps 2 and 3: gpu is counted nowhere, slots are set once, so nothing adds up or leaks."""
    job = _submit(cluster, "sleep 30", "--gres=gpu:2")
    cluster.place(job, "n3", [4, 6])
    until(lambda: _states(cluster, [job])["RUNNING"] == 1, "it to run")
    assert cluster.jobs()[int(job)]["gres_detail"] == ["slot:g4(CNT:1),slot:g6(CNT:1)"]
    assert cluster.slots_used("n3") == {index: int(index in (4, 6)) for index in range(8)}
    assert cluster.gres_used("n3").startswith("gpu:0")
    cluster.run("scancel", job)
    _over(cluster, [job])
    assert set(cluster.slots_used("n3").values()) == {0}


def test_shards_are_not_configured_beside_gpus(cluster: SlurmCluster) -> None:
    """Trap 2: a node that has both gives the same GPU out twice."""
    shown = cluster.run("scontrol", "show", "config").stdout
    assert re.search(r"^GresTypes\s*= gpu,slot$", shown, re.MULTILINE)


def test_a_job_ends_with_its_own_exit_code(cluster: SlurmCluster) -> None:
    """A TaskProlog that does not end with 0 would make it 1:0."""
    job = _submit(cluster, "exit 3", "--export=NONE")
    cluster.place(job, "n2", [0])
    _over(cluster, [job])
    assert "ExitCode=3:0" in cluster.run("scontrol", "show", "job", job).stdout


def test_each_node_of_a_job_sees_its_gpus(cluster: SlurmCluster, notes: Path) -> None:
    told = "$SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES"
    script = f"srun sh -c 'echo {told} > {notes}/$SLURMD_NODENAME'"
    asked = ["--gpus-per-node=2", "--nodes=2", "--ntasks=2", "--output", f"{notes}/said"]
    job = _submit(cluster, script, *asked)
    cluster.place(job, "n2,n3", [1, 7])
    _over(cluster, [job])
    seen = {path.name: path.read_text() for path in notes.iterdir()}
    assert seen == {"n2": "2 1,7\n", "n3": "2 1,7\n", "said": ""}


def test_a_name_does_not_choose_a_jobs_gpus(cluster: SlurmCluster, notes: Path) -> None:
    """Nor do settings of `squeue` in its environment hide them."""
    name = "x Nodes=n1 CPU_IDs=0 Mem=1 GRES=slot:g7(CNT:1) TresPerNode=gres:slot:g6:1"
    export = "--export=ALL,SQUEUE_USERS=root,SQUEUE_PARTITION=open"
    script = f"echo $CUDA_VISIBLE_DEVICES > {notes}/seen"
    job = _submit(cluster, script, f"--job-name={name}", f"--comment={name}", export)
    cluster.place(job, "n1", [2])
    _over(cluster, [job])
    assert (notes / "seen").read_text() == "2\n"


def test_tasks_of_an_array_are_placed_apart(cluster: SlurmCluster, notes: Path) -> None:
    array = _submit(
        cluster, f"echo $CUDA_VISIBLE_DEVICES > {notes}/$SLURM_ARRAY_TASK_ID", "--array=0-1"
    )
    for task, gpu in ((0, 3), (1, 5)):
        cluster.place(f"{array}_{task}", "n1", [gpu])
    until(lambda: len(list(notes.iterdir())) == 2, "both tasks")
    until(lambda: (notes / "0").read_text() + (notes / "1").read_text() == "3\n5\n", "their GPUs")


def test_an_operators_requeue_starts_again_soon(cluster: SlurmCluster) -> None:
    """Trap 5: `Requeue=0` unless an operator says so; then it waits for cred_expire, no longer."""
    job = _submit(cluster, "sleep 30", "--requeue")
    cluster.place(job, "n4", [2])
    until(lambda: _states(cluster, [job])["RUNNING"] == 1, "it to run")
    assert cluster.run("scontrol", "requeue", job, check=False).returncode != 0
    cluster.run("scontrol", "update", f"jobid={job}", "requeue=1")
    cluster.run("scontrol", "requeuehold", job)
    until(lambda: _states(cluster, [job])["PENDING"] == 1, "it to be held")
    # The node may change, the slots may not (trap 3).
    cluster.run("scontrol", "update", f"jobid={job}", "reqnodelist=n1")
    cluster.run("scontrol", "release", job)
    until(lambda: _states(cluster, [job])["RUNNING"] == 1, "it to run again", 25)
    assert cluster.slots_used("n1")[2] == 1
    cluster.run("scancel", job)
    _over(cluster, [job])


def test_held_jobs_can_be_given_back_to_slurm(cluster: SlurmCluster) -> None:
    """The way back: an operator gives a held job the GPUs of its AdminComment, and releases it."""
    job = _submit(cluster, "sleep 30", "--gpus=2")
    count = cluster.jobs()[int(job)]["admin_comment"].removeprefix("gpus=")
    cluster.run("scontrol", "update", f"jobid={job}", f"gres=gpu:{count}")
    cluster.run("scontrol", "release", job)
    until(lambda: _states(cluster, [job])["RUNNING"] == 1, "it to run")
    (detail,) = cluster.jobs()[int(job)]["gres_detail"]
    assert detail.startswith("gpu:2(IDX:")
    cluster.run("scancel", job)
    _over(cluster, [job])


def _submit(slurm: SlurmCluster, script: str, *asked: str) -> str:
    gpus = [] if any("gpu" in word for word in asked) else ["--gpus=1"]
    command = ["sbatch", "--parsable", *gpus, *QUIET, *asked, "--wrap", script]
    return slurm.run(*command, user="nobody").stdout.strip()


def _prolog(folder: Path, partition: str, shown: str | None) -> str:
    """What the TaskProlog prints where `squeue` says so; None = where there is no answer."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    fake = tools / "squeue"
    fake.write_text("#!/bin/sh\nexit 1\n" if shown is None else f"#!/bin/sh\necho '{shown}'\n")
    sleep = tools / "sleep"
    sleep.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    sleep.chmod(0o755)
    script = (DEPLOY / "pellucid-task-prolog").read_text().replace("/tmp/nvidia-mps", str(folder))
    done = subprocess.run(
        ["sh", "-c", script],
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "SLURM_JOB_PARTITION": partition,
            "SLURM_JOB_ID": "7",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_job_whose_slots_cannot_be_read_sees_no_gpu(tmp_path: Path) -> None:
    assert "export CUDA_VISIBLE_DEVICES=\n" in _prolog(tmp_path, "main", None)
    assert "export CUDA_VISIBLE_DEVICES=\n" in _prolog(tmp_path, "main", "7 N/A")


def test_jobs_of_other_partitions_keep_what_slurm_set(tmp_path: Path) -> None:
    assert _prolog(tmp_path, "open", "7 gres:slot:g1:1") == ""


def test_mps_is_told_of_where_it_is(tmp_path: Path) -> None:
    shown = "7 gres:slot:g10:1,gres:slot:g2:2"
    assert "MPS" not in _prolog(tmp_path, "main", shown)
    subprocess.run([shutil.which("mkfifo") or "mkfifo", tmp_path / "control"], check=True)
    told = _prolog(tmp_path, "main", shown)
    assert f"export CUDA_MPS_PIPE_DIRECTORY={tmp_path}\n" in told
    assert "export CUDA_VISIBLE_DEVICES=2,10\n" in told
