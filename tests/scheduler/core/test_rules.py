"""Which two jobs may share GPUs: asked by policies, and enforced on those that do not ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from features.job import Profile
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.core.policy import Policy
from scheduler.core.rules import PolicyViolation
from scheduler.core.turn import Turn
from scheduler.testing.builders import Desk, a_job, cluster_of, truth

GIB = 1024.0


class FirstTry(Policy):
    """Packs whoever does not fit beside the oldest run, and asks nobody."""

    name = "first-try"
    packs = True

    def serve(self, turn: Turn) -> None:
        for queued in list(turn.queue):
            placement = turn.pool.place(queued.job.gpus)
            if placement is not None:
                turn.start(queued, placement)
            elif turn.alone(queued.job.gpus):
                turn.pack(queued, turn.alone(queued.job.gpus)[0])
            else:
                turn.wait(queued, turn.capacity_reason(queued))


class Roomy(FirstTry):
    memory_margin_mib = 4 * GIB


def a_pair(own_mib: float, other_mib: float, policy: Policy | None = None) -> Core:
    """A job that fills a GPU of 24 GiB, and one about to be packed beside it."""
    desk = Desk(policy or FirstTry(), cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    desk.core.known("runs").profile = Profile(50.0, 30.0, other_mib)
    desk.core.submitted(a_job("waits", at=1.0).job, 1.0)
    desk.core.known("waits").profile = Profile(50.0, 30.0, own_mib)
    return desk.core


def test_a_policy_that_packs_20_beside_20_gib_on_24_is_stopped() -> None:
    core = a_pair(20 * GIB, 20 * GIB)
    with pytest.raises(PolicyViolation, match="job waits beside job runs: MemoryGuard"):
        core.decide(1.0)
    assert core.cluster.runs["runs"].partner is None
    assert "waits" not in core.cluster.runs


def test_what_fits_is_packed_and_a_margin_is_kept() -> None:
    (packed,) = [d for d in a_pair(13 * GIB, 10 * GIB).decide(1.0) if d.action is Action.PACK]
    assert packed.partner == "runs"
    with pytest.raises(PolicyViolation, match="MemoryGuard"):
        a_pair(13 * GIB, 10 * GIB, Roomy()).decide(1.0)


@pytest.mark.parametrize("mib", [float("nan"), 24 * GIB])
def test_memory_that_was_not_read_does_not_fit(mib: float) -> None:
    with pytest.raises(PolicyViolation, match="MemoryGuard"):
        a_pair(mib, 1.0).decide(1.0)


def test_who_was_never_profiled_shares_with_nobody_unless_the_policy_predicts_it() -> None:
    core = a_pair(1.0, 1.0)
    core.known("waits").profile = None
    with pytest.raises(PolicyViolation, match="AwaitingProfile"):
        core.decide(1.0)
    core.known("waits").predicted_mib = 23 * GIB
    assert Turn(core, "vc", 1.0).may_share(core.known("waits"), core.cluster.runs["runs"]) is None


def newcomer_opted_out(core: Core) -> None:
    known = core.known("waits")
    known.job = replace(known.job, share=False)


def partner_opted_out(core: Core) -> None:
    run = core.cluster.runs["runs"]
    run.job = replace(run.job, share=False)


def being_profiled(core: Core) -> None:
    core.cluster.runs["runs"].profiling = True


def partnered(core: Core) -> None:
    core.submitted(a_job("third").job, 1.0)
    core.known("third").profile = Profile(50.0, 30.0, 1.0)
    Turn(core, "vc", 1.0).pack(core.known("third"), core.cluster.runs["runs"])


def typed(core: Core) -> None:
    known = core.known("waits")
    known.job = replace(known.job, gpu_type="other")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda core: None, None),
        (newcomer_opted_out, Reason.SHARING_OPTED_OUT),
        (partner_opted_out, Reason.SHARING_OPTED_OUT),
        (lambda core: core.set_node(0, False), Reason.NODE_DRAINED),
        (lambda core: core.cluster.pools["vc"].hold([(0, 1)]), Reason.RESERVED_FOR_STARVING_JOB),
        (being_profiled, Reason.AWAITING_PROFILE),
        (partnered, Reason.GPUS_BUSY),
        (typed, Reason.NO_MATCHING_GPU_TYPE),
    ],
    ids=["none", "newcomer", "partner", "drained", "held", "profiling", "partnered", "type"],
)
def test_each_rule_stops_a_pair_on_its_own(
    change: Callable[[Core], None], rule: Reason | None
) -> None:
    spec = ClusterSpec.mixed({"vc": [NodeGroup("this", 1, 1)]})
    core = Core(Cluster(spec), Typeless(), truth([]))
    core.submitted(a_job("runs").job, 0.0)
    core.decide(0.0)
    core.submitted(a_job("waits", at=1.0).job, 1.0)
    for job_id in ("runs", "waits"):
        core.known(job_id).profile = Profile(50.0, 30.0, 1.0)
    change(core)
    turn, run = Turn(core, "vc", 1.0), core.cluster.runs["runs"]
    assert turn.may_share(core.known("waits"), run) is rule
    if rule is not None:
        with pytest.raises(PolicyViolation):
            turn.pack(core.known("waits"), run)


class Typeless(FirstTry):
    mixes_types = True


def test_a_run_of_another_size_or_owner_takes_no_partner() -> None:
    desk = Desk(FirstTry(), cluster_of(nodes={"vc": 1, "two": 1}, gpus=2))
    desk.submit(a_job("runs", gpus=2), a_job("elsewhere", gpus=1, vc="two"))
    desk.core.submitted(a_job("waits", gpus=1, at=1.0).job, 1.0)
    for job_id in ("runs", "elsewhere", "waits"):
        desk.core.known(job_id).profile = Profile(50.0, 30.0, 1.0)
    turn = Turn(desk.core, "vc", 1.0)
    for job_id in ("runs", "elsewhere"):
        rule = turn.may_share(desk.core.known("waits"), desk.run(job_id))
        assert rule is Reason.GPUS_BUSY
