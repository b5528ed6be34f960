"""Applications and workloads of the Pollux artifact, and how jobs get on there."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import fmean

import pytest

from pipeline.errors import UserError
from reproductions.allocation.allocation import Batch
from reproductions.allocation.workload import AllocationWorkload
from reproductions.pollux.policy import first_batch
from reproductions.registry import build
from reproductions.workloads.pollux import applications, open_workload, recorded
from reproductions.workloads.pollux.applications import Application
from scheduler.core.decisions import Action, Decision
from scheduler.simulation.loop import Outcome


@pytest.fixture(scope="module")
def pollux(shared_data: Path) -> Path:
    return shared_data / "pollux"


@pytest.fixture(scope="module")
def apps(pollux: Path) -> dict[str, Application]:
    return applications(pollux / "traces")


def workload_6(pollux: Path, apps: dict[str, Application]) -> AllocationWorkload:
    return open_workload(pollux / "workloads" / "workload-6.csv", apps=apps)


def jcts(outcome: Outcome) -> dict[str, float]:
    return {r.job.job_id: r.jct_s for r in outcome.jobs}


# --- what was measured ----------------------------------------------------------------------------


def test_limits_are_those_that_were_measured(apps: dict[str, Application]) -> None:
    limits = {name: app.limits[:3] for name, app in apps.items()}
    assert limits["cifar10"] == (128, 4096, (32, 1024))
    assert limits["yolov3"] == (8, 512, (4, 8))
    assert limits["imagenet"] == (200, 12_800, (20, 200))
    assert {name: app.epochs for name, app in apps.items()} == {
        "bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50,
    }  # fmt: skip


def test_step_times_are_the_measured_ones_between_and_beyond(apps: dict[str, Application]) -> None:
    cifar10 = apps["cifar10"]
    for gpus, batch, times in list(cifar10.measurements())[::97]:
        assert cifar10.step_times(gpus, batch) == pytest.approx(times)
        rotated = (*gpus[1:], gpus[0])
        assert cifar10.step_times(rotated, batch) == pytest.approx(times)
    low, mid, high = (cifar10.step_times((1,), batch).step_s for batch in (45, 54, 64))
    assert low < mid < high
    # no placement of 40 GPUs was measured by itself
    assert 0 < cifar10.step_times((4,) * 10, 64).step_s < 10 * low


def test_a_batch_is_split_in_as_few_passes_as_fit(apps: dict[str, Application]) -> None:
    bert = apps["bert"]
    assert bert.split(384, 4) == Batch(12, 7)
    assert bert.split(384, 32) == Batch(12, 0)
    assert apps["cifar10"].split(2048, 1) == Batch(1024, 1)
    assert apps["cifar10"].split(256, 1) == Batch(128, 1)  # two passes, to see the noise
    assert first_batch(apps["cifar10"].limits, 1) == Batch(128, 0)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("placements.csv", None, "placements.csv: No such file"),
        ("placements.csv", "placement,local_bsz\n1,2\n", "no column step_time"),
        ("scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\nx,1,1,1,1\n",
         "could not convert string to float: 'x'"),
        ("validation-192.csv", "progress,iteration,metric,grad_sqr,grad_var\n1,1,1,1,1\n",
         "less than 2 epochs"),
    ],
)  # fmt: skip
def test_bad_measurements_are_named(
    pollux: Path, tmp_path: Path, file: str, content: str | None, says: str
) -> None:
    folder = shutil.copytree(pollux / "traces" / "bert", tmp_path / "bert")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(UserError, match=says):
        Application(folder)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("name,time,application\na,1,bert\n", "no column num_replicas"),
        ("name,time,application,num_replicas,batch_size\na,x,bert,1,12\n", "line 2: could not"),
        (
            "name,time,application,num_replicas,batch_size\na,1,bert,1,12\na,2,bert,1,12\n",
            "line 3: job a is there twice",
        ),
    ],
)
def test_bad_workloads_are_named(tmp_path: Path, rows: str, says: str) -> None:
    path = tmp_path / "workload.csv"
    path.write_text(rows)
    with pytest.raises(UserError, match=says):
        open_workload(path, apps={})


# --- how jobs get on ------------------------------------------------------------------------------


# --- the recorded runs ----------------------------------------------------------------------------


def test_tiresias_repeats_every_recorded_jct(pollux: Path, apps: dict[str, Application]) -> None:
    world = workload_6(pollux, apps)
    found = jcts(world.simulate(build("tiresias-las", world.settings.get("tiresias-las"))))
    assert found == recorded(pollux / "results-jobload", "tiresias")["workload-6"]


def test_pollux_starts_a_workload_as_recorded(pollux: Path, apps: dict[str, Application]) -> None:
    """The jobs that were done before a sixth one came.

    Over three seeds: the search is a random walk, and one walk differs by the last bit of an
    exponential between processors.
    """
    known = recorded(pollux / "results-jobload", "pollux")["workload-6"]
    world = workload_6(pollux, apps)
    until = world.jobs[5].submit_time
    done = [j.job_id for j in world.jobs[:5] if j.submit_time + known[j.job_id] < until]
    assert done == ["cifar10-0", "cifar10-1", "cifar10-3"]
    decisions: list[Decision] = []
    found: list[float] = []
    for seed in range(3):
        world = workload_6(pollux, apps)
        world.jobs = world.jobs[:5]
        ended = jcts(world.simulate(build("pollux", seed=seed), sink=decisions.extend))
        found += [ended[i] for i in done]
    assert fmean(found) == pytest.approx(fmean(known[i] for i in done), rel=0.1)
    batches = {d.batch for d in decisions if d.job_id == "cifar10-0" and d.batch is not None}
    assert len(batches) > 3, "the batch follows the gradient's noise"
    told = {name for d in decisions if d.action is Action.RESIZE for name, _ in d.evidence}
    assert {"speedup", "kept after a restart", "goodput"} <= told
    for job in world.jobs:
        widest = 0
        for d in decisions:
            if d.job_id == job.job_id and d.nodes:
                gpus = sum(mask.bit_count() for mask in d.gpus)
                assert gpus <= max(1, 2 * widest), "GPUs at most double"
                widest = max(widest, gpus)
        assert widest >= 4
