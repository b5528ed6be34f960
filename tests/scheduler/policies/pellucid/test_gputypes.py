"""Several types of GPU in one cluster: nodes, placement, rates, refusals, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path

import pytest

from benchmarks.worlds import openb
from features.job import Job
from models.bundle import Bundle
from models.bundle.gputypes import GpuTypeSpeed
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup, Run
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.policies.fifo import Fifo
from scheduler.policies.pellucid.gputypes import described_by_name
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.simulation.work import Work
from scheduler.testing.builders import Played, Sample, pellucid, play

SPEC = ClusterSpec.mixed(
    {"vc": [NodeGroup("fast", 1, 4), NodeGroup("slow", 2, 2), NodeGroup("slow", 1, 1)]}
)
# how fast jobs of a name run on the slow type; both run at 1 on the fast one
SLOW = {"stubborn": 0.1, "easy": 0.9}


class Table:
    """The truth, told to whoever asks."""

    def speed(self, job: Job, gpu_type: str) -> float:
        return 1.0 if gpu_type == "fast" else SLOW[job.name]

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        return self.speed(run.job, "fast" if run.nodes == (0,) else "slow")


def played(jobs: Sequence[Job], *, told: bool = True) -> Played:
    """Jobs of 600 s, on the fast type."""
    nature = Table()
    policy = pellucid(cluster=SPEC, type_speeds=nature if told else None, learns_speeds=False)
    samples = (Sample(job, Work(600.0)) for job in jobs)
    return play(policy, Cluster(SPEC), *samples, speed=nature)


def job(number: int, gpus: int = 1, name: str = "easy", at: float = 0.0, **more: object) -> Job:
    return Job(f"j{number}", at, gpus, "ada", "vc", name, **more)  # type: ignore[arg-type]


def test_a_gang_is_placed_within_one_group_of_like_nodes() -> None:
    pool = Cluster(SPEC).pools["vc"]
    assert pool.place(4, among=0b0110, per_node=2) == [(1, 0b11), (2, 0b11)]
    assert pool.place(4, among=0b0001, per_node=4) == [(0, 0b1111)]
    assert pool.place(2, among=0b1000, per_node=1) is None


def test_other_policies_refuse_a_mixed_cluster() -> None:
    with pytest.raises(ValueError, match="fifo needs GPUs of one type"):
        Core(Cluster(SPEC), Fifo())


def test_rates_are_those_of_the_type() -> None:
    found = played([job(0, 4, "stubborn"), job(1, 2, "easy")])
    assert found.result("j0").ran_s == pytest.approx(600.0)
    assert found.result("j1").ran_s == pytest.approx(600.0 / 0.9)


def test_the_gpu_type_a_job_requires_is_respected() -> None:
    jobs = [job(i, 1, "easy", gpu_type="slow") for i in range(8)]
    found = played([*jobs, job(9, 2, gpu_type="other"), job(10, 6)])
    nodes = [d.nodes for d in found.actions(Action.START)]
    assert len(nodes) == 8
    assert all(0 not in held for held in nodes)
    assert [d.reason for d in found.of("j9")] == [Reason.NO_MATCHING_GPU_TYPE]
    assert [d.reason for d in found.of("j10")] == [Reason.INVALID_REQUEST], "no type has 6"


def test_who_loses_least_takes_the_slow_gpus() -> None:
    """Four stubborn and four easy jobs at once, easy ones first in line."""
    jobs = [job(i, 1, "easy") for i in range(4)] + [job(4 + i, 1, "stubborn") for i in range(4)]
    told, blind = played(jobs), played(jobs, told=False)
    fast = {d.job_id for d in told.actions(Action.START) if d.nodes == (0,)}
    assert {"j4", "j5", "j6", "j7"} <= fast
    known, unknown = (sum(r.jct_s for r in one.outcome.jobs) for one in (told, blind))
    assert known < unknown


def test_a_start_records_the_speeds_and_costs_of_the_alternatives() -> None:
    (start,) = played([job(0, 1, "stubborn")]).actions(Action.START)
    evidence = dict(start.evidence)
    assert evidence["speed_on_fast"] == 1.0
    assert evidence["speed_on_slow"] == 0.1
    assert float(evidence["cost_on_slow_s"]) > float(evidence["cost_on_fast_s"])


def test_a_job_waits_for_gpus_on_which_it_is_expected_to_end_sooner() -> None:
    found = played([job(0, 4, "stubborn"), job(1, 1, "stubborn", at=550.0)])
    assert found.reasons("j1") == [Reason.FASTER_GPUS_SOON]
    assert found.result("j1").jct_s < 600.0 / 0.1


def test_openb_nodes_are_a_cluster(shared_data: Path) -> None:
    spec = openb.cluster(shared_data / "openb")
    by_type: dict[str, int] = {}
    for group in spec.groups_of("openb"):
        total = group.nodes * group.gpus_per_node
        by_type[group.gpu_type] = by_type.get(group.gpu_type, 0) + total
    assert spec.gpus == 6212
    assert by_type == {
        "G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2,
    }  # fmt: skip


def a_model() -> GpuTypeSpeed:
    """Twice as fast on "fast"; RNNs four times."""
    return GpuTypeSpeed(
        base={"slow": 0.0, "fast": log(2.0)},
        families={"RNN": {"fast": log(2.0)}},
        batch={"RNN": 5.0},
        batch_slope={"slow": 0.0, "fast": 0.0},
        gpus_slope={"slow": 0.0, "fast": 0.0},
    )


@pytest.mark.parametrize(
    ("said", "rnn", "other", "old"),
    [
        ({"counted_on": "slow"}, 4.0, 2.0, 1.0),
        ({"counted_on": "slow", "speeds": {"fast": 3.0, "slow": 1.0, "old": 0.5}}, 4.0, 2.0, 0.5),
        ({}, 1.0, 1.0, 1.0),  # nothing was asked of the bundle
        ({"counted_on": "unheard-of"}, 1.0, 1.0, 1.0),
    ],
)
def test_a_bundle_in_use_says_how_fast_a_job_runs_on_each_type(
    said: dict[str, object], rnn: float, other: float, old: float
) -> None:
    spec = ClusterSpec.mixed({"vc": [NodeGroup(name, 1, 2) for name in ("fast", "slow", "old")]})
    policy = Pellucid(PellucidSettings.model_validate({"gpu_types": said}), spec)
    policy.use(Bundle(gpu_types=a_model()))
    assert policy.types is not None
    speed = policy.types.speed
    assert speed(job(0, name="rnn-bs64"), "fast") == pytest.approx(rnn)
    assert speed(job(0, name="other"), "fast") == pytest.approx(other)
    assert speed(job(0, name="other"), "old") == old
    policy.use(Bundle())  # a bundle without such a model leaves what is believed as it was
    assert speed(job(0, name="other"), "fast") == pytest.approx(other)


def test_family_and_batch_size_are_read_off_a_name() -> None:
    describe = described_by_name(a_model())
    assert describe(job(0, name="train_RNN_bs=64_lr0.1")) == ("RNN", 64)
    assert describe(job(0, name="cnn")) == ("", None)
