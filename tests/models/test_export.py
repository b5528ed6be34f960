"""Exported tables against the model they came from."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.training.blocks import block_bags, time_blocks
from models.training.duration import fit_duration
from models.training.export import additive_model
from models.training.monotone import monotonise
from models.training.purify import purify_pair


@pytest.fixture(scope="module")
def free_specs(specs):
    """The same features with nothing promised."""
    return tuple(replace(spec, monotone=0) for spec in specs)


@pytest.fixture(scope="module")
def strange_rows(fitted, make_frame) -> pd.DataFrame:
    """10,000 rows with missing values, unseen categories, infinities, and every cut itself."""
    X = make_frame(10_000, 9, novel=True)
    for axis in fitted.model.axes:
        if axis.cuts:
            at = np.arange(3, 3 + len(axis.cuts)) * 7
            X.loc[at, axis.spec.name] = axis.cuts
    return X


def test_the_export_agrees_with_interpret(fitted, training, strange_rows, free_specs):
    free = additive_model(fitted.ebm, training[0], free_specs)
    assert sum(len(term.features) == 2 for term in free.terms) == 5
    predicted = fitted.ebm.predict(strange_rows)
    assert np.ptp(predicted) > 3  # there is something to agree on
    assert np.abs(free.score_batch(strange_rows) - predicted).max() < 1e-9
    for row in strange_rows.head(300).itertuples(index=False, name=None):
        told = free.explain(row)
        assert told.intercept + sum(told.terms) == pytest.approx(told.score, abs=1e-9)


def test_the_error_of_a_term_is_as_large_as_what_other_samples_make_of_it(make_frame, specs):
    """One standard error holds what the fits on other samples come to in two cases of three."""
    rows, fits = make_frame(500, 99), []
    for seed in range(5):
        X, noise = make_frame(2000, seed), np.random.default_rng(seed).normal(0, 0.5, 2000)
        log = 0.5 * np.log1p(X["user_ewma_s"].fillna(100.0)) + 0.2 * np.log2(X["gpus"]) + noise
        y = np.expm1(np.clip(log, 0, 15)).to_numpy()
        fits.append(fit_duration(X, y, np.arange(2000.0), specs, seed=1))
    held = []
    for name in ("user_ewma_s", "gpus", "submit_hour"):
        found = [_of_rows(fit.model, name, rows) for fit in fits]
        for i, (own, error) in enumerate(found):
            others = np.mean([scores for j, (scores, _) in enumerate(found) if j != i], axis=0)
            held.append(np.mean(np.abs(own - others) <= error))
    assert 0.5 < np.mean(held) < 0.85


def _of_rows(model, name, rows):
    """What a term adds to each row, and its error there."""
    term = model.terms[model.term_names.index(name)]
    axis = model.axes[term.features[0]]
    bins = axis.bins(rows[name])
    return term.scores[bins], term.spread[bins]


def test_pairs_hold_no_main_effect_and_mains_no_constant(fitted):
    for term in fitted.model.terms:
        if len(term.features) == 1:
            assert term.scores @ term.weights == pytest.approx(0.0, abs=1e-6)
        else:
            weighted = term.scores * term.weights
            assert np.abs(weighted.sum(axis=0)).max() < 1e-6
            assert np.abs(weighted.sum(axis=1)).max() < 1e-6


@given(
    arrays(np.float64, (4, 3), elements=st.floats(-10, 10)),
    arrays(np.float64, (4, 3), elements=st.integers(0, 9)),
)
def test_purification_moves_and_loses_nothing(scores, weights):
    pure, rows, columns, constant = purify_pair(scores[None], weights)
    back = pure + rows[:, :, None] + columns[:, None, :] + constant[:, None, None]
    assert np.allclose(back[0], scores, atol=1e-9)
    assert np.abs((pure[0] * weights).sum(axis=0)).max() < 1e-7
    assert np.abs((pure[0] * weights).sum(axis=1)).max() < 1e-7


@pytest.mark.parametrize(("name", "direction"), [("time_limit_s", 1), ("patience", -1)])
def test_the_whole_score_is_monotone_in_a_promised_feature(
    fitted, training, specs, free_specs, make_frame, name, direction
):
    X = make_frame(400, 5, novel=True)
    i = [spec.name for spec in specs].index(name)
    in_pairs = [t for t in fitted.model.terms if len(t.features) == 2 and i in t.features]
    assert in_pairs  # the promise has to hold through interactions
    worst = []
    for model in (fitted.model, additive_model(fitted.ebm, training[0], free_specs)):
        cuts = model.axes[i].cuts
        path = np.stack([model.score_batch(X.assign(**{name: v})) for v in (cuts[0] - 1, *cuts)])
        worst.append((np.diff(path, axis=0) * direction).min())
    assert worst[0] > -1e-9
    assert fitted.model.terms[fitted.model.term_names.index(name)].origin == "monotone"
    assert name in fitted.metadata["monotone_terms"]
    assert worst[1] < -0.05  # the free model does break the promise


@given(
    arrays(np.float64, 5, elements=st.floats(-5, 5)),
    arrays(np.float64, 4, elements=st.floats(-5, 5)),
    arrays(np.float64, (5, 4), elements=st.floats(-5, 5)),
    st.sampled_from([{0: 1}, {1: -1}, {0: 1, 1: 1}, {0: 1, 1: -1}, {0: -1, 1: -1}]),
)
def test_monotone_in_one_or_both_features_of_a_pair(first, second, pair, directions):
    scores = {(0,): first, (1,): second, (0, 1): pair}
    weights = {key: np.ones_like(value) for key, value in scores.items()}
    flat, _ = monotonise(copy.deepcopy(scores), weights, directions)
    total = flat[(0,)][:, None] + flat[(1,)][None, :] + flat[(0, 1)]
    for axis, direction in directions.items():
        ordered = np.moveaxis(total, axis, 0)[1:]
        assert (np.diff(ordered, axis=0) * direction).min() > -1e-9
    again, changed = monotonise(flat, weights, directions)
    assert not changed
    assert all(np.allclose(again[key], flat[key], atol=1e-7) for key in flat)


@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=200), st.integers(2, 8))
def test_bags_hold_out_whole_stretches_of_time(times, bags):
    time = np.array(times)
    bag = block_bags(time, bags)
    assert bag.shape == (len(time), bags)
    assert ((bag == -1).sum(axis=1) == 1).all()  # every row is held out exactly once
    assert ((bag == -1).any(axis=0) & (bag == 1).any(axis=0)).all()
    block = time_blocks(time, bags * 4)
    if block.max() + 1 >= bags:
        for held_out in (bag == -1).T:
            for b in range(block.max() + 1):
                assert len(set(held_out[block == b])) <= 1


def test_blocks_of_time_keep_a_burst_together():
    time = np.concatenate([np.arange(500.0), np.full(500, 600.0), 700 + np.arange(500.0)])
    assert len(set(time_blocks(time, 16)[500:1000])) == 1
