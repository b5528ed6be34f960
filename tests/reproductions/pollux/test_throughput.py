"""The throughput model of Pollux and its fit."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
from scipy.optimize import check_grad

from reproductions.allocation.statistics import Configuration, StepTimes
from reproductions.pollux.throughput import TINY, Throughput, _Problem, fit

TRUE = Throughput(0.05, 0.002, 0.2, 0.01, 0.06, 0.004, 2.0)
ONE, NODE, CLUSTER = [(1, 1)], [(1, 2), (1, 3), (1, 4)], [(2, 2), (2, 6), (4, 16), (8, 32)]


def seen(where: list[tuple[int, int]], batches: tuple[int, ...] = (32, 64, 128)):  # type: ignore[no-untyped-def]
    """A profile that the true model yields."""
    profile = {}
    for nodes, gpus in where:
        for batch in batches:
            grad, step = TRUE.times(np.array(nodes), np.array(gpus), np.array(batch))
            profile[Configuration(nodes, gpus, batch)] = StepTimes(float(step), float(step - grad))
    return profile


def test_times_by_hand() -> None:
    grad, step = TRUE.times(np.array([1, 1, 2]), np.array([1, 2, 4]), np.array([100.0] * 3))
    assert grad == pytest.approx([0.25] * 3)
    assert step == pytest.approx([0.25, np.hypot(0.25, 0.06), np.hypot(0.25, 0.22)])
    assert TRUE.step_s(1, 2, 100, accumulation=3) == pytest.approx(0.75 + np.hypot(0.25, 0.06))


def test_the_gradient_is_right() -> None:
    rng = np.random.default_rng(0)
    nodes = np.array([1, 1, 1, 2, 4, 8.0])
    gpus = np.array([1, 2, 4, 2, 16, 24.0])
    batch = rng.uniform(10, 100, 6)
    problem = _Problem(nodes, gpus, batch, rng.normal(size=6), rng.normal(size=6))
    for _ in range(20):
        x = np.append(rng.uniform(0.01, 1, 6), rng.uniform(1, 10))
        slope = problem(x)[1]
        error = check_grad(lambda x: problem(x)[0], lambda x: problem(x)[1], x)
        assert error < 1e-4 * (1 + np.linalg.norm(slope))


def test_a_fit_explains_what_it_saw() -> None:
    profile = seen(ONE + NODE + CLUSTER)
    found = fit(profile)
    errors = [abs(found.step_s(*where) / times.step_s - 1) for where, times in profile.items()]
    assert fmean(errors) < 0.03


def test_what_was_never_tried_looks_worth_trying() -> None:
    alone = fit(seen(ONE))
    # twice as many GPUs are believed to do twice as much, within a node and across
    for nodes in (1, 2):
        assert alone.step_s(nodes, 2, 64) == pytest.approx(alone.step_s(1, 1, 64), rel=1e-3)
    one_node = fit(seen(ONE + NODE))
    assert one_node.across >= 1.1 * one_node.within
    two = fit(seen([(1, 1), (1, 2)]))
    assert two.within_per_gpu == TINY
    one_batch = fit(seen(ONE, batches=(64,)))
    assert one_batch.grad == pytest.approx(TRUE.step_s(1, 1, 64) / 2, rel=1e-3)
