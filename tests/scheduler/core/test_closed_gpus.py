"""GPUs that are closed alone: the others of their node go on, and the core counts each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from features.job import Job, Profile
from features.schema import State
from reproductions.baselines.lucid import Lucid
from scheduler.core.capacity import capacity, counted, nodes_of
from scheduler.core.cluster import Cluster, ClusterSpec, Node
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.policy import Policy
from scheduler.core.rules import may_share, start_fault
from scheduler.explain.words import sentence_of
from scheduler.policies.easy import Easy
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.pellucid.policy import Pellucid

POLICIES: list[Callable[[], Policy]] = [Fifo, FifoSkip, Easy, Lucid, Pellucid]


class Constant(Estimator):
    """Every job lasts an hour."""

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(3600.0)


def a_core(policy: Policy, nodes: int = 1) -> Core:
    return Core(Cluster(ClusterSpec({"a": nodes}, 8)), policy, Constant())


def submitted(core: Core, job_id: str, gpus: int, now: float = 0.0) -> list[Decision]:
    core.submitted(Job(job_id, now, gpus, vc="a", time_limit_s=7200.0), now)
    return decided(core, now)


def decided(core: Core, now: float) -> list[Decision]:
    decisions = core.decide(now)
    core.cluster.validate()
    return decisions


def gpus_of(core: Core, job_id: str) -> list[tuple[int, int]]:
    run = core.cluster.runs[job_id]
    return list(zip(run.nodes, run.gpus, strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_other_gpus_of_the_node_go_on(policy: Callable[[], Policy]) -> None:
    """Lost while it is idle; no start is on it, and the job that needs it waits for it alone."""
    core = a_core(policy())
    core.nodes.close_alone(0, 0b1000)
    submitted(core, "seven", 7)
    assert gpus_of(core, "seven") == [(0, 0b1111_0111)]
    *_, waits = submitted(core, "eighth", 1, 1.0)
    assert waits.action is Action.WAIT
    core.nodes.close_alone(0, 0)
    decided(core, 2.0)
    assert gpus_of(core, "eighth") == [(0, 0b1000)]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_runs_there_goes_on_and_the_gpu_is_given_to_nobody_after_it(
    policy: Callable[[], Policy],
) -> None:
    core = a_core(policy())
    submitted(core, "one", 1)
    submitted(core, "two", 1, 1.0)
    [(_, lost)] = gpus_of(core, "one")
    core.nodes.close_alone(0, lost)
    decided(core, 2.0)
    assert set(core.cluster.runs) == {"one", "two"}
    core.ended("one", State.FAILED, 3.0, 3.0)
    submitted(core, "large", 8, 3.0)
    assert "large" not in core.cluster.runs
    core.ended("two", State.COMPLETED, 3.0, 4.0)
    decided(core, 4.0)
    assert "large" not in core.cluster.runs, "8 of 8 free, 7 of them open"
    core.nodes.close_alone(0, 0)
    decided(core, 5.0)
    assert gpus_of(core, "large") == [(0, 0b1111_1111)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_gang_over_it_goes_on_and_one_that_comes_goes_around_it(
    policy: Callable[[], Policy],
) -> None:
    core = a_core(policy(), nodes=2)
    submitted(core, "gang", 16)
    core.nodes.close_alone(1, 0b1)
    submitted(core, "fifteen", 15, 1.0)
    assert set(core.cluster.runs) == {"gang"}
    core.ended("gang", State.FAILED, 2.0, 2.0)
    decided(core, 2.0)
    assert gpus_of(core, "fifteen") == [(0, 0b1111_1111), (1, 0b1111_1110)]
    submitted(core, "again", 16, 3.0)
    core.ended("fifteen", State.COMPLETED, 2.0, 4.0)
    decided(core, 4.0)
    assert "again" not in core.cluster.runs
    assert core.jobs["again"].reason is Reason.NODE_DRAINED


def test_gpus_are_kept_on_what_is_left_of_a_node() -> None:
    """A gang of more than a node finds its rest beside the closed GPU when the runs are over."""
    core = a_core(Pellucid(), nodes=2)
    core.nodes.close_alone(1, 0b1)
    for number in range(3):
        submitted(core, f"small{number}", 5, float(number))
    assert len(core.cluster.runs) == 2
    submitted(core, "gang", 15, 3.0)
    for number in range(2):
        core.ended(f"small{number}", State.COMPLETED, 9.0, 10.0 + number)
    decided(core, 12.0)
    core.ended("small2", State.COMPLETED, 9.0, 20.0)
    decided(core, 20.0)
    assert "gang" in core.cluster.runs


def test_every_gpu_is_counted_once_and_the_sentence_says_how_many_are_closed() -> None:
    core = a_core(Fifo())
    submitted(core, "runs", 2)
    core.nodes.close_alone(0, 0b1000_0001)  # one that is busy, one that is not
    decisions = submitted(core, "large", 7, 1.0)
    there = capacity(core.cluster, core.cluster.pools["a"], core.jobs["large"].job)
    assert (there.limit, there.closed, there.used, there.free) == (8, 2, 1, 5)
    assert (there.holds, there.holds_opened) == (False, True)
    assert core.jobs["large"].reason is Reason.NODE_DRAINED
    assert "needs 7 GPUs; 2 of 8 are closed" in sentence_of(decisions[-1])
    by_list = counted(nodes_of(core.cluster), "a", 7, None)
    assert (by_list.closed, by_list.used, by_list.free) == (2, 1, 5)
    assert (by_list.holds, by_list.holds_opened) == (False, True)


def test_no_rule_lets_a_job_on_it() -> None:
    core = a_core(Fifo(), nodes=2)
    submitted(core, "runs", 2)
    core.nodes.close_alone(0, 0b101)
    pool, job = core.cluster.pools["a"], Job("new", 0.0, 2, vc="a")
    assert start_fault(core.cluster, pool, job, [(0, 0b1100)]) == "GPUs of node 0 are closed"
    assert start_fault(core.cluster, pool, job, [(0, 0b11000)]) == ""
    core.submitted(job, 1.0)
    new, run = core.jobs["new"], core.cluster.runs["runs"]
    new.profile = core.jobs["runs"].profile = Profile(10.0, 10.0, 100.0)
    obstacle = may_share(core.cluster, new, run, core.jobs["runs"])
    assert obstacle is not None
    assert obstacle.reason is Reason.NODE_DRAINED
    assert run not in core.cluster.open_to_partners("a", 2)
    core.nodes.close_alone(0, 0)
    assert may_share(core.cluster, new, run, core.jobs["runs"]) is None
    assert run in core.cluster.open_to_partners("a", 2)


def test_a_drain_and_a_move_of_the_node_leave_it_closed() -> None:
    core = a_core(Fifo(), nodes=2)
    core.nodes.close_alone(0, 0b1)
    core.nodes.set_open(0, False)
    assert core.cluster.pools["a"].free == 8
    core.nodes.set_open(0, True)
    assert core.cluster.pools["a"].free == 15
    core.nodes.change(0, Node("b", 8))
    decided(core, 1.0)
    assert core.cluster.pools["b"].free == 7
    assert core.cluster.pools["b"].closed_on(0) == 0b1
    core.nodes.open_wholly(0)
    assert core.cluster.pools["b"].free == 8


def test_gpus_a_node_has_not_are_left_out() -> None:
    core = a_core(Fifo())
    core.nodes.close_alone(0, 1 << 9 | 1)
    assert core.cluster.pools["a"].closed_on(0) == 1
