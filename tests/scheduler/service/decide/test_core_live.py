"""What a live service asks of the core beyond simulation: leaving, priority, drained nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from features.job import Job, Profile
from features.schema import State
from reproductions.baselines.lucid import Lucid
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.core.profiling import ProfilingStage
from scheduler.explain.reasons import sentence
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import pellucid
from tests.reproductions.baselines.lucid import lucid

LIGHT = Profile(10.0, 5.0, 1000.0, False)


class Constant(Estimator):
    """Every job lasts so long."""

    def __init__(self, seconds: float = 3600.0):
        super().__init__()
        self.seconds = seconds

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(self.seconds)


def a_core(policy: Policy, nodes: int = 2, *, vcs: int = 1, **more: object) -> Core:
    spec = ClusterSpec({f"vc{i}": nodes for i in range(vcs)}, 4, gpu_type="V100")
    return Core(Cluster(spec), policy, Constant(), **more)  # type: ignore[arg-type]


def a_job(job_id: str, gpus: int = 1, **more: object) -> Job:
    return Job(job_id, 0.0, gpus, vc="vc0", **more)  # type: ignore[arg-type]


def submit(core: Core, now: float, *jobs: Job, priority: int = 0) -> list[tuple[str, Action]]:
    for job in jobs:
        core.submitted(job, now, priority=priority)
    return taken(core, now)


def taken(core: Core, now: float) -> list[tuple[str, Action]]:
    """Decisions, enqueueing apart."""
    decisions = core.decide(now)
    core.cluster.validate()
    return [(d.job_id, d.action) for d in decisions if d.action is not Action.ENQUEUE]


POLICIES = [Fifo, FifoSkip, lambda: Lucid(), lambda: Pellucid()]


@pytest.mark.parametrize("policy", POLICIES)
class TestLeaving:
    def test_the_next_in_line_moves_up(self, policy: type[Policy]) -> None:
        core = a_core(policy())
        submit(core, 0.0, a_job("a", 4), a_job("b", 8), a_job("c", 4))
        core.ended("a", State.COMPLETED, 5.0, 5.0) if "c" in core.cluster.runs else None
        core.withdrawn("b", 6.0)
        taken(core, 6.0)
        assert "c" in core.cluster.runs
        assert "b" not in core.jobs
        core.ended("c", State.COMPLETED, 1.0, 7.0)
        submit(core, 7.0, a_job("b", 4))  # it can come again
        assert "b" in core.cluster.runs

    def test_gpus_that_were_given_in_vain_come_back(self, policy: type[Policy]) -> None:
        core = a_core(policy())
        submit(core, 0.0, a_job("a", 8), a_job("b", 8))
        core.withdrawn("a", 1.0, Reason.NOT_STARTED)
        decisions = core.decide(1.0)
        assert (decisions[0].action, decisions[0].reason) == (Action.CANCEL, Reason.NOT_STARTED)
        assert "b" in core.cluster.runs


def test_one_that_waits_for_its_profile_can_leave() -> None:
    core = a_core(Lucid(), profiling=ProfilingStage())
    core.cluster.lend(1)
    submit(core, 0.0, a_job("a", 4), a_job("b", 4), a_job("c", 4))
    core.withdrawn("b", 1.0)
    core.profile_ended("a", LIGHT, 2.0)
    assert ("c", Action.PROFILE) in taken(core, 2.0)


class TestPriority:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_higher_goes_first(self, policy: type[Policy]) -> None:
        core = a_core(policy())
        submit(core, 0.0, a_job("a", 8))
        submit(core, 1.0, a_job("plain", 8))
        submit(core, 2.0, a_job("urgent", 8), priority=3)
        submit(core, 3.0, a_job("later", 8))
        core.waiting.set_priority("later", 9)
        order = []
        for now, running in ((10.0, "a"), (20.0, "later"), (30.0, "urgent"), (40.0, "plain")):
            core.ended(running, State.COMPLETED, 1.0, now)
            order += [job for job, action in taken(core, now) if action is Action.START]
        assert order == ["later", "urgent", "plain"]

    def test_a_job_past_its_bound_is_still_served(self) -> None:
        """Urgent jobs go first, and do not keep what is reserved from its holder."""
        core = a_core(pellucid(max_wait_s=10.0), nodes=2)
        submit(core, 0.0, a_job("a", 4), a_job("b", 2))
        submit(core, 1.0, a_job("late", 4))
        submit(core, 15.0, replace(a_job("urgent", 8), submit_time=15.0), priority=5)
        core.wake(20.0)
        taken(core, 20.0)
        core.ended("b", State.COMPLETED, 21.0, 21.0)
        assert ("late", Action.START) in taken(core, 21.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_new_starts_on_a_drained_node(policy: type[Policy]) -> None:
    core = a_core(policy())
    submit(core, 0.0, a_job("a", 2))
    core.nodes.set_open(0, False)
    core.nodes.set_open(0, False)
    assert core.cluster.pools["vc0"].free == 4
    submit(core, 1.0, a_job("b", 2), a_job("c", 4))
    assert core.cluster.runs["b"].nodes == (1,)
    assert "c" not in core.cluster.runs
    core.ended("a", State.COMPLETED, 2.0, 2.0)
    taken(core, 2.0)
    assert "c" not in core.cluster.runs
    core.nodes.set_open(0, True)
    taken(core, 3.0)
    assert core.cluster.runs["c"].nodes == (0,)


def test_nobody_is_packed_on_a_drained_node() -> None:
    pair_predictor = TablePairPredictor({"a": 0, "b": 0})
    core = a_core(lucid(pair_predictor), nodes=1)
    submit(core, 0.0, a_job("a", 4))
    core.observed("a", LIGHT, 1.0)
    core.nodes.set_open(0, False)
    core.submitted(a_job("b", 4), 2.0)
    core.jobs["b"].profile = LIGHT
    assert taken(core, 2.0) == [("b", Action.WAIT)]
    core.nodes.set_open(0, True)
    assert taken(core, 3.0) == [("b", Action.PACK)]


def test_a_reservation_moves_away_from_a_drained_node() -> None:
    core = a_core(pellucid(max_wait_s=10.0), nodes=2)
    submit(core, 0.0, a_job("a", 4), a_job("b", 4))
    taken(core, 0.0)
    submit(core, 1.0, a_job("late", 2))
    core.wake(20.0)
    taken(core, 20.0)
    [held] = [n for n in (0, 1) if core.cluster.pools["vc0"].reserved_on(n)]
    core.nodes.set_open(held, False)
    taken(core, 21.0)
    other = 1 - held
    assert core.cluster.pools["vc0"].reserved_on(other)
    core.ended("ab"[other], State.COMPLETED, 30.0, 30.0)
    assert ("late", Action.START) in taken(core, 30.0)


@pytest.mark.parametrize("policy", [lucid, pellucid])
def test_who_opted_out_of_sharing_joins_nobody_and_nobody_joins_it(
    policy: Callable[..., Policy],
) -> None:
    pair_predictor = TablePairPredictor(dict.fromkeys("abc", 0))
    core = a_core(policy(pair_predictor), nodes=1)
    submit(core, 0.0, a_job("a", 4))
    core.observed("a", LIGHT, 1.0)
    core.submitted(a_job("b", 4, share=False), 2.0)
    core.jobs["b"].profile = LIGHT
    [wait] = [d for d in core.decide(2.0) if d.action is Action.WAIT]
    assert (wait.job_id, wait.reason) == ("b", Reason.SHARING_OPTED_OUT)
    assert "of its own, as its owner asked" in sentence(wait)
    core.submitted(a_job("c", 4), 3.0)
    core.jobs["c"].profile = LIGHT
    assert ("c", Action.PACK) in taken(core, 3.0)
    core = a_core(policy(pair_predictor), nodes=1)
    submit(core, 0.0, a_job("a", 4, share=False))
    core.observed("a", LIGHT, 1.0)
    core.submitted(a_job("b", 4), 2.0)
    core.jobs["b"].profile = LIGHT
    assert taken(core, 2.0) == [("b", Action.WAIT)]
