"""An ordinary cluster (`university/`: what Slurm 22.05.8 printed of `benchmarks.slurm.university`)
as it is read."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from features.job import Job
from scheduler.assembly import CoreSpec, assemble
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.explain.whatif.futures import Arrival, Beliefs, Believed, Draw, Future
from scheduler.slurm.read import parse
from scheduler.slurm.read.client import SlurmError
from scheduler.slurm.read.parse import Node, SlurmJob
from scheduler.slurm.read.shape import Shape
from scheduler.slurm.read.site import (
    QOS,
    config_of,
    partitions_of,
    qos_of,
    reservations_of,
    site_node,
)
from scheduler.slurm.read.snapshot import build_snapshot
from scheduler.slurm.twin.policy import Slurm as SlurmPolicy
from scheduler.slurm.twin.site import Limits, Site

SAID = Path(__file__).parent / "university"


@pytest.fixture(scope="module")
def nodes() -> list[Node]:
    return parse.nodes((SAID / "nodes.txt").read_text())


@pytest.fixture(scope="module")
def site(nodes: list[Node]) -> Site:
    config = config_of((SAID / "config.txt").read_text())
    parts = partitions_of((SAID / "partitions.txt").read_text())
    by_name = {part.name: part for part in parts}
    return Site({node.name: site_node(node) for node in nodes}, by_name, config=config)


@pytest.mark.parametrize(
    ("tres", "types"),
    [
        ("gpu:2080ti:8", {"2080ti": 8}),
        ("gres:gpu:2080ti", {"2080ti": 1}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:1g.10gb:7,gpu:a100:2", {"1g.10gb": 7, "a100": 2}),
        ("gres:gpu:tesla:4", {"tesla": 4}),
        ("cpu=4,mem=8G,gres/gpu=2,gres/gpu:a100_3g.20gb=2", {"a100_3g.20gb": 2}),
        ("gres/gpu=4,gres/gpu:a100=3", {"a100": 3, "": 1}),
        ("gres/gpu:3090=2", {"3090": 2}),
        ("cpu=4,gres/gpufs=2,license/gpu=1", None),
    ],
)
def test_every_name_of_a_gpu_type_is_read(tres: str, types: dict[str, int] | None) -> None:
    assert parse.gpu_types(tres) == types


def test_nodes_are_read_with_all_they_have(nodes: list[Node]) -> None:
    found = {node.name: node for node in nodes}
    assert found["n1"].types == (("2080ti", 8),)
    assert found["n4"].types == (("a100", 2), ("a100_3g.20gb", 2))
    assert (found["n3"].cpus, found["n3"].memory_mib, found["n3"].weight) == (32, 128_000.0, 20)
    assert found["n3"].features == ("ampere", "big")
    assert (found["n5"].gpus, found["n5"].features) == (0, ())
    assert not found["n6"].open
    assert found["n6"].reason.startswith("disk is broken")


def test_partitions_that_share_a_node_are_one_virtual_cluster(nodes: list[Node]) -> None:
    shape = Shape.followed(nodes)
    assert shape.spec.vcs == {"cpu+long+short": 6}
    assert shape.spec.gpus == 24
    assert [node.gpus for node in shape.spec.nodes()] == [8, 8, 4, 4, 0, 0]
    assert shape.vc_of("short,long") == "cpu+long+short"
    assert shape.vc_of("elsewhere") == ""


def test_partitions_may_be_named(nodes: list[Node]) -> None:
    shape = Shape.followed(nodes, partitions=["long", "cpu"])
    assert shape.spec.vcs == {"long": 3, "cpu": 2}
    assert shape.names == ("n2", "n3", "n4", "n5", "n6")
    joined = Shape.followed(nodes, partitions=["long", "cpu"], together=["cpu,long"])
    assert joined.spec.vcs == {"cpu+long": 5}
    with pytest.raises(SlurmError, match="no node is in partition gpu; there are cpu, long, short"):
        Shape.followed(nodes, partitions=["gpu"])


def test_a_reservation_is_read_and_what_a_partition_or_qos_leaves_out_is_as_in_slurm() -> None:
    (maint,) = reservations_of((SAID / "reservations.txt").read_text())
    assert (maint.name, maint.nodes, maint.users) == ("maint", {"n3"}, {"root"})
    assert maint.start == datetime(2026, 11, 22, 17, 46, 46).timestamp()
    assert maint.end == maint.start + 3600.0
    (plain,) = partitions_of("PartitionName=p Nodes=n1")
    assert (plain.tier, plain.job_factor) == (1, 1)
    found = qos_of("plain" + "|" * (len(QOS) - 1))["plain"]
    assert (found.priority, found.factor, found.limits) == (0, 1.0, Limits())


def test_percentages_of_a_cluster_are_not_taken_for_amounts() -> None:
    """As 26.05 shows them: with 512 CPUs in the cluster, 50 are 256 to slurmctld."""
    said = {"Name": "q", "Flags": "Relative", "GrpTRES": "cpu=50,gres/gpu=25"}
    found = qos_of("|".join(said.get(column, "") for column in QOS))["q"]
    assert (found.limits, found.not_modelled) == (Limits(), ("Flags=Relative",))


def test_minutes_of_a_user_in_a_qos_are_read_and_their_jobs_have_no_forecast() -> None:
    said = {"Name": "q", "MaxTRESRunMinsPU": "cpu=60", "MaxTRESRunMinsPA": "gres/gpu=9"}
    found = qos_of("|".join(said.get(column, "") for column in QOS))["q"]
    assert found.limits == Limits(run_mins_pu={"cpu": 60.0}, run_mins_pa={"gres/gpu": 9.0})
    assert found.not_modelled == ("MaxTRESRunMinsPA=gres/gpu=9", "MaxTRESRunMinsPU=cpu=60")


@pytest.mark.parametrize(
    "asked",
    [
        {"gpu_types": (("2080ti", 2),)},
        {"gpu_type": "2080ti"},  # --gpus-per-socket, of which no column tells
        {"gpu_types": (("", 1),)},  # --gpus-per-task of more tasks than are told
    ],
)
def test_a_job_is_given_as_many_gpus_as_slurm_counts(
    nodes: list[Node], site: Site, asked: dict[str, Any]
) -> None:
    shape = Shape.followed(nodes)
    job = SlurmJob("1", "PENDING", "ada", "", "short", 0.0, priority=9, gpus=2, cpus=2, **asked)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Estimator())
    snapshot = build_snapshot(core, shape, [job], nodes, 10.0, by_slurm=True, site=site)
    assert [(d.job_id, d.gpus[0].bit_count()) for d in snapshot.decisions] == [("1", 2)]


@pytest.mark.parametrize(
    ("kind", "others", "gpu", "free"),
    [("a100_3g.20gb", 3, 0b1000, (0, 0)), ("", 2, 0b100, (0, 1))],
    ids=["its type is known", "what others left"],
)
def test_a_job_whose_gpus_slurm_did_not_number_has_those_of_its_type(
    nodes: list[Node], site: Site, kind: str, others: int, gpu: int, free: tuple[int, int]
) -> None:
    """One that ended while it was asked about: it was put on GPUs of the node's first type, which
    others had, and the next pass started a job on GPUs that were not there."""
    ends = SlurmJob(
        "1", "COMPLETING", "ada", "", "short", 0.0, start=1.0, gpus=1, cpus=1, nodes=("n4",),
        gpu_types=((kind, 1),),
    )  # fmt: skip
    runs = SlurmJob(
        "2", "RUNNING", "ada", "", "short", 1.0, start=2.0, gpus=others, cpus=1, nodes=("n4",),
        held_gpus=(tuple(range(others)),), gpu_types=(("", others),),
    )  # fmt: skip
    shape = Shape.followed(nodes)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Estimator())
    snapshot = build_snapshot(core, shape, [ends, runs], nodes, 10.0, by_slurm=True, site=site)
    assert not snapshot.left_out
    assert core.cluster.runs["1"].gpus == (gpu,)
    policy = core.policy
    assert isinstance(policy, SlurmPolicy)
    assert policy.ask(core.jobs["1"].job).shares[0].gpus == ((kind or "a100", 1),)
    assert policy._capacity.free["n4"].gpus == {"a100": free[0], "a100_3g.20gb": free[1]}


@pytest.mark.parametrize("policy", ["slurm", "pellucid"])
def test_a_job_of_nodes_with_and_without_gpus_holds_those_that_there_are(
    nodes: list[Node], site: Site, policy: str
) -> None:
    shape = Shape.followed(nodes)
    core = assemble(CoreSpec.of(shape.spec, policy), LiveEstimator())
    everything = ((*range(8),), (*range(8),), (*range(4),), (*range(4),), (), ())
    job = SlurmJob(
        "1", "RUNNING", "ada", "", "short", 0.0, gpus=24, nodes=tuple(f"n{i}" for i in range(1, 7)),
        num_nodes=6, held_gpus=everything, cpus=136, tres=(("cpu", 136.0),),
    )  # fmt: skip
    known = site if policy == "slurm" else None
    snapshot = build_snapshot(core, shape, [job], nodes, 100.0, site=known)
    assert not snapshot.left_out
    assert not any(core.cluster.pool_of(n).free_on(n) for n in range(6))


def test_a_job_may_come_again_on_a_node_of_several_types(nodes: list[Node], site: Site) -> None:
    """What futures expect has the type that it asked for, which the node has among others."""
    shape = Shape.followed(nodes)
    core = assemble(CoreSpec.of(shape.spec, "slurm"), Believed({}))
    build_snapshot(core, shape, [], nodes, 10.0, by_slurm=True, site=site)
    kind, vc = "a100_3g.20gb", next(iter(shape.spec.vcs))
    again = Arrival(5.0, Job("7", 0.0, 1, "ada", vc, gpu_type=kind), None, None, 60.0)
    beliefs = Beliefs(10.0, {}, {}, [{vc: [again]}], 3600.0, [])
    future = Future(core, beliefs, Draw(beliefs, 0, 0), ["none"], horizon_s=3000.0).look()
    result = future.results["7~0"]
    assert result.end_time == (result.start_time or 0.0) + 60.0
