"""What every policy that hands out allocations must keep."""

from __future__ import annotations

import io
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.allocation.core import AllocationCore
from reproductions.allocation.engine import AllocationEngine
from reproductions.allocation.policy import AllocationPolicy, Capability
from reproductions.registry import ALLOCATING, build
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.reasons import sentence
from scheduler.policies import POLICIES
from scheduler.simulation.loop import Outcome
from scheduler.simulation.recorder import decision_table
from tests.reproductions.worlds import World, worlds

_FOREVER_S = 30 * 86_400.0


class Watched(AllocationCore):
    """A core that looks after every decision whether what is held can be."""

    def decide(self, now: float) -> list[Decision]:
        assert now < _FOREVER_S, "a job gets nowhere"
        decisions = super().decide(now)
        check_capacity(self)
        return decisions


VALUES = {"pollux": {"individuals": 16, "generations": 8}}


@pytest.mark.parametrize("name", sorted(ALLOCATING))
@settings(max_examples=8)
@given(data=st.data())
def test_a_policy_keeps_the_contract(name: str, data: st.DataObject) -> None:
    world = data.draw(worlds(ALLOCATING[name].needs))
    outcome, decisions, policy = played(name, world)
    check_every_job_ends_once(outcome, decisions)
    check_capabilities(decisions, policy, world)
    check_reasons(decisions)
    check_same(decisions, played(name, world)[1])
    check_causal(name, world, decisions)


def test_two_algorithms_never_share_a_name() -> None:
    assert not set(ALLOCATING) & set(POLICIES)


def played(name: str, world: World) -> tuple[Outcome, list[Decision], AllocationPolicy]:
    policy = build(name, VALUES.get(name))
    ground_truth = world.ground_truth(policy)
    core = Watched(world.nodes, policy, ground_truth)
    sunk: list[Decision] = []
    jobs = [job for job, _, _ in world.jobs]
    return AllocationEngine(core, jobs, ground_truth, sink=sunk.extend).run(), sunk, policy


def check_capacity(core: AllocationCore) -> None:
    """No GPU is held by two jobs that are no pair, and every mask is of the GPUs allocated."""
    holders: Counter[tuple[int, int]] = Counter()
    for job_id, allocation in core.assignment.items():
        masks = core.inventory.held[job_id]
        assert core.jobs[job_id].allocation == allocation
        for node, count in zip(allocation.nodes, allocation.gpus, strict=True):
            assert masks[node].bit_count() == count
            assert masks[node] < 1 << core.nodes[node].gpus
            for gpu in range(core.nodes[node].gpus):
                if masks[node] >> gpu & 1:
                    holders[node, gpu] += 1
        partner = allocation.partner
        if partner is not None:
            assert core.assignment[partner].partner == job_id
            assert core.inventory.held[partner] == masks
    paired = any(a.partner is not None for a in core.assignment.values())
    assert max(holders.values(), default=0) <= (2 if paired else 1)


def check_every_job_ends_once(outcome: Outcome, decisions: list[Decision]) -> None:
    refused = {d.job_id for d in decisions if d.action is Action.REFUSE}
    for result in outcome.jobs:
        job = result.job
        assert result.refused == (job.job_id in refused)
        if result.refused:
            assert result.end_time is None
            continue
        assert result.end_time is not None, f"{job.job_id} never ended"
        assert result.start_time is not None
        assert job.submit_time <= result.start_time <= result.end_time
        assert 0 <= result.ran_s <= result.jct_s + 1e-6


def check_capabilities(decisions: list[Decision], policy: AllocationPolicy, world: World) -> None:
    changes, held = policy.changes, {}
    for d in decisions:
        if d.action is Action.WAIT or d.action is Action.ENQUEUE:
            continue
        if d.action is Action.PREEMPT or d.action is Action.RESIZE:
            assert Capability.PREEMPT in changes, f"{policy.name} stopped a running job"
        if d.action is Action.PACK or d.partner is not None:
            assert Capability.SHARE in changes
        if d.batch is not None or d.action is Action.RETUNE:
            assert Capability.BATCH in changes
        if not d.nodes:
            continue
        if Capability.GPUS not in changes:
            assert sum(mask.bit_count() for mask in d.gpus) == d.need, "a gang is whole"
        types = {world.nodes[node].gpu_type for node in d.nodes}
        assert len(types) == 1, "a job is on one GPU type"
        if Capability.TYPE not in changes:
            assert held.setdefault(d.job_id, types) == types


def check_reasons(decisions: list[Decision]) -> None:
    """Every decision can be said in a sentence, and one about GPUs has numbers behind it."""
    for d in decisions:
        assert sentence(d)
        assert "None" not in sentence(d), sentence(d)
        if d.action in (Action.START, Action.RESIZE, Action.RETUNE, Action.PACK):
            assert d.evidence, f"{d.action} of {d.job_id} for {d.reason} says nothing of why"
        if d.action is Action.WAIT and d.reason is not Reason.NEXT_ROUND:
            assert d.evidence or d.blocker, f"{d.job_id} waits for {d.reason}, and that is all"


def check_same(first: list[Decision], second: list[Decision]) -> None:
    assert as_bytes(first) == as_bytes(second)


def check_causal(name: str, world: World, decisions: list[Decision]) -> None:
    """Leaving out the last submission changes no decision before it."""
    last = max(job.submit_time for job, _, _ in world.jobs)
    earlier = [job.submit_time for job, _, _ in world.jobs if job.submit_time < last]
    if not earlier:
        return
    without = played(name, world.until(max(earlier)))[1]
    before = [d for d in decisions if d.time < last]
    check_same(before, [d for d in without if d.time < last])


def as_bytes(decisions: list[Decision]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(decision_table(decisions), buffer)
    return buffer.getvalue()
