"""Learning from jobs that still run, and from few: imputed durations and the blend."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.spec import FeatureSpec
from features.survival import SPREAD, SUM
from models.bundle import AdditiveModel, Axis, Term
from models.training.blend import blended
from models.training.duration import LIKE, fit_duration, imputed_s
from models.training.errors import TrainingError

NOW = 1_600_000_000.0
SPECS = (
    FeatureSpec("gpus", "continuous", "size"),
    FeatureSpec("time_limit_s", "continuous", "size"),
    *SUM,
    SPREAD,
)


@given(st.floats(0, 1), st.integers(0, 60), st.integers(0, 5))
@settings(max_examples=50)
def test_a_blend_is_the_weighted_sum(weight: float, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = [Axis(SPECS[0], cuts=(1.5,)), Axis(SUM[0], cuts=(2.0, 5.05)), Axis(SUM[2], cuts=(0.3,))]

    def term(*key: int) -> Term:
        shape = tuple(axes[i].size for i in key)
        return Term(key, rng.normal(size=shape), rng.uniform(size=shape), np.zeros(shape))

    model = AdditiveModel(axes, [term(0), term(1), term(0, 1)], 3.0)
    frame = pd.DataFrame(
        {
            "gpus": rng.integers(1, 4, rows) * 1.0,
            SUM[0].name: rng.uniform(0, 12, rows),
            SUM[2].name: rng.uniform(-3, 3, rows),
        }
    )
    mixed = blended(model, [SUM[0].name, SUM[2].name], weight, frame)
    told = frame[[SUM[0].name, SUM[2].name]].to_numpy().sum(axis=1)
    expected = weight * model.score_batch(frame) + (1 - weight) * told
    assert np.abs(mixed.score_batch(frame) - expected).max(initial=0.0) <= 0.051
    after_of = {term.features: term for term in mixed.terms}
    for before in model.terms:
        after = after_of[before.features]
        assert after.weights.sum() >= before.weights.sum() - 1e-9


def world(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Two kinds of jobs, told apart by their GPUs; the histories tell them not apart."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1.0, 8.0], n)
    duration = np.exp(rng.normal(np.where(gpus > 1, 9.5, 5.0), 1.0))
    frame = pd.DataFrame({"gpus": gpus, "time_limit_s": np.nan}, range(n))
    frame[list(LIKE)] = 0.0
    frame["like_all_log_s"], frame["like_spread"] = 7.0, 2.3
    start = NOW - rng.uniform(0, 10 * 86_400, n)
    return frame, duration, start


def test_a_running_job_is_taken_to_last_longer_than_it_has() -> None:
    frame, _, _ = world(20)
    elapsed = np.geomspace(1, 1e6, 20)
    found = imputed_s(frame, elapsed)
    assert (found >= elapsed * 0.999).all()
    assert (np.diff(found) > 0).all()
    assert found[:3] == pytest.approx(np.expm1(7.0), rel=0.5)
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
