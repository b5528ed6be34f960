"""A cluster that changes under the running service: nothing is lost, no job on a node that is gone.

Submissions, ends, nodes that come, go, move and change their type, new settings, kills and new
epochs in any order; the log is folded anew from its start, and from snapshots.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scheduler.backends.events import Kind
from scheduler.backends.simulated import JobOutcome
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.audit import audit
from scheduler.service.log.followed import followed
from scheduler.service.log.record import Phase
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting

JOBS = [f"job{i}" for i in range(14)]
TYPES = "V100", "A100"
MIXED = ClusterSpec.mixed({"vc": [NodeGroup("V100", 1, 4), NodeGroup("V100", 2, 2)]})


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def a_node(vc: str, gpus: int, gpu_type: str = "V100") -> dict[str, Any]:
    """What the event of a node says that it has."""
    return {"vc": vc, "gpus": gpus, "gpu_type": gpu_type, "gpu_memory_mib": 24_576.0}


WAITS_S = [0.0, 5.0, 60.0]  # between two turns of the decider


class Living(RuleBasedStateMachine):
    submitted = Bundle("submitted")

    @initialize(
        policy=st.sampled_from(["fifo", "easy", "lucid", "pellucid"]),
        cluster=st.sampled_from([MIXED, ClusterSpec({"vc": 3}, 4, gpu_type="V100")]),
        lent=st.sampled_from([{}, {"vc": 1}]),
        snapshot_every=st.sampled_from([None, 1, 7]),
    )
    def begin(
        self, policy: str, cluster: ClusterSpec, lent: dict[str, int], snapshot_every: int | None
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store(f"sqlite:///{self.folder.name}/pellucid.db")
        prepare(self.store)
        self.outcomes: dict[str, JobOutcome] = {}
        self.desk = Desk(
            self.store,
            Path(self.folder.name),
            self.outcomes,
            policy=policy,
            cluster=cluster,
            partition=ProfilingPartition(nodes=lent, largest_share=1, limit_s=30.0, max_gpus=4),
            snapshot_every=snapshot_every,
        )
        self.ids = iter(JOBS)
        self.added = 0

    @rule(
        target=submitted,
        gpus=st.sampled_from([1, 2, 4, 6, 9]),
        seconds=st.sampled_from([0.0, 10.0, 50.0, 400.0]),
        share=st.booleans(),
        profile=st.booleans(),
    )
    def submit(self, gpus: int, seconds: float, share: bool, profile: bool) -> str | None:
        job_id = next(self.ids, None)
        if job_id is not None:
            self.outcomes[job_id] = lasting(seconds)
            self.desk.submit(job_id, gpus=gpus, share=share, profile=profile)
        return job_id

    @rule(job_id=submitted)
    def cancel(self, job_id: str | None) -> None:
        if job_id is not None:
            self.desk.cancel(job_id)

    @rule(job_id=submitted, priority=st.integers(-2, 2))
    def reprioritise(self, job_id: str | None, priority: int) -> None:
        if job_id is not None:
            self.desk.ask(Kind.PRIORITY_SET, job_id, priority=priority)

    @rule(job_id=submitted, operator=st.booleans())
    def hold(self, job_id: str | None, operator: bool) -> None:
        if job_id is not None:
            self.desk.ask(Kind.HELD, job_id, operator=operator)

    @rule(job_id=submitted, operator=st.booleans())
    def release(self, job_id: str | None, operator: bool) -> None:
        if job_id is not None:
            self.desk.ask(Kind.RELEASED, job_id, operator=operator)

    @rule(
        job_id=submitted,
        to=st.sampled_from(
            [
                {"gpus": 1}, {"gpus": 4}, {"gpus": 9}, {"share": False}, {"time_limit_s": 60.0},
                {"vc": "new"}, {"vc": "vc", "gpus": 2}, {"gpu_type": "A100"}, {"gpu_type": None},
                {"gpus": 0}, {"owner": "eve"}, {},
            ]
        ),
    )  # fmt: skip
    def change(self, job_id: str | None, to: dict[str, Any]) -> None:
        if job_id is not None:
            self.desk.ask(Kind.CHANGED, job_id, **to)

    @rule(again=st.booleans(), gpus=st.sampled_from([1, 4, 8]), vc=st.sampled_from(["vc", "new"]))
    def a_node_comes(self, again: bool, gpus: int, vc: str) -> None:
        self.added += not again
        self.desk.ask(Kind.NODE_ADDED, name=f"more{self.added}", **a_node(vc, gpus))

    @rule(node=st.integers(0, 6))
    def a_node_goes(self, node: int) -> None:
        self.desk.ask(Kind.NODE_REMOVED, node=node, reason="sold")

    @rule(
        node=st.integers(0, 6),
        vc=st.sampled_from(["vc", "new"]),
        gpus=st.sampled_from([2, 4]),
        gpu_type=st.sampled_from(["V100", "A100"]),
    )
    def a_node_changes(self, node: int, vc: str, gpus: int, gpu_type: str) -> None:
        self.desk.ask(Kind.NODE_CHANGED, node=node, **a_node(vc, gpus, gpu_type))

    @rule(node=st.integers(0, 6), is_open=st.booleans())
    def drain_or_open(self, node: int, is_open: bool) -> None:
        self.desk.ask(Kind.NODE_SET, node=node, open=is_open, reason="fan")

    @rule(node=st.integers(0, 6), gpus=st.sets(st.integers(0, 8), max_size=3))
    def gpus_do_not_answer(self, node: int, gpus: set[int]) -> None:
        self.desk.ask(Kind.GPUS_CLOSED, node=node, closed={str(gpu): "lost" for gpu in gpus})

    @rule(
        changed=st.sampled_from(
            [
                {"ageing": 0.0},
                {"max_wait_s": 60.0},
                {"fairness": {"weight": 1.0}},
                {"sharing": {"max_gpus": 2}},
                {"nonsense": 1},
            ]
        )
    )
    def settings_change(self, changed: dict[str, Any]) -> None:
        self.desk.ask(Kind.SETTINGS_SET, settings=changed)

    @rule(node=st.integers(0, 6))
    def lose_node(self, node: int) -> None:
        self.desk.world.lose_node(node)

    @rule(wait_s=st.sampled_from(WAITS_S))
    def turn(self, wait_s: float) -> None:
        self.desk.turn(wait_s)

    @rule(upgraded=st.booleans(), released=st.booleans())
    def crash(self, upgraded: bool, released: bool) -> None:
        self.desk.restart(upgraded=upgraded, released=released)

    @precondition(lambda self: hasattr(self, "desk") and not self.desk.decider.state.waiting)
    @invariant()
    def gpus_are_held_by_those_who_have_them(self) -> None:
        state = self.desk.decider.state
        cluster, table = state.core.cluster, state.ledger.nodes.records
        cluster.validate()
        held = {r.job_id for r in state.ledger.records.values() if r.phase.holds_gpus}
        assert held == set(cluster.runs)
        assert {node: record.has for node, record in table.items()} == cluster.nodes
        for node, record in table.items():
            assert cluster.pool_of(node).is_open(node) is record.open
            assert (node in cluster.profiling) >= record.profiling
            closed = sum(1 << one.gpu for one in record.closed_gpus)
            assert cluster.pool_of(node).closed_alone.get(node, 0) == closed
        for run in cluster.runs.values():
            assert set(run.nodes) <= set(cluster.nodes)
        for record in state.ledger.records.values():
            if record.phase.over:
                continue
            assert state.core.waiting.is_held(record.job_id) is (record.hold is not None)
            assert state.core.jobs[record.job_id].job == record.submission.job()
            assert state.core.jobs[record.job_id].priority == record.priority
            assert record.submission.owner == "ann"
            if record.phase is Phase.HELD:
                queued = state.core.jobs[record.job_id]
                assert all(queued not in queue for queue in state.core.queues.values())

    @invariant()
    def the_world_sees_nothing_wrong(self) -> None:
        if hasattr(self, "desk"):
            assert self.desk.world.problems == []

    def a_new_epoch_would_go_on_with_the_same_jobs(self) -> None:
        core = self.desk.decider.state.core
        with self.store.reading() as connection:
            upto = self.store.last_seq_in(connection)
            anew = followed(connection, self.store, self.desk.bundle_store.find, upto).core
        assert set(anew.jobs) == set(core.jobs)
        for job_id in core.jobs:
            was, is_now = core.jobs[job_id], anew.jobs[job_id]
            assert (is_now.job, is_now.priority) == (was.job, was.priority)
            assert anew.waiting.is_held(job_id) is core.waiting.is_held(job_id)
            assert (is_now.profile, is_now.profiled) == (was.profile, was.profiled)
            # the log counts a hold from its event, the core from the pass that covers it
            assert abs(is_now.submit_time - was.submit_time) <= max(WAITS_S)

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.desk.turn()
        self.a_new_epoch_would_go_on_with_the_same_jobs()
        for node in range(20):
            self.desk.ask(Kind.NODE_SET, node=node, open=True)
            self.desk.ask(Kind.GPUS_CLOSED, node=node, closed={})
        for i in range(4):
            self.desk.ask(Kind.NODE_ADDED, name=f"last{i}", **a_node("vc", 8, TYPES[i % 2]))
        for job_id in self.outcomes:
            self.desk.ask(Kind.RELEASED, job_id, operator=True)
            self.desk.ask(Kind.CHANGED, job_id, vc="vc", gpu_type=None)
        self.desk.until_idle()
        with self.store.reading() as connection:
            phases = connection.exec_driver_sql("SELECT phase FROM jobs").scalars().all()
            upto = self.store.last_seq_in(connection)
            anew = followed(connection, self.store, self.desk.bundle_store.find, upto)
        assert all(Phase(phase).over for phase in phases)
        assert len(phases) == len(self.outcomes)
        state = self.desk.decider.state
        assert anew.core.cluster.nodes == state.core.cluster.nodes
        anew.core.cluster.validate()
        assert audit(self.store, self.desk.bundle_store.find, decide_again=True).divergences == []
        self.store.close()
        self.folder.cleanup()


Living.TestCase.settings = settings(
    max_examples=30, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
TestLiving = Living.TestCase


def test_no_node_is_given_the_number_of_one_that_is_gone(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path)
    desk.turn()
    for name, number in (("first", 2), ("second", 3)):
        desk.ask(Kind.NODE_ADDED, name=name, **a_node("vc", 2))
        desk.turn()
        assert desk.node(number).name == name
        desk.ask(Kind.NODE_REMOVED, node=number)
        desk.turn()
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean
