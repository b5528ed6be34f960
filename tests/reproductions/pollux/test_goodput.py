"""Statistical efficiency and the choice of a batch size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproductions.allocation.statistics import GradientNoise, Limits
from reproductions.pollux.goodput import UNKNOWN_NOISE, Goodput, efficiency
from reproductions.pollux.throughput import Throughput

THROUGHPUT = Throughput(0.05, 0.002, 0.2, 0.01, 0.06, 0.004, 2.0)
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
    quiet = Goodput(THROUGHPUT, GradientNoise(1.0, 1e-6), LIMITS)
    noisy = Goodput(THROUGHPUT, UNKNOWN_NOISE, LIMITS)
    small, large = quiet.batch(1, 4), noisy.batch(1, 4)
    assert small is not None
    assert large is not None
    assert small[0].total(4) == 128
    assert large[0].total(4) == 4096


@given(st.integers(1, 64), st.integers(1, 16), positive, positive)
def test_a_batch_keeps_the_limits(gpus: int, nodes: int, square: float, variance: float) -> None:
    goodput = Goodput(THROUGHPUT, GradientNoise(square, variance), LIMITS)
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
    assert Goodput(THROUGHPUT, UNKNOWN_NOISE, LIMITS).batch(16, 4096 // 32 + 1) is None
    assert LIMITS.most_gpus == 128


def test_a_fixed_batch_is_the_only_candidate() -> None:
    fixed = Limits(256, 32_768, (32, 32_768), gpus=1, smallest=32_768)
    found = Goodput(THROUGHPUT, UNKNOWN_NOISE, fixed).batch(1, 1)
    assert found is not None
    assert found[0].total(1) == 32_768
    assert found[0].accumulation == 1
