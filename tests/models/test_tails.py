"""Chances to outlast thresholds: the distribution they imply, its export, its fitting."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.spec import FeatureSpec
from features.survival import THRESHOLDS_S
from models.bundle import AdditiveModel, Axis, Bundle, BundleError, Calibration, Tails, Term
from models.bundle.curve import Curve
from models.training.blend import blended, earned_weight
from models.training.duration import fit_duration, imputed_s
from models.training.errors import TrainingError
from models.training.tails import fit_tails

NOW = 1_600_000_000.0
SPECS = (
    FeatureSpec("gpus", "continuous", "size"),
    FeatureSpec("time_limit_s", "continuous", "size"),
    FeatureSpec("like_log_s", "continuous", "survival"),
    *(FeatureSpec(f"like_over_{name}", "continuous", "survival") for name in THRESHOLDS_S),
)
LOGITS = st.lists(st.floats(-9, 9), min_size=3, max_size=3).map(
    lambda found: np.array([sorted(found, reverse=True)])
)
CURVE = Curve((60.0, 3600.0, 86_400.0))


@given(LOGITS, st.floats(0.002, 0.998))
def test_a_quantile_is_the_inverse_of_the_chance(logits: np.ndarray, level: float) -> None:
    found = np.expm1(CURVE.invert(logits, np.array([[level]])))[:, 0]
    assert CURVE.level_of(logits, found) == pytest.approx(level, abs=1e-6)


@given(LOGITS, st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_longer_a_job_has_run_the_longer_it_lasts(
    logits: np.ndarray, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    first, second = (CURVE.mean_log(logits, np.array([t]))[0] for t in (low, high))
    assert second >= first - 0.01  # the integral is a sum over a grid
    assert second >= math.log1p(high) - 1e-9


def test_the_mean_is_the_mean_of_the_quantiles() -> None:
    logits = np.array([[2.0, -0.5, -3.0]])
    levels = (np.arange(20_000) + 0.5) / 20_000
    draws = CURVE.invert(logits, levels[None, :])
    assert CURVE.mean_log(logits)[0] == pytest.approx(draws.mean(), abs=0.02)


def constant(score: float) -> AdditiveModel:
    return AdditiveModel([Axis(spec) for spec in SPECS], [], score, "logit")


def tails(calibration: Calibration | None = None) -> Tails:
    return Tails((60.0, 3600.0), (constant(1.0), constant(-1.0)), calibration)


def row(gpus: float = 1.0, limit: float = math.nan) -> tuple[float, ...]:
    return (gpus, limit, *(0.0 for _ in SPECS[2:]))


def test_quantiles_respect_what_has_run_and_what_is_allowed() -> None:
    model = tails()
    plain = model.quantiles(row(), (0.1, 0.5, 0.9))
    assert list(plain) == sorted(plain)
    assert model.quantiles(row(), (0.1, 0.5, 0.9), elapsed_s=7200.0)[0] >= 7200.0
    assert max(model.quantiles(row(limit=100.0), (0.1, 0.5, 0.9))) <= 100.0
    frame = pd.DataFrame([row(), row(8.0, 100.0)], columns=[spec.name for spec in SPECS])
    batch = model.quantiles_batch(frame, (0.1, 0.5, 0.9))
    assert batch[0] == pytest.approx(plain)
    assert batch[1] == pytest.approx(model.quantiles(row(8.0, 100.0), (0.1, 0.5, 0.9)))


def test_a_calibration_moves_the_levels_of_its_class_alone() -> None:
    shifted = Calibration((4,), np.array([[0.0, 0.5, 1.0], [0.0, 0.9, 1.0]]))
    small, large = (tails(shifted).quantiles(row(gpus), (0.5,)) for gpus in (4.0, 5.0))
    assert small == pytest.approx(tails().quantiles(row(), (0.5,)))
    assert large == pytest.approx(tails().quantiles(row(), (0.9,)))


@pytest.mark.parametrize(
    ("gpus", "levels", "says"),
    [
        ((4, 4), [[0, 1]] * 3, "do not increase"),
        ((4,), [[0, 1]], "shape"),
        ((), [[0, 2]], "rise from 0 to 1"),
        ((), [[0.5, 0.2]], "rise from 0 to 1"),
        ((), [[0, math.nan]], "rise from 0 to 1"),
    ],
)
def test_a_bad_calibration_is_refused(gpus: tuple[int, ...], levels: object, says: str) -> None:
    with pytest.raises(BundleError, match=says):
        Calibration(gpus, np.array(levels, dtype=float))


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BundleError, match="do not match"):
        Tails((60.0,), ())
    with pytest.raises(BundleError, match="increase"):
        Tails((60.0, 60.0), (constant(0.0), constant(0.0)))
    with pytest.raises(BundleError, match="log-odds"):
        Tails((60.0,), (AdditiveModel([Axis(SPECS[0])], [], 0.0, "identity"),))
    with pytest.raises(BundleError, match="must be one of 60, 3600"):
        tails().explain(row(), 61.0)


def test_a_bundle_gives_back_the_same_bits(tmp_path: Path) -> None:
    levels = np.sort(np.random.default_rng(0).uniform(0, 1, (2, 11)), axis=1)
    model = Tails((60.0, 3600.0), (constant(1.0), constant(-1.25)), Calibration((4,), levels))
    bundle = Bundle(tails=model)
    read = Bundle.load(bundle.save(tmp_path / "bundle"))
    assert read.digest == bundle.digest
    assert read.parts == ("tails",)
    asked = (0.025, 0.5, 0.975)
    assert read.tails.quantiles(row(5.0), asked) == model.quantiles(row(5.0), asked)
    with pytest.raises(BundleError, match="no tails"):
        _ = Bundle().tails


# -- blending ------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.integers(0, 60), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_blend_is_the_weighted_sum(weight: float, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = [Axis(SPECS[0], cuts=(1.5,)), Axis(SPECS[2], cuts=(2.0, 5.05))]

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


def test_a_weight_is_earned_by_what_came() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    longer = rng.uniform(size=4000) < 1 / (1 + np.exp(-truth))
    noise = rng.normal(size=4000)
    assert earned_weight(truth, noise, longer) == pytest.approx(1.0, abs=0.11)
    assert earned_weight(noise, truth, longer) == pytest.approx(0.0, abs=0.11)
    assert earned_weight(truth[:50], noise[:50], longer[:50]) is None
    assert earned_weight(truth, noise, np.ones(4000, bool)) is None


def test_an_earned_weight_replaces_the_one_by_jobs() -> None:
    frame, duration, start = world(800)
    fitted = fit_tails(frame, duration, start, NOW, SPECS, seed=0, weights={"1h": 0.0, "6h": 1.0})
    notes = fitted.metadata["thresholds"]
    assert (notes["1h"]["weight"], notes["6h"]["weight"]) == (0.0, 1.0)
    assert 0 < notes["3h"]["weight"] < 0.1
    k = list(THRESHOLDS_S).index("6h")
    alone = fitted.own[k]
    assert alone is not None
    assert fitted.tails.models[k].score_batch(frame) == pytest.approx(alone.score_batch(frame))


# -- fitting -------------------------------------------------------------------------------------


def world(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Two kinds of jobs, told apart by their GPUs; the features' own odds know nothing."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1.0, 8.0], n)
    duration = np.exp(rng.normal(np.where(gpus > 1, 9.5, 5.0), 1.0))
    frame = pd.DataFrame({"gpus": gpus, "time_limit_s": np.nan, "like_log_s": 6.0}, range(n))
    for i, name in enumerate(THRESHOLDS_S):
        frame[f"like_over_{name}"] = 2.0 - 0.5 * i
    start = NOW - rng.uniform(0, 10 * 86_400, n)
    return frame, duration, start


def test_running_jobs_teach_without_bias() -> None:
    frame, duration, start = world(6000)
    known = np.where(start + duration < NOW, duration, np.nan)
    assert np.isnan(known).sum() > 50
    specs = SPECS[:2]  # no odds to blend with: the fit stands alone
    fitted = fit_tails(frame, known, start, NOW, specs, seed=0)
    for name, limit in (("1h", 3600.0), ("6h", 21_600.0)):
        k = list(THRESHOLDS_S).index(name)
        assert fitted.metadata["thresholds"][name]["rows"] == (start + limit < NOW).sum()
        for gpus in (1.0, 8.0):
            mine = frame["gpus"] == gpus
            chance = 1 / (1 + math.exp(-fitted.tails.models[k].score((gpus, math.nan))))
            assert chance == pytest.approx((duration[mine] > limit).mean(), abs=0.05)


def test_with_few_jobs_the_odds_of_the_features_decide() -> None:
    frame, duration, start = world(30)
    fitted = fit_tails(frame, duration, start, NOW, SPECS, seed=0)
    logits = fitted.tails.logits_batch(frame)
    assert np.abs(logits - (2.0 - 0.5 * np.arange(len(THRESHOLDS_S)))).max() < 0.3
    empty = fit_tails(frame[:0], duration[:0], start[:0], NOW, SPECS, seed=0)
    assert np.abs(empty.tails.logits_batch(frame) - logits).max() < 0.3


def test_explanations_are_exact_and_do_not_depend_on_the_batch() -> None:
    frame, duration, start = world(800)
    fitted = fit_tails(frame, duration, start, NOW, SPECS, seed=0).tails
    batch = fitted.logits_batch(frame[:50])
    for values, expected in zip(frame[:50].itertuples(index=False), batch, strict=True):
        told = fitted.explain(tuple(values), 3600.0)
        total = told.intercept
        for term in told.terms:
            total += term
        assert total == told.score
        assert (fitted.logits(tuple(values)) == expected).all()


def test_bad_rows_are_refused() -> None:
    frame, duration, start = world(30)
    with pytest.raises(TrainingError, match="do not match"):
        fit_tails(frame, duration[1:], start, NOW, SPECS, seed=0)
    with pytest.raises(TrainingError, match="negative"):
        fit_tails(frame, -duration, start, NOW, SPECS, seed=0)
    with pytest.raises(TrainingError, match="like_log_s"):
        fit_tails(frame.drop(columns="like_log_s"), duration, start, NOW, SPECS, seed=0)


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
    specs = [spec for spec in SPECS if spec.name != "like_log_s"]
    args = (frame, known, start, specs)
    fitted = fit_duration(*args, seed=0, elapsed_s=NOW - start)
    assert fitted.metadata["running"] == np.isnan(known).sum()
    ended = np.isfinite(known)
    blind = fit_duration(frame[ended], known[ended], start[ended], specs, seed=0)
    large = frame["gpus"] == 8.0
    truth = np.log1p(duration[large]).mean()
    told, without = (m.model.score_batch(frame[large]).mean() for m in (fitted, blind))
    assert abs(told - truth) < abs(without - truth)
    with pytest.raises(TrainingError, match="not finite"):
        fit_duration(*args, seed=0)
