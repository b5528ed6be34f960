"""SMD: the layered iteration, the inner problem, the knapsack."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult

from benchmarks.systems.smd import a_job, a_knapsack, by_hand
from scheduler.peers.smd import outer
from scheduler.peers.smd.inner import PsLimits, enumerate_tasks, equal_tasks, relax
from scheduler.peers.smd.iteration import LayeredIteration, Overheads
from scheduler.peers.smd.outer import (
    Knapsack,
    NoSolution,
    approximate,
    select,
    select_exactly,
)
from scheduler.peers.smd.utility import Utility


def simulated_s(
    forward: list[float], backward: list[float], sizes: list[float], batch: float, per_byte: float
) -> float:
    """The flow shop, played: layers from the last to the first, one link."""
    now = sum(forward) * batch
    sent = now
    for b, g in zip(reversed(backward), reversed(sizes), strict=True):
        now += b * batch
        sent = max(sent, now) + g * per_byte
    return sent


@given(
    st.lists(st.tuples(*[st.floats(0.001, 1.0)] * 3), min_size=1, max_size=12),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_the_formula_is_the_length_of_the_flow_shop(
    layers: list[tuple[float, float, float]], workers: int, servers: int
) -> None:
    forward, backward, sizes = (list(column) for column in zip(*layers, strict=True))
    iteration = LayeredIteration.of_layers(
        forward, backward, sizes, batch=16.0, bytes_per_s=2.0, overheads=Overheads(0.1, 0.2, 0.3)
    )
    per_byte = 2.0 * workers / (servers * 2.0)
    played = simulated_s(forward, backward, sizes, 16.0 / workers, per_byte)
    told = float(iteration.seconds(workers, servers))
    assert told == pytest.approx(played + 0.1 + 0.2 * workers + 0.3 * servers)


def test_one_gpu_has_nothing_to_exchange() -> None:
    iteration = LayeredIteration.of_layers([1.0], [2.0], [8.0], batch=1.0, bytes_per_s=1.0)
    assert iteration.ring_seconds([1, 2]).tolist() == [3.0, 1.5 + 8.0]


def test_layers_have_to_match() -> None:
    with pytest.raises(ValueError, match="every layer"):
        LayeredIteration.of_layers([1.0], [], [1.0], batch=1.0, bytes_per_s=1.0)


@pytest.mark.parametrize("seed", range(12))
def test_enumeration_is_exact_and_never_worse_than_rounding(seed: int) -> None:
    iteration, limits = a_job(np.random.default_rng(seed))
    exact = enumerate_tasks(iteration, limits)
    rounded, equal = relax(iteration, limits), equal_tasks(iteration, limits)
    assert exact is not None
    assert rounded is not None
    assert equal is not None
    assert exact.seconds == pytest.approx(by_hand(iteration, limits))
    assert limits.admits(exact.workers, exact.servers)
    assert limits.admits(rounded.workers, rounded.servers)
    assert exact.seconds <= min(rounded.seconds, equal.seconds) + 1e-12
    assert rounded.seconds <= 1.06 * exact.seconds


def test_a_limit_below_one_of_each_admits_nothing() -> None:
    iteration = LayeredIteration.of_layers([1.0], [1.0], [1.0], batch=1.0, bytes_per_s=1.0)
    limits = PsLimits((1.0,), (1.0,), (1.5,))
    assert enumerate_tasks(iteration, limits) is None
    assert relax(iteration, limits) is None
    assert equal_tasks(iteration, limits) is None


# --- knapsack -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "share", "seeds"), [(20, 0.97, 8), (100, 0.99, 1)])
def test_a_selection_is_feasible_and_nearly_the_best(jobs: int, share: float, seeds: int) -> None:
    for seed in range(seeds):
        problem = a_knapsack(jobs, seed)
        found = select(problem)
        assert problem.feasible(found.chosen)
        best = problem.value(select_exactly(problem, gap=1e-3))
        assert share * best <= problem.value(found.chosen) <= found.bound + 1e-6


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
def test_choices_of_one_job_exclude_each_other(seed: int, size: int, exact: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = Knapsack(
        rng.uniform(0, 10, size),
        rng.uniform(0, 5, (size, 2)),
        rng.uniform(1, 8, 2),
        np.sort(rng.integers(0, 4, size)),
    )
    chosen = select(problem).chosen if exact else approximate(problem).chosen
    assert problem.feasible(chosen)


def test_nothing_to_choose_from() -> None:
    empty = Knapsack(np.zeros(0), np.zeros((0, 1)), np.array([4.0]))
    assert select(empty).chosen == ()
    assert select_exactly(empty) == ()
    with pytest.raises(ValueError, match="weights are"):
        Knapsack(np.zeros(2), np.zeros((1, 1)), np.array([4.0]))


def test_the_solver_keeps_standard_output_clean(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(4):
        select_exactly(a_knapsack(60, seed), gap=1e-2)
    assert capfd.readouterr().out == ""


def test_a_solver_that_gives_up_leaves_a_feasible_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outer, "linprog", lambda *_, **__: OptimizeResult(status=4))
    monkeypatch.setattr(outer, "milp", lambda *_, **__: OptimizeResult(x=None, message="no"))
    problem = a_knapsack(12, 0)
    found = select(problem)
    assert found.chosen
    assert problem.feasible(found.chosen)
    with pytest.raises(NoSolution, match="the knapsack: no"):
        select_exactly(problem)


def test_utility_halves_when_due() -> None:
    utility = Utility(worth=10.0, urgency=4.0, due=2.0)
    assert utility(2.0) == 5.0
    assert utility(0.0) > 9.9
    assert utility(1e9) < 1e-300
    assert Utility(urgency=0.0)(1e9) == 0.5
