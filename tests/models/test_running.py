"""Learning from jobs that still run, and from few: imputed durations and the blend."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.spec import FeatureSpec
from features.survival import THRESHOLDS_S
from models.bundle import AdditiveModel, Axis, Term
from models.training.blend import blended
from models.training.curve import Curve
from models.training.duration import fit_duration, imputed_s
from models.training.errors import TrainingError

NOW = 1_600_000_000.0
SPECS = (
    FeatureSpec("gpus", "continuous", "size"),
    FeatureSpec("time_limit_s", "continuous", "size"),
    *(FeatureSpec(f"like_over_{name}", "continuous", "survival") for name in THRESHOLDS_S),
)
LOGITS = st.lists(st.floats(-9, 9), min_size=3, max_size=3).map(
    lambda found: np.array([sorted(found, reverse=True)])
)
CURVE = Curve((60.0, 3600.0, 86_400.0))


@given(LOGITS, st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_longer_a_job_has_run_the_longer_it_lasts(
    logits: np.ndarray, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    first, second = (CURVE.mean_log(logits, np.array([t]))[0] for t in (low, high))
    assert second >= first - 0.01  # the integral is a sum over a grid
    assert second >= math.log1p(high) - 1e-9


def test_the_mean_is_that_of_the_distribution() -> None:
    logits = np.array([[2.0, -0.5, -3.0]])
    x = (np.arange(20_000) + 0.5) / 20_000 * math.log1p(30 * 86_400.0)
    alive = 1.0 - CURVE.level_of(np.repeat(logits, len(x), axis=0), np.expm1(x))
    expected = alive.mean() * math.log1p(30 * 86_400.0)
    assert CURVE.mean_log(logits, np.zeros(1))[0] == pytest.approx(expected, abs=0.02)


@given(st.floats(0, 1), st.integers(0, 60), st.integers(0, 5))
@settings(max_examples=50)
def test_a_blend_is_the_weighted_sum(weight: float, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    like = FeatureSpec("like_log_s", "continuous", "survival")
    axes = [Axis(SPECS[0], cuts=(1.5,)), Axis(like, cuts=(2.0, 5.05))]

    def term(*key: int) -> Term:
        shape = tuple(axes[i].size for i in key)
        return Term(key, rng.normal(size=shape), rng.uniform(size=shape), np.zeros(shape))

    model = AdditiveModel(axes, [term(0), term(1), term(0, 1)], 3.0)
    frame = pd.DataFrame(
        {"gpus": rng.integers(1, 4, rows) * 1.0, "like_log_s": rng.uniform(0, 12, rows)}
    )
    mixed = blended(model, "like_log_s", weight, frame)
    expected = weight * model.score_batch(frame) + (1 - weight) * frame["like_log_s"].to_numpy()
    assert np.abs(mixed.score_batch(frame) - expected).max(initial=0.0) <= 0.051
    for before, after in zip(model.terms, mixed.terms, strict=True):
        assert after.weights.sum() >= before.weights.sum() - 1e-9


def world(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Two kinds of jobs, told apart by their GPUs; the features' own odds know nothing."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1.0, 8.0], n)
    duration = np.exp(rng.normal(np.where(gpus > 1, 9.5, 5.0), 1.0))
    frame = pd.DataFrame({"gpus": gpus, "time_limit_s": np.nan}, range(n))
    for i, name in enumerate(THRESHOLDS_S):
        frame[f"like_over_{name}"] = 2.0 - 0.5 * i
    start = NOW - rng.uniform(0, 10 * 86_400, n)
    return frame, duration, start


def test_a_running_job_is_taken_to_last_longer_than_it_has() -> None:
    frame, _, _ = world(20)
    elapsed = np.geomspace(1, 1e6, 20)
    found = imputed_s(frame, elapsed)
    assert (found >= elapsed * 0.999).all()
    assert (np.diff(found) > 0).all()
    assert imputed_s(frame[["gpus"]], elapsed) == pytest.approx(2 * elapsed)


def test_the_duration_model_learns_from_running_jobs() -> None:
    frame, duration, start = world(3000)
    known = np.where(start + duration < NOW, duration, np.nan)
    args = (frame, known, start, SPECS)
    fitted = fit_duration(*args, seed=0, elapsed_s=NOW - start)
    assert fitted.metadata["running"] == np.isnan(known).sum()
    ended = np.isfinite(known)
    blind = fit_duration(frame[ended], known[ended], start[ended], SPECS, seed=0)
    large = frame["gpus"] == 8.0
    truth = np.log1p(duration[large]).mean()
    told, without = (m.model.score_batch(frame[large]).mean() for m in (fitted, blind))
    assert abs(told - truth) < abs(without - truth)
    with pytest.raises(TrainingError, match="not finite"):
        fit_duration(*args, seed=0)
