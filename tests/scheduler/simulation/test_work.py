"""Pair speeds and the price of a preemption."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Profile
from scheduler.core.cluster import Run
from scheduler.core.policy import preemption_cost_s
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import Work
from scheduler.testing.builders import (
    a_configuration,
    a_job,
    cluster_of,
    pair_speeds,
)

A, B, C = (a_configuration(name) for name in "abc")


def test_each_member_has_its_own_speed_and_what_was_not_measured_the_stated_one() -> None:
    table = pair_speeds({("a", "b"): 0.7, ("b", "a"): 0.9})
    assert (table.speed(A, B), table.speed(B, A)) == (0.7, 0.9)
    table = pair_speeds({("a", "b"): 0.7}, unmeasured=0.6)
    assert table.speed(B, A) == 0.6, "one direction says nothing about the other"
    assert table.speed(A, C) == 0.6
    assert table.speed(None, A) == 0.6
    assert table.speed(A, None) == 0.6

    assert table.rate(Work(1.0), a_run(), Work(1.0)) == 0.6
    assert table.rate(Work(1.0), a_run(), None) == 1.0, "alone"


def test_noise_above_one_is_cut_unless_asked_for() -> None:
    measured = {("a", "b"): 1.5}
    assert pair_speeds(measured).speed(A, B) == 1.0
    assert pair_speeds(measured, cap=0.5).speed(A, B) == 0.5
    assert pair_speeds(measured, cap=None).speed(A, B) == 1.5


def a_run() -> Run:
    return cluster_of().start(a_job().job, "vc", [(0, 1)], 0.0)


@settings(max_examples=60)
@given(loads=st.tuples(*[st.floats(0, 100)] * 4))
def test_simulated_contention_slows_both_and_whoever_asks_for_less_less(
    loads: tuple[float, float, float, float],
) -> None:
    a, b = Profile(loads[0], loads[1], 0.0), Profile(loads[2], loads[3], 0.0)
    one, other = Work(1.0, profile=a), Work(1.0, profile=b)
    model, run = SimulatedContention(), a_run()
    assert model.rate(one, run, None) == 1.0
    mine, theirs = model.rate(one, run, other), model.rate(other, run, one)
    assert 0 < mine <= 1
    assert 0 < theirs <= 1
    if a.gpu_util_pct < b.gpu_util_pct:
        assert mine >= theirs
    assert model.rate(one, run, other) == mine, "asked again, answered alike"
    assert round(mine, 9) == mine, "no bit on which processors differ"


@pytest.mark.parametrize(
    ("own", "other", "speed"),
    [
        ((50.0, 20.0), (25.0, 20.0), (1 - 0.12 * 0.5 * 0.25) ** (0.7 + 0.6 * 2 / 3)),
        ((90.0, 20.0), (60.0, 20.0), ((1 - 0.12 * 0.9 * 0.6) / 1.5) ** (0.7 + 0.6 * 0.6)),
        ((50.0, 90.0), (25.0, 80.0), (0.5 * (1 - 0.12 * 0.5 * 0.25)) ** (0.7 + 0.6 * 2 / 3)),
    ],
    ids=["room", "kernels", "memory"],
)
def test_simulated_contention_is_its_formula_of_shares(
    own: tuple[float, float], other: tuple[float, float], speed: float
) -> None:
    this, that = (Work(1.0, profile=Profile(*one, 0.0)) for one in (own, other))
    assert SimulatedContention().rate(this, a_run(), that) == pytest.approx(speed, rel=1e-6)


def test_simulated_contention_of_the_unknown_is_the_stated_speed() -> None:
    known, unknown = Work(1.0, profile=Profile(50.0, 50.0, 0.0)), Work(1.0)
    model = SimulatedContention(unknown=0.7)
    assert model.rate(known, a_run(), unknown) == model.rate(unknown, a_run(), known) == 0.7


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 40.0), (8, 40.0), (9, 60.0), (160, 60.0)])
def test_preemption_costs_more_across_nodes(gpus: int, seconds: float) -> None:
    assert preemption_cost_s(gpus) == seconds
