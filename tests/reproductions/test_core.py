"""The core of allocation policies: what a difference between assignments becomes."""

from __future__ import annotations

import pytest

from reproductions.allocation.allocation import (
    Allocation,
    Inventory,
    Node,
    Overcommitted,
)
from reproductions.allocation.core import AllocationCore, UnmetNeeds
from reproductions.allocation.nature import GangGroundTruth
from reproductions.allocation.policy import (
    Assignment,
    Capability,
    DecisionInput,
)
from reproductions.allocation.statistics import GRADIENT_NOISE
from reproductions.drf import Drf
from scheduler.core.decisions import Action, Reason
from scheduler.core.rules import PolicyViolation
from tests.reproductions.builders import Scripted, a_job, nodes_of, play

ONE = Allocation((0,), (1,))
TWO = Allocation((0,), (2,))


def test_start_resize_preempt_and_start_again() -> None:
    policy = Scripted({"a": ONE}, {"a": TWO}, {}, {"a": ONE})
    played = play(policy, nodes_of(2, 2), [a_job("a", at=10)], GangGroundTruth({"a": 600.0}))
    did = [(d.time, d.action) for d in played.of("a")]
    assert did == [
        (10, Action.ENQUEUE),
        (10, Action.WAIT),  # for the next round
        (60, Action.START),
        (120, Action.RESIZE),
        (180, Action.PREEMPT),
        (240, Action.START),
    ]
    # 60 s at rate 1, 60 s at rate 2, a round without, the rest at rate 1
    assert played.result("a").end_time == 240 + 600 - 60 - 120
    assert played.result("a").jct_s == 650
    assert played.outcome.busy_gpu_s == 60 + 120 + 420
    assert played.result("a").preemptions == 1
    assert played.result("a").resizes == 1


@pytest.mark.parametrize(
    ("changes", "script", "says"),
    [
        (set(), [{"a": TWO}], "may not resize"),
        ({Capability.GPUS}, [{"a": ONE}, {"a": TWO}], "may not take GPUs from running job a"),
        ({Capability.GPUS}, [{"a": Allocation((0,), (3,))}], "1 GPUs more than node 0 has"),
        ({Capability.GPUS}, [{"a": Allocation((0, 0), (1, 1))}], "the nodes"),
        ({Capability.GPUS}, [{"a": Allocation((0, 2), (1, 1))}], "the GPU types"),
        ({Capability.GPUS}, [{"a": Allocation((0,), (1,), partner="b")}], "may not share"),
        (set(Capability), [{"a": Allocation((0,), (1,), partner="b")}], "no pair"),
        ({Capability.PREEMPT}, [{"a": ONE}, {"a": Allocation((2,), (1,))}], "may not move"),
    ],
)
def test_what_was_not_declared_is_a_breach(
    changes: set[Capability], script: list[dict[str, Allocation | None]], says: str
) -> None:
    nodes = nodes_of(2, 2, 2, types=["T4", "T4", "V100"])
    with pytest.raises(PolicyViolation, match=says):
        play(Scripted(*script, changes=changes), nodes, [a_job("a")], GangGroundTruth({"a": 600.0}))


def test_a_missing_statistic_is_named() -> None:
    class Needy(Scripted):
        name = "needy"
        needs = (GRADIENT_NOISE,)

    with pytest.raises(UnmetNeeds, match="needy needs gradient statistics; this workload has none"):
        AllocationCore(nodes_of(2), Needy({}), GangGroundTruth({}))


def test_an_undeclared_statistic_is_not_shown() -> None:
    class Curious(Scripted):
        def allocate(self, snapshot: DecisionInput) -> Assignment:
            snapshot.jobs[0].report(GRADIENT_NOISE)
            return {}

    with pytest.raises(LookupError, match="did not declare"):
        play(Curious({}), nodes_of(2), [a_job("a")], GangGroundTruth({"a": 1.0}))


def test_jobs_that_can_never_run_are_refused_and_the_rest_goes_on() -> None:
    jobs = [a_job("large", gpus=9), a_job("unknown"), a_job("other", gpu_type="A100"), a_job("a")]
    ground_truth = GangGroundTruth({"a": 60.0, "large": 1.0, "other": 1.0})
    played = play(
        Scripted({"a": ONE}, changes=set()), nodes_of(2, 2, types=["T4"] * 2), jobs, ground_truth
    )
    refused = {d.job_id: d.reason for d in played.decisions if d.action is Action.REFUSE}
    assert refused == {
        "large": Reason.INVALID_REQUEST,
        "unknown": Reason.NO_STATISTICS,
        "other": Reason.NO_MATCHING_GPU_TYPE,
    }
    assert played.result("a").end_time == 60


def test_gpus_are_kept_where_they_can_be() -> None:
    inventory = Inventory([Node(0, 4), Node(1, 4)])
    inventory.assign({"a": Allocation((0,), (1,)), "b": Allocation((0,), (2,))})
    assert inventory.held == {"a": {0: 0b1}, "b": {0: 0b110}}
    inventory.assign({"b": Allocation((0, 1), (1, 1)), "c": Allocation((0,), (3,))})
    assert inventory.held == {"b": {0: 0b10, 1: 0b1}, "c": {0: 0b1101}}
    assert inventory.in_use == 5
    inventory.assign(
        {"b": Allocation((0,), (1,), partner="d"), "d": Allocation((0,), (1,), partner="b")}
    )
    assert inventory.held == {"b": {0: 0b10}, "d": {0: 0b10}}
    assert inventory.in_use == 1
    with pytest.raises(Overcommitted):
        inventory.assign({"a": Allocation((0,), (5,))})


def test_drf_fills_evenly() -> None:
    class Elastic(GangGroundTruth):
        offers = frozenset(Drf.needs)

        def report(self, statistic, job_id, now):  # type: ignore[no-untyped-def]
            return 2 if job_id == "small" else 8

    jobs = [a_job("small"), a_job("b"), a_job("c", at=30)]
    played = play(Drf(), nodes_of(4, 4), jobs, Elastic({"small": 300.0, "b": 3000, "c": 3000}))
    at_60 = {d.job_id: len(d.nodes) and sum(m.bit_count() for m in d.gpus) for d in played.decisions
             if d.time == 60}  # fmt: skip
    assert at_60 == {"b": 3, "c": 3}
    assert all(r.end_time is not None for r in played.outcome.jobs)
