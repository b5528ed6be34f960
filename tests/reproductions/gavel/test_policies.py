"""Gavel's policies over the engine, in small worlds."""

from __future__ import annotations

import numpy as np
import pytest

from features.job import Job
from reproductions.allocation.allocation import Node
from reproductions.allocation.throughputs import (
    Kind,
    StepWork,
    TableGroundTruth,
    Terms,
    ThroughputTable,
)
from reproductions.gavel import POLICIES
from reproductions.registry import build
from scheduler.core.decisions import Action, Decision, Reason
from tests.reproductions.builders import nodes_of, play

NODES = nodes_of(2, 4, 4, types=["new", "old", "old"])
KINDS = {f"{name}{gpus}": Kind(name, gpus) for name in "abc" for gpus in (1, 2, 4)}
TABLE = ThroughputTable(
    {
        "new": {kind: kind.gpus * 10.0 * (1 + "abc".index(kind.model)) for kind in KINDS.values()},
        "old": {kind: kind.gpus * 4.0 for kind in KINDS.values() if kind.model != "c"},
    },
    {
        gpu_type: {
            (a, b): (rate * a.gpus * 0.8, rate * b.gpus * 0.8)
            for a in KINDS.values()
            for b in KINDS.values()
            if a.gpus == b.gpus and "c" not in (a.model, b.model)
        }
        for gpu_type, rate in (("new", 10.0), ("old", 4.0))
    },
)


def a_world(
    *wanted: tuple[str, int, float], vc: str = "vc", terms: dict[int, Terms] | None = None,
    nodes: tuple[Node, ...] = NODES, lease_s: float | None = None, **fields: object,
) -> tuple[tuple[Node, ...], list[Job], TableGroundTruth]:  # fmt: skip
    """Jobs by (kind, steps, arrival); their ids are their places in the list."""
    jobs, work = [], {}
    for i, (name, steps, at) in enumerate(wanted):
        kind = KINDS[name]
        jobs.append(Job(str(i), at, kind.gpus, vc=vc, **fields))  # type: ignore[arg-type]
        work[str(i)] = StepWork(kind, steps, (terms or {}).get(i, Terms()))
    return nodes, jobs, TableGroundTruth(work, TABLE, nodes, lease_s=lease_s)


def a_mix(seed: int, jobs: int = 24) -> list[tuple[str, int, float]]:
    rng = np.random.default_rng(seed)
    names = rng.choice(["a1", "b1", "a2", "b2", "a4"], jobs)
    steps, gaps = rng.integers(100, 40_000, jobs), rng.exponential(300, jobs)
    return [
        (str(name), int(n), float(at))
        for name, n, at in zip(names, steps, np.cumsum(gaps) - gaps[0], strict=True)
    ]


@pytest.mark.parametrize("name", POLICIES)
def test_as_published_everybody_is_served_for_a_share(name: str) -> None:
    policy = build(name, {"as_published": True})
    played = play(policy, *a_world(*a_mix(1), lease_s=policy.lease_s))
    for result in played.outcome.jobs:
        assert result.end_time is not None
        assert result.jct_s >= result.duration_s * (1 - 1e-9)
    acted = {Action.START, Action.RESIZE, Action.PREEMPT, Action.PACK}
    decided = [d for d in played.decisions if d.action in acted]
    assert decided
    assert all(any(key.startswith("share of") for key, _ in d.evidence) for d in decided)


def test_a_job_goes_where_it_gains_most() -> None:
    """c gains 3 x as much from the new type as a, and has it alone."""
    played = play(POLICIES["gavel-las"](), *a_world(("c1", 9000, 0), ("a1", 4000, 0)))
    assert {d.nodes for d in played.of("0", Action.START)} == {(0,)}
    assert played.result("0").end_time == 300


def test_shares_priority_and_duals_are_told() -> None:
    world = a_world(*[("a1", 40_000, 0.0)] * 16)
    played = play(POLICIES["gavel-las"](), *world)
    start = next(d for d in played.decisions if d.action is Action.START)
    told = dict(start.evidence)
    assert set(told) == {
        "share of new", "share of old", "dual", "price of new", "price of old", "priority",
    }  # fmt: skip
    # the objective is made of what is owed to the jobs, and of what the GPUs are worth
    assert 16 * float(told["dual"]) == pytest.approx(1.0)
    assert float(told["price of new"]) + float(told["price of old"]) == pytest.approx(1.0)
    waits = [d for d in played.decisions if d.action is Action.WAIT]
    assert {d.reason for d in waits} == {Reason.SHARE_USED}
    assert all(d.blocker is not None for d in waits)


def test_a_share_goes_by_weight() -> None:
    terms = {i: Terms(weight=4.0) for i in range(8)}
    played = play(POLICIES["gavel-las"](), *a_world(*[("a1", 30_000, 0.0)] * 24, terms=terms))
    heavy = [played.result(str(i)).jct_s for i in range(8)]
    light = [played.result(str(i)).jct_s for i in range(8, 24)]
    assert max(heavy) < min(light)


def test_who_opted_out_shares_with_nobody() -> None:
    wanted = [("a1", 30_000, 0.0)] * 24
    played = play(POLICIES["gavel-las-packed"](), *a_world(*wanted))
    assert played.outcome.packings
    alone = play(POLICIES["gavel-las-packed"](), *a_world(*wanted, share=False))
    assert not alone.outcome.packings
    both = [d for d in played.decisions if d.partner is not None]
    assert {d.reason for d in both if d.action is Action.START} == {Reason.PARTNER_FOUND}


def test_large_gangs_are_on_the_fewest_nodes_and_who_stays_stays() -> None:
    played = play(POLICIES["gavel-las"](), *a_world(("a4", 60_000, 0), ("a4", 60_000, 0)))
    starts: list[Decision] = played.of("0", Action.START) + played.of("1", Action.START)
    assert {d.nodes for d in starts} == {(1,), (2,)}
    moved = [d for d in played.decisions if d.action in (Action.RESIZE, Action.PREEMPT)]
    assert not moved
