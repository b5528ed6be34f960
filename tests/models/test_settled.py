"""The last bits of a fit, which differ by processor, are no part of a bundle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interpret import develop
from interpret.utils._native import Native

from models.bundle import AdditiveModel, Bundle
from models.training.duration import fit_duration
from models.training.settled import least_steps, settled


def shaken(model: AdditiveModel, seed: int, by: float) -> AdditiveModel:
    """The model as another processor might have fitted it."""
    rng = np.random.default_rng(seed)
    terms = [
        replace(
            term,
            scores=term.scores + rng.uniform(-by, by, term.scores.shape),
            spread=term.spread + rng.uniform(0, by, term.spread.shape),
        )
        for term in model.terms
    ]
    return AdditiveModel(model.axes, terms, model.intercept + by / 3, model.link)


@given(st.integers(0, 2**32 - 1))
def test_a_difference_in_the_last_bits_is_none(bundle, seed):
    parts = {name: getattr(bundle, name) for name in bundle.parts}
    other = Bundle(
        **{**parts, "duration": shaken(bundle.duration, seed, 1e-14)},
        metadata=bundle.metadata,
        created_by=bundle.created_by,
    )
    assert other.digest != bundle.digest
    assert settled(other).digest == settled(bundle).digest
    assert settled(settled(bundle)).digest == settled(bundle).digest


def test_predictions_stay_and_a_score_is_the_exact_sum_in_any_order(bundle, make_frame):
    model, X = settled(bundle).duration, make_frame(2000, 5, novel=True)
    moved = np.abs(model.score_batch(X) - bundle.duration.score_batch(X)).max()
    assert 0 < moved < 1e-4
    for row in X.head(100).itertuples(index=False, name=None):
        told = model.explain(row)
        assert sum(reversed(told.terms)) + told.intercept == told.score


@pytest.mark.parametrize("seed", range(5))
def test_what_was_monotone_stays_so_over_the_whole_score(fitted, specs, seed):
    promised = {i: spec.monotone for i, spec in enumerate(specs) if spec.monotone}
    # steps of nothing at all are where rounding goes wrong
    model = shaken(fitted.model, seed, 1e-12)
    flat = settled(Bundle(duration=model)).duration
    for i, direction in promised.items():
        assert least_steps(fitted.model.terms, i, direction).min() > -1e-9
        assert least_steps(flat.terms, i, direction).min() >= 0


def test_no_fit_uses_what_only_some_processors_have(training, specs):
    X, duration, time = training
    before = develop.get_option("acceleration")
    found = set()
    for flag in (Native.AccelerationFlags_ALL, Native.AccelerationFlags_NONE):
        develop.set_option("acceleration", flag)
        try:
            model = fit_duration(X[:1000], duration[:1000], time[:1000], specs, seed=3).model
            assert develop.get_option("acceleration") == flag, "it is put back"
        finally:
            develop.set_option("acceleration", before)
        found.add(Bundle(duration=model).digest)
    assert len(found) == 1
