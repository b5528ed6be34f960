"""Fitting and judging duration models."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from features.rows import Rows
from features.spec import FeatureSpec
from models.training.baselines import ewma_scores
from models.training.duration import PRESETS, data_digest, fit_duration
from models.training.errors import TrainingError
from models.training.evaluation import evaluate_duration, rows_digest, tail_auc
from models.training.export import additive_model
from models.training.metrics import auc, duration_metrics


@pytest.fixture(scope="module")
def rows(training, specs) -> Rows:
    X, y, time = training
    n = len(X)
    return Rows(
        features=specs,
        X=X,
        y=y,
        job_id=np.arange(n).astype(object),
        moment=np.full(n, "submit", dtype=object),
        time=time,
        submit_time=time,
        start_time=time,
        end_time=time + y,
        gpus=X["gpus"].to_numpy().astype(np.int64),
        block=((time - time[0]) // 86_400).astype(np.int64),
    )


def test_the_same_seed_and_rows_give_the_same_model(training, specs, fitted):
    again = fit_duration(*training, specs, seed=3)
    assert again.metadata == fitted.metadata
    for ours, theirs in zip(again.model.terms, fitted.model.terms, strict=True):
        assert (ours.scores == theirs.scores).all()


def test_the_digest_is_that_of_the_rows(training, specs):
    X, y, _ = training
    frame = X[[spec.name for spec in specs]]
    assert data_digest(frame, y) == data_digest(frame.copy(), y.copy())
    assert data_digest(frame, y) != data_digest(frame, np.roll(y, 1))
    changed = frame.copy()
    changed.loc[0, "gpu_type"] = "K81"
    assert data_digest(frame, y) != data_digest(changed, y)


@pytest.mark.parametrize(
    "odd",
    [
        lambda X: X.assign(gpus=1.0),  # constant
        lambda X: X.assign(user_ewma_s=np.nan),  # never known
        lambda X: X.assign(gpu_type=None),
        lambda X: X.assign(submit_hour=np.inf),
        lambda X: X.assign(gpu_type=[f"type {i % 700}" for i in range(len(X))]),
    ],
)
def test_odd_columns_are_fitted_and_exported_all_the_same(training, specs, odd):
    X, y, time = training
    X, y, time = odd(X.head(700)), y[:700], time[:700]
    quick = replace(PRESETS["fast"], max_rounds=30, outer_bags=2)
    fitted = fit_duration(X, y, time, specs, seed=0, preset=quick)
    free = fit_duration(X, y, time, [replace(s, monotone=0) for s in specs], seed=0, preset=quick)
    assert np.isfinite(fitted.model.score_batch(X)).all()
    whole = additive_model(free.ebm, X, [replace(s, monotone=0) for s in specs])
    assert np.abs(whole.score_batch(X) - free.ebm.predict(X)).max() < 1e-9


def test_few_rows_at_one_instant_are_enough(training, specs):
    X, y, _ = training
    fitted = fit_duration(X.head(50), y[:50], np.zeros(50), specs, seed=0)
    assert np.isfinite(fitted.model.score_batch(X)).all()
    constant = fit_duration(X.head(60), np.full(60, 9.0), np.zeros(60), specs, seed=0)
    assert constant.model.seconds(constant.model.score_batch(X)) == pytest.approx(9.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X, y, t: (X.head(20), y[:20], t[:20]), "20 ended jobs"),
        (lambda X, y, t: (X, y[:-1], t), "do not match"),
        (lambda X, y, t: (X, -y, t), "negative or not finite"),
        (lambda X, y, t: (X, y * np.nan, t), "negative or not finite"),
        (lambda X, y, t: (X, y, t * np.inf), "time holds"),
        (lambda X, y, t: (X.drop(columns="gpus"), y, t), "'gpus' is not among"),
        (lambda X, y, t: (X.assign(gpus="many"), y, t), "'gpus' must hold numbers"),
        (lambda X, y, t: (X.assign(gpu_type=7), y, t), "'gpu_type' holds 7"),
    ],
)
def test_rows_that_cannot_be_learnt_from_are_named(training, specs, change, says):
    with pytest.raises(TrainingError, match=says) as caught:
        fit_duration(*change(*training), specs, seed=0)
    assert "\n" not in str(caught.value)


def test_a_promise_nominal_features_cannot_keep_is_refused(training):
    broken = (FeatureSpec("gpu_type", "nominal", "size", monotone=1),)
    with pytest.raises(TrainingError, match="monotone"):
        fit_duration(*training, broken, seed=0)
    with pytest.raises(TrainingError, match="preset is 'slow'"):
        fit_duration(*training, broken[:0], seed=0, preset="slow")


@given(
    st.lists(st.tuples(st.floats(-3, 12), st.floats(0, 1e5)), min_size=3, max_size=60),
    st.floats(0, 12),
)
def test_metrics_agree_with_scikit_learn_and_scipy(pairs, limit):
    score, duration = np.array(pairs).T
    positive = duration > np.expm1(limit)
    if 0 < positive.sum() < len(score):
        assert auc(score, positive) == pytest.approx(roc_auc_score(positive, score))
    else:
        assert math.isnan(auc(score, positive))
    metrics = duration_metrics(score, duration, np.ones(len(score), np.int64))
    if np.ptp(score) > 0 and np.ptp(duration) > 0:
        assert metrics["spearman"] == pytest.approx(spearmanr(score, duration)[0])
    error = np.log10(np.exp(score)) - np.log10(1 + duration)
    assert metrics["mae_log10"] == pytest.approx(np.abs(error).mean())


def test_nothing_to_score_is_not_a_number():
    empty = duration_metrics(np.full(3, np.nan), np.ones(3), np.ones(3, np.int64))
    assert empty.pop("n") == 0
    assert all(math.isnan(value) for value in empty.values())


def test_the_moving_average_sees_only_what_had_ended():
    user = ["ann", "ann", "bob", "ann", "ann", "eve"]
    submit = np.array([0.0, 10, 20, 100, 300, 400])
    duration = np.array([50.0, 1000, 30, 7, np.nan, 5])
    gpus = np.array([1, 1, 1, 2, 1, 1])
    score = ewma_scores(user, gpus, submit, submit + duration, duration, weight=0.5)
    ends = np.log1p(duration)
    assert np.isnan(score[0])
    assert np.isnan(score[1])  # ann's first job still runs
    assert np.isnan(score[2])
    assert score[3] == ends[0]  # by user: 2 GPUs are new; the 1,000 s job still runs
    assert score[4] == ends[0]  # by (user, GPUs)
    # everybody's: 50 s and 30 s ended at the same instant, then 7 s
    everybody = (np.log1p(50) + np.log1p(30)) / 2
    assert score[5] == pytest.approx(0.5 * everybody + 0.5 * np.log1p(7))


def test_evaluation_is_causal_and_sets_yardsticks_beside(rows, training):
    day = 86_400.0
    start = rows.time[0] + 14 * day
    user = (rows.X["user_ewma_s"].fillna(0) > 500).map({True: "ann", False: "bob"}).tolist()
    result = evaluate_duration(rows, test_from=start, refit_every_s=3 * day, user=user)
    assert result.refits == 2
    assert set(result.metrics) == {
        "ga2m",
        "constant_median",
        "lightgbm_l1",
        "lightgbm_l2",
        "ewma_user_gpus",
    }
    ours, constant = result.metrics["ga2m"], result.metrics["constant_median"]
    assert ours["mae_log10"] < 0.7 * constant["mae_log10"]
    assert ours["auc_1h"] > 0.85
    # What ends after the last refit may be anything: no prediction may move.
    late = rows.end_time >= start + 3 * day
    garbled = replace(rows, y=np.where(late, 1.0, rows.y))
    again = evaluate_duration(
        garbled, test_from=start, refit_every_s=3 * day, user=user, lightgbm=False
    )
    assert (again.scores["ga2m"] == result.scores["ga2m"]).all()
    with pytest.raises(TrainingError, match="no ended job"):
        evaluate_duration(rows, test_from=rows.time[-1] + day)
    with pytest.raises(TrainingError, match="ended jobs to learn from"):
        evaluate_duration(rows, test_from=rows.time[0])


def test_tail_auc_is_the_mean_of_both_tails(rows, fitted):
    metrics = duration_metrics(fitted.model.score_batch(rows.X), rows.y, rows.gpus)
    assert tail_auc(rows)(fitted.model) == pytest.approx(
        (metrics["auc_1h"] + metrics["auc_6h"]) / 2
    )
    brief = rows.where(rows.y < 20_000)
    one = duration_metrics(fitted.model.score_batch(brief.X), brief.y, brief.gpus)["auc_1h"]
    assert tail_auc(brief)(fitted.model) == one


def test_the_same_jobs_are_the_same_rows_whatever_is_known_of_them(rows):
    digest = rows_digest(rows)
    assert rows_digest(replace(rows, X=rows.X[["gpus"]])) == digest
    assert rows_digest(replace(rows, y=rows.y + 1)) != digest
    assert rows_digest(rows.where(rows.time > rows.time[0])) != digest
