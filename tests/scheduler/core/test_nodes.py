"""Nodes that come, go and change, and settings that change, while jobs wait and run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from features.job import Job
from features.schema import State
from reproductions.baselines.lucid import Lucid
from scheduler.core.cluster import Cluster, ClusterSpec, Node, NodeGroup
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.nodes import KnownJob
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage, Scaling
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.policies.pellucid.settings import PellucidSettings

POLICIES: list[Callable[[], Policy]] = [Fifo, FifoSkip, Easy, Lucid, Pellucid]


class Constant(Estimator):
    """Every job lasts an hour."""

    asked = 0

    def estimate(self, job: Job, now: float) -> Estimate:
        self.asked += 1
        return Estimate(3600.0)


def a_core(policy: Policy, *sizes: int, vc: str = "a", **more: object) -> Core:
    groups = [NodeGroup("V100", 1, gpus) for gpus in sizes]
    spec = ClusterSpec.mixed({vc: groups, "b": [NodeGroup("V100", 1, 8)]})
    return Core(Cluster(spec), policy, Constant(), **more)  # type: ignore[arg-type]


def a_full_core(policy: Policy, *sizes: int) -> Core:
    """A core in which a job has the 4 GPUs of a node."""
    core = a_core(policy, *sizes)
    core.submitted(a_job("runs", 4), 0.0)
    decide(core, 0.0)
    return core


def a_job(job_id: str, gpus: int = 1, vc: str = "a", **more: object) -> Job:
    return Job(job_id, 0.0, gpus, vc=vc, **more)  # type: ignore[arg-type]


def decide(core: Core, now: float) -> list[Decision]:
    decisions = core.decide(now)
    core.cluster.validate()
    return decisions


def shown(decisions: list[Decision], job_id: str) -> list[Reason]:
    return [d.reason for d in decisions if d.job_id == job_id]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_starts_on_a_node_that_comes(policy: Callable[[], Policy]) -> None:
    core = a_core(policy(), 4)
    for job in (a_job("one", 4), a_job("two", 4)):
        core.submitted(job, 0.0)
    decide(core, 0.0)
    assert set(core.cluster.runs) == {"one"}
    core.nodes.add(2, Node("a", 8, "V100"))
    decide(core, 1.0)
    assert core.cluster.runs["two"].nodes == (2,)
    core.submitted(a_job("large", 12), 2.0)
    assert Reason.INVALID_REQUEST not in shown(decide(core, 2.0), "large"), "12 GPUs are there now"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_leaves_when_its_jobs_are_over_and_takes_no_new_ones(
    policy: Callable[[], Policy],
) -> None:
    core = a_full_core(policy(), 4, 4)
    (node,) = core.cluster.runs["runs"].nodes
    core.nodes.change(node, None)
    for name in ("x", "y"):
        core.submitted(a_job(name, 4), 1.0)
    decided = decide(core, 1.0)
    assert Action.CHANGE_NODE not in [d.action for d in decided]
    assert [run.nodes for run in core.cluster.runs.values()] == [(node,), (1 - node,)]
    core.ended("runs", State.COMPLETED, 5.0, 5.0)
    decided = decide(core, 5.0)
    (gone,) = [d for d in decided if d.action is Action.CHANGE_NODE]
    assert (gone.nodes, gone.reason, gone.job_id) == ((node,), Reason.NODE_IDLE, "")
    assert node not in core.cluster.nodes
    assert "y" not in core.cluster.runs


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_that_can_never_start_any_more_are_named_and_nobody_waits_behind_them(
    policy: Callable[[], Policy],
) -> None:
    core = a_full_core(policy(), 4, 4)
    core.submitted(a_job("large", 8), 1.0)
    core.submitted(a_job("small", 4), 2.0)
    decide(core, 2.0)
    assert not core.waiting.never_starts("large")
    core.nodes.change(1, None)
    decided = decide(core, 3.0)
    assert core.waiting.never_starts("large")
    (lost,) = [d for d in decided if d.job_id == "large"]
    assert (lost.action, lost.reason, lost.limit) == (Action.WAIT, Reason.VC_TOO_SMALL, 4)
    core.ended("runs", State.COMPLETED, 5.0, 5.0)
    decide(core, 5.0)
    assert "small" in core.cluster.runs, "it does not wait behind one that cannot start"
    core.ended("small", State.COMPLETED, 5.0, 6.0)
    core.nodes.add(7, Node("a", 4, "V100"))
    decide(core, 7.0)
    assert core.cluster.runs["large"].nodes == (0, 7)


@pytest.mark.parametrize("all_at_once", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_waits_behind_one_taken_over_that_can_never_start(
    policy: Callable[[], Policy], all_at_once: bool
) -> None:
    core = a_core(policy(), 4)
    asked = [a_job("large", 8), a_job("small", 4)]
    if all_at_once:
        core.nodes.line_up([core.nodes.adopt_waiting(one, i, 1.0) for i, one in enumerate(asked)])
    else:
        for i, one in enumerate(asked):
            core.nodes.adopt(KnownJob(job=one, order=i, queued_before=True), 1.0)
    decided = decide(core, 1.0)
    assert shown(decided, "large") == [Reason.VC_TOO_SMALL]
    assert "small" in core.cluster.runs


def test_one_that_cannot_start_can_be_cancelled_or_given_a_priority() -> None:
    core = a_full_core(Pellucid(), 4)
    core.submitted(a_job("waits", 4), 0.0)
    decide(core, 0.0)
    core.nodes.change(0, None)
    decide(core, 1.0)
    core.waiting.set_priority("waits", 3)
    decide(core, 2.0)
    core.withdrawn("waits", 3.0)
    core.nodes.add(5, Node("a", 4, "V100"))
    assert shown(decide(core, 4.0), "waits") == [Reason.CANCELLED]
    assert set(core.cluster.runs) == {"runs"}


def test_a_node_moves_to_another_virtual_cluster_a_new_one_too() -> None:
    core = a_core(Fifo(), 4, 8)
    core.nodes.change(1, Node("c", 8, "V100"))
    decide(core, 0.0)
    assert core.cluster.spec.vcs == {"a": 1, "b": 1, "c": 1}
    core.submitted(a_job("there", 8, "c"), 1.0)
    core.submitted(a_job("here", 8, "a"), 1.0)
    assert shown(decide(core, 1.0), "here") == [Reason.INVALID_REQUEST]
    assert core.cluster.runs["there"].nodes == (1,)


def test_a_node_held_for_a_starving_job_may_leave() -> None:
    core = a_core(Pellucid(PellucidSettings(max_wait_s=100.0)), 4, 4, 4)
    for name in ("one", "two", "three"):
        core.submitted(a_job(name, 3), 0.0)
    decide(core, 0.0)
    core.submitted(a_job("starves", 8), 0.0)
    decide(core, 0.0)
    core.wake(200.0)
    assert Action.RESERVE in [d.action for d in decide(core, 200.0)]
    held = {node for node in (0, 1, 2) if core.cluster.pools["a"].reserved_on(node)}
    assert len(held) == 2
    for node in held:
        core.nodes.change(node, None)
    for name in ("one", "two", "three"):
        core.ended(name, State.COMPLETED, 5.0, 300.0)
    decide(core, 300.0)
    assert not held & set(core.cluster.nodes)
    assert shown(core._decisions, "starves") == []
    core.nodes.add(9, Node("a", 4, "V100"))
    decide(core, 301.0)
    assert len(core.cluster.runs["starves"].nodes) == 2


@pytest.mark.parametrize("scaling", [None, Scaling("a", grow_above=0)])
def test_a_partition_whose_nodes_leave_profiles_nobody_any_more(scaling: Scaling | None) -> None:
    spec = ClusterSpec({"a": 2}, 4)
    stage = ProfilingStage(scaling=scaling)
    core = Core(Cluster(spec, {"a": 1}), Lucid(), Constant(), profiling=stage)
    for name in ("one", "two"):
        core.submitted(a_job(name, 4), 0.0)
    decide(core, 0.0)
    core.nodes.change(1, None)
    decide(core, 1.0)
    assert core.cluster.runs["one"].profiling
    core.profile_ended("one", None, 200.0)
    decide(core, 200.0)
    assert 1 not in core.cluster.nodes
    running = "one" if scaling is None else "two"
    assert core.cluster.runs[running].profiling is (scaling is not None)


def test_settings_change_while_jobs_wait_and_what_was_estimated_stays() -> None:
    estimator = Constant()
    spec = ClusterSpec({"a": 1}, 8)  # one of them at a time, and no deep queue
    core = Core(Cluster(spec), Pellucid(PellucidSettings(ageing=0.0)), estimator)
    for i in range(3):
        core.submitted(Job(f"j{i}", -1000.0 * i, 5, vc="a", user="ada"), 0.0)
    decide(core, 0.0)
    before, asked = {q.job.job_id: q.key for q in core.queues["a"]}, estimator.asked
    core.use_policy(Pellucid(PellucidSettings(ageing=1.0)), 1.0)
    decide(core, 1.0)
    assert estimator.asked == asked
    assert [q.job.job_id for q in core.queues["a"]] == ["j2", "j1"]
    moved = {q.job.job_id for q in core.waiting.rekeyed()}
    assert moved == set(before), "the log is told their new keys"
    assert all(len({name for name, _ in q.evidence}) == len(q.evidence) for q in core.queues["a"])


def test_a_policy_for_one_type_refuses_a_mixed_cluster_and_types_are_followed() -> None:
    spec = ClusterSpec({"a": 1}, 4, gpu_type="V100")
    core = Core(Cluster(spec), Fifo(), Constant())
    core.submitted(a_job("wants", 2, gpu_type="V100"), 0.0)
    core.submitted(a_job("takes", 4), 0.0)
    decide(core, 0.0)
    core.submitted(a_job("waits", 2, gpu_type="V100"), 0.5)
    core.nodes.change(0, Node("a", 4, "A100"))
    decide(core, 1.0)
    core.ended("wants", State.COMPLETED, 1.0, 2.0)
    decide(core, 2.0)
    assert core.cluster.spec.has_type("A100")
    assert not core.cluster.spec.has_type("V100")
    assert shown(decide(core, 3.0), "waits") == []
    assert set(core.cluster.runs) == {"takes"}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_that_asks_for_another_type_while_it_waits_to_be_profiled_is_not_started(
    policy: Callable[[], Policy], held: bool
) -> None:
    """The stage sends it to its queue after the jobs there were looked through."""

    def events() -> Core:
        cluster = Cluster(ClusterSpec({"a": 3}, 4, gpu_type="V100"), {"a": 1})
        core = Core(cluster, policy(), Constant(), profiling=ProfilingStage(max_gpus=4))
        if taken is not None:
            core.following.begin(taken)
        core.submitted(a_job("wants", 1), 0.0)
        if held:
            core.waiting.hold("wants", 0.0)
        core.waiting.change(a_job("wants", 1, gpu_type="A100"), 0.0)
        if held:
            core.waiting.release("wants", 0.0)
        core.submitted(a_job("behind", 4, profile=False), 0.0)
        return core

    taken: list[Decision] | None = None
    core = events()
    taken = decide(core, 0.0)
    assert shown(taken, "wants")[-2:] == [Reason.PROFILING_SKIPPED, Reason.NO_MATCHING_GPU_TYPE]
    assert set(core.cluster.runs) == {"behind"}
    follows = events()
    follows.following.end(0.0)
    assert set(follows.cluster.runs) == {"behind"}
    assert follows.waiting.remember() == core.waiting.remember()
    assert follows.jobs["wants"].reason is core.jobs["wants"].reason
    for node in core.cluster.nodes:
        core.nodes.change(node, Node("a", 4, "A100"))
    core.ended("behind", State.COMPLETED, 1.0, 1.0)
    decide(core, 1.0)
    assert set(core.cluster.runs) == {"wants"}


@pytest.mark.parametrize("policy", POLICIES)
def test_jobs_wait_for_a_node_that_is_to_come_to_a_new_virtual_cluster(
    policy: Callable[[], Policy],
) -> None:
    core = a_full_core(policy(), 4)
    core.nodes.change(0, Node("new", 4, "V100"))
    core.submitted(a_job("early", 2, vc="new"), 1.0)
    assert shown(decide(core, 1.0), "early")[-1] is Reason.VC_TOO_SMALL
    core.nodes.set_open(0, True)  # it is called off
    core.submitted(a_job("late", 2, vc="new"), 2.0)
    assert shown(decide(core, 2.0), "late") == [Reason.INVALID_REQUEST]
    core.nodes.change(0, Node("new", 4, "V100"))
    core.ended("runs", State.COMPLETED, 10.0, 10.0)
    decide(core, 10.0)
    assert set(core.cluster.runs) == {"early"}


def test_a_queue_whose_keys_changed_is_told_once() -> None:
    core = a_full_core(Fifo(), 4)
    for name in ("x", "y"):
        core.submitted(a_job(name, 4), 1.0)
    decide(core, 1.0)
    list(core.waiting.rekeyed())
    assert list(core.waiting.rekeyed()) == []
    core.queues["a"].replace(list(core.queues["a"])[::-1])
    assert sorted(one.job.job_id for one in core.waiting.rekeyed()) == ["x", "y"]
    assert list(core.waiting.rekeyed()) == []
