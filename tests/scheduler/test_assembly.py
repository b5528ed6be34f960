"""What a core is built from: the profiling partition as the policy has it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.assembly import CoreSpec, assemble, folded_note
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.estimates import ConstantEstimator
from scheduler.core.settings import ProfilingPartition


def spec_of(nodes: int, policy: str = "pellucid", **values: Any) -> CoreSpec:
    partition = ProfilingPartition(nodes={"a": 1}, **values)
    return CoreSpec.of(ClusterSpec({"a": nodes - 1, "b": 1}), policy, profiling=partition)


def profiling_nodes(spec: CoreSpec) -> list[int]:
    return sorted(assemble(spec, ConstantEstimator(60.0)).cluster.profiling.nodes())


@pytest.mark.parametrize(("nodes", "lent"), [(3, []), (4, []), (12, []), (13, [11]), (40, [38])])
def test_a_partition_that_is_too_large_a_share_stays_with_its_virtual_cluster(
    nodes: int, lent: list[int]
) -> None:
    spec = spec_of(nodes)
    assert profiling_nodes(spec) == lent
    assert spec.folded is (not lent) is (folded_note(spec) is not None)
    assert bool(spec.lent) is bool(lent)


def test_it_is_said_with_its_share() -> None:
    said = folded_note(spec_of(4))
    assert said is not None
    assert "1 node is named for profiling, 25% of the GPUs" in said
    assert ", 8.3% of the GPUs: too large" in (folded_note(spec_of(12)) or "")


@pytest.mark.parametrize(
    ("nodes", "why"),
    [({"a": 9}, "vc 'a' has 4 nodes and cannot lend 9"), ({"a": 2, "c": 1}, "no such vc")],
)
def test_more_nodes_than_there_are_is_an_error_and_no_large_share(
    nodes: dict[str, int], why: str
) -> None:
    partition = ProfilingPartition(nodes=nodes)
    spec = CoreSpec.of(ClusterSpec({"a": 4, "b": 1}), profiling=partition)
    assert folded_note(spec) is None
    with pytest.raises(ValueError, match=why):
        profiling_nodes(spec)


def test_who_profiles_every_job_first_keeps_its_partition_and_who_sets_its_share() -> None:
    assert profiling_nodes(spec_of(4, "lucid")) == [2]
    assert profiling_nodes(spec_of(4, largest_share=1)) == [2]
    assert profiling_nodes(spec_of(40, largest_share=0.01)) == []


def test_neither_is_one_node_more_lent_while_many_wait() -> None:
    stage = assemble(spec_of(4, scale_from="a"), ConstantEstimator(60.0)).profiling
    assert stage is not None
    assert stage.scaling is None  # type: ignore[attr-defined]


def test_the_share_is_of_gpus_and_the_last_nodes_are_lent() -> None:
    partition = ProfilingPartition(nodes={"a": 1})
    groups = {"a": [NodeGroup("", 2, 8), NodeGroup("", 1, 1)], "b": [NodeGroup("", 1, 8)]}
    spec = CoreSpec.of(ClusterSpec.mixed(groups), profiling=partition)
    assert not spec.folded  # 1 GPU of 25
