"""Each node of a virtual cluster is counted once, by what keeps a job from it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.capacity import capacity, nodes_looked_at
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup
from scheduler.core.findings import NodesLookedAt
from scheduler.testing.builders import a_job, cluster_of

GPUS, NODES = 4, 5


@given(
    used=st.lists(st.integers(0, 15), min_size=NODES, max_size=NODES),
    held=st.lists(st.integers(0, 15), min_size=NODES, max_size=NODES),
    closed=st.lists(st.integers(0, 15), min_size=NODES, max_size=NODES),
    drained=st.sets(st.integers(0, NODES - 1)),
    asked=st.sampled_from([1, 2, 3, 4, 8, 12]),
)
def test_a_job_fits_where_as_many_nodes_would_do_as_it_takes(
    used: list[int], held: list[int], closed: list[int], drained: set[int], asked: int
) -> None:
    cluster = cluster_of(nodes=NODES, gpus=GPUS)
    pool = cluster.pools["vc"]
    for node in range(NODES):
        if used[node]:
            pool.take([(node, used[node])])
        pool.close_alone(node, closed[node])
        pool.set_open(node, node not in drained)
    pool.reserve([(node, mask) for node, mask in enumerate(held) if mask])
    found = nodes_looked_at(cluster, pool, a_job(gpus=asked).job)
    parts = found.other_type, found.closed, found.busy, found.kept, found.free
    assert sum(parts) == found.looked_at == NODES
    assert found.closed >= len(drained)
    assert (found.free >= -(-asked // GPUS)) == (pool.place(asked) is not None)
    if asked <= GPUS:
        assert (found.most_free >= asked) == (found.free > 0)
    for_it = nodes_looked_at(cluster, pool, a_job(gpus=asked).job, enumerate(held))
    assert for_it.kept == 0
    assert for_it.free == found.free + found.kept


def test_nodes_of_another_type_are_counted_apart() -> None:
    spec = ClusterSpec.mixed({"vc": [NodeGroup("a100", 2, 4), NodeGroup("h100", 1, 4)]})
    cluster = Cluster(spec)
    cluster.start(a_job("runs").job, "vc", [(0, 0b1)], 0.0)
    job = replace(a_job(gpus=4).job, gpu_type="a100")
    assert nodes_looked_at(cluster, cluster.pools["vc"], job) == NodesLookedAt(
        looked_at=3, other_type=1, busy=1, free=1, most_free=4
    )


MASKS = st.lists(st.integers(0, 15), min_size=NODES, max_size=NODES)


@given(MASKS, MASKS, MASKS, MASKS, st.sampled_from([None, "a100", "h100"]), st.integers(0, 2))
def test_each_gpu_is_counted_for_what_it_is(
    used: list[int],
    held: list[int],
    own: list[int],
    closed: list[int],
    gpu_type: str | None,
    lent: int,
) -> None:
    """Held against a count of one GPU after another."""
    groups = [NodeGroup("a100", 3, GPUS), NodeGroup("h100", 2, GPUS)]
    cluster = Cluster(ClusterSpec.mixed({"vc": groups}), {"vc": lent})
    pool, there = cluster.pools["vc"], range(NODES - lent)
    for node in there:
        if used[node]:
            pool.take([(node, used[node])])
        pool.close_alone(node, closed[node])
    pool.reserve([(node, held[node]) for node in there if held[node]])
    job = replace(a_job(gpus=1).job, gpu_type=gpu_type)
    found = capacity(cluster, pool, job, [(node, own[node]) for node in there])
    suits = [n for n in there if gpu_type in (None, "a100" if n < 3 else "h100")]
    gpus = [(node, 1 << i) for node in suits for i in range(GPUS)]
    are_open = [(node, gpu) for node, gpu in gpus if not closed[node] & gpu]
    free = [(node, gpu) for node, gpu in are_open if not used[node] & gpu]
    kept = [(node, gpu) for node, gpu in free if held[node] & gpu and not own[node] & gpu]
    assert (found.owned, found.lent) == (GPUS * NODES, GPUS * lent)
    assert (found.limit, found.open) == (len(gpus), len(are_open))
    assert (found.free, found.kept) == (len(free), len(kept))
    assert found.used == len(are_open) - len(free)
