"""Consolidated placement against a reference that follows the specification word by word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup, Pool
from scheduler.testing.builders import VC, cluster_of


def reference(free: list[int], gpus: int, per_node: int) -> list[tuple[int, int]] | None:
    """(node, GPUs taken there), or None. `free` holds the free GPUs of each node, in node order.

    Up to a node's worth: the fullest node that fits, ties by node order. A multiple of a node:
    that many wholly empty nodes. Otherwise: walk the nodes from most free to least; the whole
    nodes and then the remainder must be met at once by each node of the walk.
    """
    if gpus <= per_node:
        fitting = [node for node in range(len(free)) if free[node] >= gpus]
        return [(min(fitting, key=lambda n: (free[n], n)), gpus)] if fitting else None
    wanted = [per_node] * (gpus // per_node) + ([gpus % per_node] if gpus % per_node else [])
    walk = sorted(range(len(free)), key=lambda n: (-free[n], n))
    if len(walk) < len(wanted):
        return None
    chosen = list(zip(walk, wanted, strict=False))
    return chosen if all(free[node] >= want for node, want in chosen) else None


def a_pool(busy: list[int], per_node: int) -> Pool:
    """A pool whose nodes have the GPUs of the masks `busy` taken."""
    pool = Pool("pool", per_node)
    for node, mask in enumerate(busy):
        pool.add_node(node)
        pool.take([(node, mask)])
    return pool


@st.composite
def occupancies(draw: st.DrawFn) -> tuple[list[int], int]:
    per_node = draw(st.sampled_from([1, 2, 3, 8]))
    full = (1 << per_node) - 1
    masks = st.one_of(st.just(0), st.just(full), st.integers(0, full))
    return draw(st.lists(masks, max_size=9)), per_node


@settings(max_examples=200)
@given(occupancy=occupancies(), gpus=st.integers(1, 40))
def test_placement_is_that_of_the_specification(
    occupancy: tuple[list[int], int], gpus: int
) -> None:
    busy, per_node = occupancy
    pool = a_pool(busy, per_node)
    free = [per_node - mask.bit_count() for mask in busy]
    placement = pool.place(gpus)
    expected = reference(free, gpus, per_node)
    assert (placement is None) == (expected is None)
    if placement is None or expected is None:
        return
    assert sorted((node, mask.bit_count()) for node, mask in placement) == sorted(expected)
    assert all(not mask & busy[node] for node, mask in placement), "only free GPUs"
    assert len(placement) == -(-gpus // per_node), "the fewest nodes"


def test_gpus_of_a_node_are_taken_from_the_lowest() -> None:
    assert a_pool([0b0101], 8).place(3) == [(0, 0b11010)]


def test_a_busy_node_cannot_leave_and_a_node_cannot_come_twice() -> None:
    pool = a_pool([0b1], 8)
    with pytest.raises(ValueError, match="not idle"):
        pool.remove_node(0)
    with pytest.raises(ValueError, match="already in pool"):
        pool.add_node(0)


def test_gpus_that_are_held_are_not_given() -> None:
    pool = cluster_of(nodes=1, gpus=8).pools[VC]
    pool.reserve([(0, 0b1111)])
    assert pool.place(8) is None
    assert pool.place(4) == [(0, 0b1111_0000)]


@st.composite
def unlike_pools(draw: st.DrawFn) -> tuple[Pool, set[int]]:
    """A pool of nodes of several sizes, and which of them are drained or have closed GPUs."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
    groups = [NodeGroup("", 1, size) for size in sizes]
    pool = Cluster(ClusterSpec.mixed({VC: groups})).pools[VC]
    shut = draw(st.sets(st.integers(0, len(sizes) - 1)))
    for node in shut:
        pool.set_open(node, False)
    some = draw(st.sets(st.integers(0, len(sizes) - 1)))
    for node in some:
        pool.close_alone(node, draw(st.integers(1, (1 << sizes[node]) - 1)))
    return pool, shut | some


def test_no_node_holds_no_job() -> None:
    pool = cluster_of(nodes=2).pools["vc"]
    assert [pool.holds(1, among=among) for among in (0b00, 0b10)] == [False, True]


@settings(max_examples=300)
@given(pool_and_shut=unlike_pools(), gpus=st.integers(1, 40))
def test_a_pool_holds_what_it_would_place_if_it_were_idle(
    pool_and_shut: tuple[Pool, set[int]], gpus: int
) -> None:
    pool, shut = pool_and_shut
    holds, holds_opened = pool.holds(gpus), pool.holds(gpus, closed_too=True)
    assert holds is (pool.place(gpus) is not None)
    for node in shut:
        pool.set_open(node, True)
        pool.close_alone(node, 0)
    assert holds_opened is (pool.place(gpus) is not None)
