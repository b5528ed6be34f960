"""The reader and scorer of additive models, on models drawn at random."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, BundleError, Term

NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-5, 5) | st.none()
NAMES = st.none() | st.sampled_from(["a", "b", "c", "", "new", "Ω"]) | st.text(max_size=3)


@st.composite
def models(draw: st.DrawFn) -> AdditiveModel:
    axes = []
    for i in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            cuts = draw(st.lists(st.floats(-5, 5), max_size=5, unique=True).map(sorted))
            axes.append(Axis(FeatureSpec(f"f{i}", "continuous", "x"), cuts=tuple(cuts)))
        else:
            names = draw(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=4, unique=True))
            axes.append(Axis(FeatureSpec(f"f{i}", "nominal", "x"), categories=tuple(names)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys: list[tuple[int, ...]] = [(i,) for i in range(len(axes))]
    keys += [(i, j) for i in range(len(axes)) for j in range(len(axes)) if i < j][:3]
    terms = []
    for key in keys:
        shape = tuple(axes[i].size for i in key)
        scores = rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9)
        terms.append(Term(key, scores, rng.integers(0, 9, shape).astype(float), np.zeros(shape)))
    return AdditiveModel(axes, terms, float(rng.normal()))


@st.composite
def models_and_rows(draw: st.DrawFn) -> tuple[AdditiveModel, list[tuple]]:
    model = draw(models())
    kinds = [NUMBERS if s.kind == "continuous" else NAMES for s in model.features]
    return model, draw(st.lists(st.tuples(*kinds), min_size=1, max_size=8))


@given(models_and_rows())
def test_terms_sum_to_the_score_and_rows_agree_with_batches(case):
    model, rows = case
    columns = {
        spec.name: pd.Series([row[i] for row in rows], dtype=object)
        for i, spec in enumerate(model.features)
    }
    batch, terms = model.score_batch(columns), model.terms_batch(columns)
    for row, score, row_terms in zip(rows, batch, terms, strict=True):
        told = model.explain(row)
        total = told.intercept
        for term in told.terms:
            total += term
        assert told.score == total == score
        assert told.terms == tuple(row_terms)
        exact = math.fsum((told.intercept, *told.terms))
        assert told.score == pytest.approx(exact, abs=1e-9, rel=1e-12)


@given(models_and_rows())
def test_a_value_lands_in_the_bin_whose_label_holds_it(case):
    model, rows = case
    for row in rows:
        for axis, value in zip(model.axes, row, strict=True):
            place = axis.finder()(value)
            label = axis.labels()[place]
            if value is None or value != value:
                assert label == "missing"
            elif axis.spec.kind == "nominal":
                assert label == (value if value in axis.categories else "unknown")
                assert place == axis.size - 1 or value in axis.categories
            else:
                assert all(cut <= value for cut in axis.cuts[: place - 1])
                assert all(cut > value for cut in axis.cuts[place - 1 :])


def small_model() -> AdditiveModel:
    axis = Axis(FeatureSpec("gpus", "continuous", "size"), cuts=(2.0,))
    kind = Axis(FeatureSpec("gpu_type", "nominal", "size"), categories=("A100",))
    one = Term((0,), np.array([0.0, 1.0, 2.0]), np.array([0.0, 3.0, 1.0]), np.zeros(3))
    two = Term((1,), np.array([0.5, -1.0, 0.0]), np.array([1.0, 3.0, 0.0]), np.zeros(3))
    return AdditiveModel([axis, kind], [one, two], 4.0)


def test_a_score_is_what_the_tables_say():
    model = small_model()
    assert model.explain((1.0, "A100")) == (4.0, 4.0, (1.0, -1.0))
    assert model.explain((2.0, None)) == (6.5, 4.0, (2.0, 0.5))  # a cut belongs to the right
    assert model.explain((math.nan, "H200")) == (4.0, 4.0, (0.0, 0.0))
    assert model.explain((math.nan, "A100")).terms == (0.0, -1.0)
    assert model.seconds(4.0) == pytest.approx(math.expm1(4.0))
    assert model.seconds(-3.0) == 0.0
    assert model.importances() == {"gpus": 1.25, "gpu_type": 0.875}


def test_a_term_knows_the_bins_that_rows_fell_in_and_those_beside():
    def seen(weights):
        held = np.array(weights, dtype=float)
        return list(Term((0,), held, held, held).seen())

    assert seen([0, 0, 0, 3, 0, 2, 0, 0]) == [2, 3, 4, 5, 6]
    assert seen([9, 4, 0, 0]) == [1, 2]
    assert seen([9, 0, 0]) == [1, 2]  # nobody's: as it is
    assert seen([0, 1]) == [1]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((1.0,), "1 values"),
        (("x", "A100"), "'gpus' is 'x'"),
        ((1.0, 3), "'gpu_type' is 3"),
        ((1.0, ["A100"]), "'gpu_type' is"),
    ],
)
def test_a_row_of_the_wrong_kind_is_named(row, says):
    with pytest.raises(BundleError, match=says) as caught:
        small_model().explain(row)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"gpus": [1.0]}, "'gpu_type' is not among"),
        ({"gpus": [1.0], "gpu_type": ["a", "b"]}, "differ in length"),
        ({"gpus": ["x"], "gpu_type": ["a"]}, "'gpus' must hold numbers"),
        ({"gpus": [1.0], "gpu_type": [3]}, "'gpu_type' must hold strings"),
    ],
)
def test_columns_of_the_wrong_kind_are_named(columns, says):
    with pytest.raises(BundleError, match=says):
        small_model().score_batch(columns)


def test_parts_that_do_not_fit_are_refused():
    axis = Axis(FeatureSpec("gpus", "continuous", "size"), cuts=(2.0,))
    fits = Term((0,), np.zeros(3), np.zeros(3), np.zeros(3))
    with pytest.raises(BundleError, match="shape"):
        AdditiveModel([axis], [Term((0,), np.zeros(4), np.zeros(4), np.zeros(4))], 0.0)
    with pytest.raises(BundleError, match="do not exist"):
        AdditiveModel([axis], [Term((1,), np.zeros(3), np.zeros(3), np.zeros(3))], 0.0)
    with pytest.raises(BundleError, match="not finite"):
        AdditiveModel([axis], [Term((0,), np.full(3, np.nan), np.zeros(3), np.zeros(3))], 0.0)
    with pytest.raises(BundleError, match="twice"):
        AdditiveModel([axis], [fits, fits], 0.0)
    with pytest.raises(BundleError, match="do not increase"):
        Axis(FeatureSpec("gpus", "continuous", "size"), cuts=(2.0, 2.0))
