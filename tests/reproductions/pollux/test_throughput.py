"""The throughput model of Pollux and its fit; statistical efficiency, the choice of a batch."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from reproductions.allocation.statistics import Configuration, GradientNoise, Limits, StepTimes
from reproductions.pollux.goodput import UNKNOWN_NOISE, Goodput, efficiency
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


# --- goodput --------------------------------------------------------------------------------------


LIMITS = Limits(initial=128, largest=4096, per_gpu=(32, 512))

positive = st.floats(1e-5, 1e5)


@given(positive, positive, st.floats(1, 64))
def test_efficiency_is_one_at_the_initial_batch_and_falls(
    square: float, variance: float, scale: float
) -> None:
    noise = GradientNoise(square, variance)
    at = efficiency(noise, np.array([1.0, scale, 2 * scale]))
    assert at[0] == pytest.approx(1)
    assert at[0] >= at[1] - 1e-12
    assert at[1] >= at[2] - 1e-12
    assert (at * [1, scale, 2 * scale]).min() >= 1 - 1e-9  # a larger batch never trains slower


def test_noise_makes_large_batches_pay() -> None:
    quiet = Goodput(TRUE, GradientNoise(1.0, 1e-6), LIMITS)
    noisy = Goodput(TRUE, UNKNOWN_NOISE, LIMITS)
    small, large = quiet.batch(1, 4), noisy.batch(1, 4)
    assert small is not None
    assert large is not None
    assert small[0].total(4) == 128
    assert large[0].total(4) == 4096


@given(st.integers(1, 64), st.integers(1, 16), positive, positive)
def test_a_batch_keeps_the_limits(gpus: int, nodes: int, square: float, variance: float) -> None:
    goodput = Goodput(TRUE, GradientNoise(square, variance), LIMITS)
    found = goodput.batch(min(nodes, gpus), gpus)
    assert found is not None
    batch, value = found
    assert value > 0
    assert 32 <= batch.per_gpu <= 512
    rounding = gpus * (batch.accumulation + 1)
    assert 128 <= batch.total(gpus) <= 4096 + rounding
    if gpus == 1 and batch.total(1) > 128 + rounding:
        assert batch.accumulation >= 1, "the noise of one GPU's gradients could not be seen"


def test_no_batch_is_small_enough_for_too_many_gpus() -> None:
    assert Goodput(TRUE, UNKNOWN_NOISE, LIMITS).batch(16, 4096 // 32 + 1) is None
    assert LIMITS.most_gpus == 128


def test_a_fixed_batch_is_the_only_candidate() -> None:
    fixed = Limits(256, 32_768, (32, 32_768), gpus=1, smallest=32_768)
    found = Goodput(TRUE, UNKNOWN_NOISE, fixed).batch(1, 1)
    assert found is not None
    assert found[0].total(1) == 32_768
    assert found[0].accumulation == 1
