"""SMD: the knapsack and its utilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import OptimizeResult

from reproductions.figures.smd import a_knapsack
from reproductions.smd import outer
from reproductions.smd.outer import (
    Knapsack,
    NoSolution,
    approximate,
    select,
    select_exactly,
)

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
