"""Who holds which GPU: examples, and a random walk against a model that keeps a plain table."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scheduler.core.cluster import Cluster, ClusterSpec, Node, NodeGroup, Run, part_of
from scheduler.testing.builders import Sample, a_job, cluster_of


def start(cluster: Cluster, sample: Sample, *, profiling: bool = False) -> Run:
    pool = cluster.profiling if profiling else cluster.pools[sample.job.vc]
    placement = pool.place(sample.job.gpus)
    assert placement is not None
    return cluster.start(sample.job, sample.job.vc, placement, 0.0, profiling=profiling)


def test_nodes_are_numbered_through_the_virtual_clusters() -> None:
    cluster = cluster_of(nodes={"a": 2, "b": 3}, profiling={"b": 1})
    assert list(cluster.node_vc.values()) == ["a", "a", "b", "b", "b"]
    assert list(cluster.pools["b"].nodes()) == [2, 3]
    assert list(cluster.profiling.nodes()) == [4], "a virtual cluster lends its last nodes"
    assert cluster.spec.gpus == 40


def test_a_third_job_a_profiled_one_or_a_wider_one_cannot_share() -> None:
    cluster = cluster_of(nodes=2, profiling=1)
    run = start(cluster, a_job(gpus=2))
    with pytest.raises(ValueError, match="wants 3 GPUs, its partner has 2"):
        cluster.pack(a_job(gpus=3).job, run, 0.0)
    cluster.pack(a_job(gpus=2).job, run, 0.0)
    with pytest.raises(ValueError, match="cannot take another partner"):
        cluster.pack(a_job(gpus=2).job, run, 0.0)
    profiled = start(cluster, a_job(gpus=2), profiling=True)
    with pytest.raises(ValueError, match="cannot take another partner"):
        cluster.pack(a_job(gpus=2).job, profiled, 0.0)
    cluster.validate()


def test_a_narrower_job_has_some_of_the_gpus_of_a_wider_one_until_it_ends() -> None:
    cluster = cluster_of(nodes=2)
    pool = cluster.pools["vc"]
    wide, narrow = a_job("wide", gpus=12), a_job("narrow", gpus=4)
    on = start(cluster, wide)
    assert part_of(on, 9) is None, "no node of it has so many"
    assert cluster.open_to_narrower("vc", 4) == [on]
    assert cluster.open_to_partners("vc", 4) == []
    beside = cluster.pack(narrow.job, on, 0.0)
    assert (beside.nodes, beside.gpus) == ((0,), (0b1111,))
    assert (pool.free, pool.shared) == (4, 4)
    assert cluster.open_to_narrower("vc", 4) == []
    again = Cluster(cluster.spec)
    again.restore(cluster.remember(), {"wide": wide.job, "narrow": narrow.job})
    for one in (cluster, again):
        one.validate()
        one.release("wide")
        one.validate()
        assert one.pools["vc"].free == 12, "what it did not share is free"
        assert one.open_to_narrower("vc", 2) == [one.runs["narrow"]]
        one.release("narrow")
        assert one.pools["vc"].free == 16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClusterSpec({"a": -1}), "vc 'a' has -1 nodes; it must be at least 0"),
        (lambda: ClusterSpec({"a": 1}, 0), "gpus_per_node is 0; it must be at least 1"),
        (lambda: Cluster(ClusterSpec({"a": 1}), {"a": 2}), "vc 'a' has 1 nodes and cannot lend 2"),
        (lambda: Cluster(ClusterSpec({"a": 1}), {"z": 1}), "no such vc .*: z"),
    ],
)
def test_a_wrong_cluster_is_refused_in_one_line(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()


def test_a_large_job_takes_the_largest_idle_nodes_first_where_sizes_differ() -> None:
    sizes = [4, 8, 2, 4]
    cluster = Cluster(ClusterSpec.mixed({"vc": [NodeGroup("", 1, gpus) for gpus in sizes]}))
    pool = cluster.pools["vc"]
    assert pool.place(8) == [(1, 255)]
    assert pool.place(3) == [(0, 7)], "the fullest node where it fits"
    assert pool.place(13) == [(1, 255), (0, 15), (3, 1)]
    assert pool.place(18) == [(1, 255), (0, 15), (3, 15), (2, 3)]
    assert pool.place(10, among=0b1101) == [(0, 15), (3, 15), (2, 3)], "on those that may be used"
    assert pool.place(12, among=0b1001) is None
    start(cluster, a_job(gpus=8))
    assert pool.place(6) is None, "up to the largest node's worth is never scattered"
    assert pool.place(9) == [(0, 15), (3, 15), (2, 1)]


def test_a_gang_has_the_memory_of_its_smallest_gpu() -> None:
    groups = [NodeGroup("", 1, 8, memory_mib) for memory_mib in (40_960.0, 16_384.0)]
    cluster = Cluster(ClusterSpec.mixed({"vc": groups}))
    assert cluster.gpu_memory_mib(start(cluster, a_job(gpus=16))) == 16_384.0


def test_nodes_come_and_go_and_the_shape_follows() -> None:
    cluster = cluster_of(nodes={"a": 1, "b": 1})
    cluster.add_node(2, Node("a", 4, "T4", 16_384.0))
    cluster.add_node(3, Node("new", 16, "T4"))
    assert cluster.spec.vcs == {"a": 2, "b": 1, "new": 1}
    assert cluster.spec.gpus == 8 + 4 + 8 + 16
    assert (cluster.spec.mixes_types, cluster.spec.has_type("t4")) == (True, True)
    with pytest.raises(ValueError, match="node 2 already"):
        cluster.add_node(2, Node("a", 4))
    run = start(cluster, a_job(gpus=8, vc="a"))
    with pytest.raises(ValueError, match="not idle"):
        cluster.remove_node(run.nodes[0])
    cluster.release(run.job.job_id)
    cluster.set_open(0, False)
    for node in (0, 1):
        cluster.remove_node(node)
    assert (cluster.spec.vcs, cluster.spec.mixes_types) == ({"a": 1, "b": 0, "new": 1}, False)
    assert cluster.pools["a"].place(8) is None
    cluster.validate()


class Walk(RuleBasedStateMachine):
    """Starts, packings, releases and loans in any order, while nodes come and go.

    The model is a plain table: the jobs on each GPU, and the pool each node is in.
    """

    @initialize(
        nodes=st.dictionaries(
            st.sampled_from("abc"), st.lists(st.sampled_from([1, 2, 4]), max_size=3), min_size=1
        ),
        alike=st.booleans(),
    )
    def begin(self, nodes: dict[str, list[int]], alike: bool) -> None:
        groups = {
            vc: [NodeGroup("", 1, 2 if alike else gpus) for gpus in sizes]
            for vc, sizes in nodes.items()
        }
        self.cluster = Cluster(ClusterSpec.mixed(groups))
        self.gpus_of = {node: has.gpus for node, has in self.cluster.nodes.items()}
        self.pool_of = dict(self.cluster.node_vc)
        self.on: dict[tuple[int, int], set[str]] = {
            (node, gpu): set() for node, gpus in self.gpus_of.items() for gpu in range(gpus)
        }
        self.open: dict[str, Run] = {}  # alone on their GPUs, and ready to share them
        self.closed: set[tuple[int, int]] = set()
        self.count = 0
        self.next_node = len(self.gpus_of)

    @rule(vc=st.sampled_from("abcd"), gpus=st.sampled_from([1, 2, 3, 8]))
    def a_node_comes(self, vc: str, gpus: int) -> None:
        node, self.next_node = self.next_node, self.next_node + 1
        self.cluster.add_node(node, Node(vc, gpus))
        self.gpus_of[node], self.pool_of[node] = gpus, vc
        self.on |= {(node, gpu): set() for gpu in range(gpus)}

    @precondition(lambda self: self.gpus_of)
    @rule(data=st.data(), drained=st.booleans())
    def a_node_goes(self, data: st.DataObject, drained: bool) -> None:
        """Only one on which nothing runs."""
        node = data.draw(st.sampled_from(sorted(self.gpus_of)))
        if any(self.on[node, gpu] for gpu in range(self.gpus_of[node])):
            with pytest.raises(ValueError, match="not idle"):
                self.cluster.remove_node(node)
            return
        if drained:
            self.cluster.set_open(node, False)
        self.cluster.remove_node(node)
        del self.pool_of[node]
        for gpu in range(self.gpus_of.pop(node)):
            del self.on[node, gpu]
            self.closed.discard((node, gpu))

    @precondition(lambda self: self.on)
    @rule(data=st.data())
    def gpus_are_closed_or_opened(self, data: st.DataObject) -> None:
        """What runs there goes on, and takes no partner meanwhile."""
        node = data.draw(st.sampled_from(sorted(self.gpus_of)))
        mask = data.draw(st.integers(0, (1 << self.gpus_of[node]) - 1))
        changed = mask ^ self.cluster.pool_of(node).closed_alone.get(node, 0)
        self.cluster.close_alone(node, mask)
        self.closed = {(n, g) for n, g in self.closed if n != node}
        self.closed |= {(node, gpu) for gpu in range(self.gpus_of[node]) if mask >> gpu & 1}
        for run in self.cluster.runs.values():
            if not any(n == node and changed >> g & 1 for n, g in held(run)):
                continue
            self.open.pop(run.job.job_id, None)
            if run.partner is None and not run.profiling and not self.is_closed(run):
                self.open[run.job.job_id] = run

    def is_closed(self, run: Run) -> bool:
        return not self.closed.isdisjoint(held(run))

    def new(self, gpus: int, vc: str) -> Sample:
        self.count += 1
        return a_job(f"j{self.count}", gpus=gpus, vc=vc)

    @rule(data=st.data(), gpus=st.integers(1, 12), profiling=st.booleans())
    def start(self, data: st.DataObject, gpus: int, profiling: bool) -> None:
        vc = data.draw(st.sampled_from(sorted(self.cluster.pools)))
        pool = self.cluster.profiling if profiling else self.cluster.pools[vc]
        placement = pool.place(gpus)
        if placement is None:
            return
        job = self.new(gpus, vc).job
        run = self.cluster.start(job, vc, placement, 0.0, profiling=profiling)
        for node, gpu in held(run):
            assert not self.on[node, gpu]
            assert self.pool_of[node] == ("profiling" if profiling else vc)
            self.on[node, gpu].add(job.job_id)
            assert (node, gpu) not in self.closed
        if not profiling:
            self.open[job.job_id] = run

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def pack(self, data: st.DataObject) -> None:
        partner = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        widest = max(mask.bit_count() for mask in partner.gpus)
        gpus = data.draw(st.integers(1, widest) | st.just(partner.job.gpus))
        job = self.new(gpus, partner.vc).job
        run = self.cluster.pack(job, partner, 0.0)
        for gpu in held(run):
            assert self.on[gpu] == {partner.job.job_id}
            self.on[gpu].add(job.job_id)

    @precondition(lambda self: self.cluster.runs)
    @rule(data=st.data(), survivor_open=st.booleans())
    def release(self, data: st.DataObject, survivor_open: bool) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.cluster.runs)))
        left = {other for jobs in self.on.values() if job_id in jobs for other in jobs} - {job_id}
        self.cluster.release(job_id, survivor_open=survivor_open)
        for jobs in self.on.values():
            jobs.discard(job_id)
        self.open.pop(job_id, None)
        for survivor in left:
            if survivor_open and not self.is_closed(self.cluster.runs[survivor]):
                self.open[survivor] = self.cluster.runs[survivor]

    @precondition(lambda self: self.on)
    @rule(data=st.data())
    def lend_or_give_back(self, data: st.DataObject) -> None:
        """Only an idle node moves; a busy one stays where it is."""
        node = data.draw(st.sampled_from(sorted(self.pool_of)))
        home = self.cluster.node_vc[node]
        lent = self.pool_of[node] == "profiling"
        move = self.cluster.give_back if lent else self.cluster.lend
        if any(self.on[node, gpu] for gpu in range(self.gpus_of[node])):
            with pytest.raises(ValueError, match="not idle"):
                move(node)
        else:
            move(node)
            self.pool_of[node] = home if lent else "profiling"

    @invariant()
    def agrees_with_the_table(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.cluster.validate()
        for name, pool in [*self.cluster.pools.items(), ("profiling", self.cluster.profiling)]:
            nodes = [n for n, where in self.pool_of.items() if where == name]
            assert sorted(pool.nodes()) == sorted(nodes)
            mine = [(n, g) for n in nodes for g in range(self.gpus_of[n])]
            free = {gpu for gpu in mine if not self.on[gpu]}
            assert pool.free == len(free - self.closed)
            assert pool.gpus == len(mine)
            assert free == {(n, g) for n, g in mine if pool.free_on(n) >> g & 1}
            opened = free - self.closed
            idle = [n for n in nodes if all((n, g) in opened for g in range(self.gpus_of[n]))]
            assert (pool.idle_nodes, [n for n in nodes if pool.is_idle(n)]) == (len(idle), idle)
        assert all(len(jobs) <= 2 for jobs in self.on.values())
        for (node, gpu), jobs in self.on.items():
            for job_id in jobs:
                run = self.cluster.runs[job_id]
                assert (node, gpu) in held(run)
                partner = run.partner
                shares = partner is not None and (node, gpu) in held(partner)
                beside = {partner.job.job_id} if partner is not None and shares else set()
                assert jobs - {job_id} == beside
        assert {r.job.job_id for runs in self.cluster.alone.values() for r in runs.values()} == set(
            self.open
        )


def held(run: Run) -> list[tuple[int, int]]:
    return [
        (node, gpu)
        for node, mask in zip(run.nodes, run.gpus, strict=True)
        for gpu in range(mask.bit_length())
        if mask >> gpu & 1
    ]


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=40, stateful_step_count=30)
