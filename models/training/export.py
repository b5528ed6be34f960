"""Converts a fitted EBM (interpret's explainable boosting machine) to the tables of an
`AdditiveModel`.

An EBM may cut one feature differently in its main effect and in its pairs. Here every feature gets
the union of its cuts, and every table is spread over them. The predictions stay the same, and what
purification moves from a pair to a main effect has bins there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from numpy.typing import NDArray

from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Term
from models.training.interactions import surviving
from models.training.monotone import monotonise
from models.training.purify import purify_pair

Floats = NDArray[np.float64]


class HeldOut(NamedTuple):
    """Which rows each bag of a fit held out. Pairs of features are tested on these rows.

    Attributes:
        y: target of the rows, (n,).
        bags: -1 where the bag was not fitted on the row, (n, bags).
        block: number of the stretch of time that each row lies in, (n,).
        seed: seed of the bootstrap.
    """

    y: Floats
    bags: NDArray[np.int8]
    block: NDArray[np.int64]
    seed: int


def additive_model(
    ebm: Any,
    X: pd.DataFrame,
    specs: Sequence[FeatureSpec],
    *,
    link: str = "log1p",
    held_out: HeldOut | None = None,
) -> AdditiveModel:
    """Return the fitted `ebm` as an additive model: monotone in the features whose specs ask for
    it, purified and centred.

    Args:
        ebm: a fitted ExplainableBoostingRegressor, or ExplainableBoostingClassifier of two classes.
        X: the rows that it was fitted on; they are counted in each bin. Columns as in `specs`.
        specs: the features, in the order the EBM was fitted with.
        link: what the score means, see `AdditiveModel`.
        held_out: pairs of features that do not lower the error on these rows are dropped; None
            keeps all pairs.
    """
    axes = [_axis(ebm, i, spec) for i, spec in enumerate(specs)]
    bins = [axis.bins(X[axis.spec.name]) for axis in axes]
    fitted: list[tuple[int, ...]] = [tuple(key) for key in ebm.term_features_]
    mains: set[tuple[int, ...]] = {(i,) for key in fitted for i in key}
    keys = sorted(mains.union(fitted), key=lambda key: (len(key), key))
    weights = {key: _counts([bins[i] for i in key], [axes[i].size for i in key]) for key in keys}
    # stacks: the model itself first, then each of its bags
    stacks = {key: np.zeros((1 + len(ebm.bagged_scores_[0]), *weights[key].shape)) for key in keys}
    for term, key in enumerate(fitted):
        stacks[key] = _spread_out(ebm, term, axes)
    if held_out is not None:
        intercepts = np.ravel(ebm.bagged_intercept_).astype(np.float64)
        kept = surviving(
            stacks,
            weights,
            bins,
            intercepts,
            y=held_out.y,
            bags=held_out.bags,
            block=held_out.block,
            seed=held_out.seed,
        )
        keys = [key for key in keys if len(key) == 1 or key in kept]
        stacks = {key: stacks[key] for key in keys}
    directions = {i: s.monotone for i, s in enumerate(specs) if s.monotone and (i,) in stacks}
    flat, changed = monotonise({key: stacks[key][0] for key in keys}, weights, directions)
    for key in keys:
        stacks[key][0] = flat[key]
    shift = purified(stacks, weights)
    terms = [
        Term(
            features=key,
            scores=stacks[key][0].copy(),
            weights=weights[key],
            spread=_error(stacks[key][1:]),
            origin="monotone" if key in changed else "fit",
        )
        for key in keys
    ]
    return AdditiveModel(axes, terms, float(np.asarray(ebm.intercept_).item()) + shift, link)


def _error(bags: Floats) -> Floats:
    """Return the standard error of every bin, from the fits of the bags, (bags, ...).

    It is the jackknife's (Efron and Stein, Annals of Statistics 9, 1981): each bag lacks a part of
    the rows, and any two share most.
    """
    error: Floats = bags.std(axis=0) * math.sqrt(len(bags) - 1)
    return error


def purified(
    stacks: dict[tuple[int, ...], Floats], weights: dict[tuple[int, ...], Floats]
) -> float:
    """Move main effects out of pairs and constants out of mains, in place. Return the constant.

    Args:
        stacks: several tables per term, (tables, bins[, bins]); the returned constant is that of
            the first table.
        weights: number of training rows in each cell of each term.
    """
    shift = 0.0
    for key in [key for key in stacks if len(key) == 2]:
        pure, rows, columns, constant = purify_pair(stacks[key], weights[key])
        stacks[key] = pure
        stacks[(key[0],)] += rows
        stacks[(key[1],)] += columns
        shift += float(constant[0])
    for main in [key for key in stacks if len(key) == 1]:
        mean = stacks[main] @ weights[main] / weights[main].sum()
        stacks[main] -= mean[:, None]
        shift += float(mean[0])
    return shift


def _axis(ebm: Any, i: int, spec: FeatureSpec) -> Axis:
    levels = ebm.bins_[i]
    if spec.kind == "continuous":
        cuts = np.unique(np.concatenate([np.asarray(level, dtype=np.float64) for level in levels]))
        return Axis(spec, cuts=tuple(cuts.tolist()))
    names = dict.fromkeys(name for level in levels for name in sorted(level, key=level.get))
    return Axis(spec, categories=tuple(names))


def _spread_out(ebm: Any, term: int, axes: Sequence[Axis]) -> Floats:
    """Return the tables of one term of `ebm` on the axes common to all bags, an array (1 + bags,
    bins[, bins]): first the whole model's scores, then each bag's."""
    key = ebm.term_features_[term]
    stack = np.concatenate([ebm.term_scores_[term][None], ebm.bagged_scores_[term]])
    for position, i in enumerate(key):
        levels = ebm.bins_[i]
        level = levels[min(len(levels), len(key)) - 1]
        stack = np.take(stack, _origin(axes[i], level), axis=position + 1)
    return stack


def _origin(axis: Axis, level: Any) -> NDArray[np.intp]:
    """Return, for each bin of `axis`, the number of the EBM's own bin that it lies in.

    Args:
        level: the EBM's bins: cuts of a continuous feature, or categories with their numbers.
    """
    if axis.spec.kind == "nominal":
        unknown = max(level.values(), default=0) + 1
        known = [level.get(category, unknown) for category in axis.categories]
        return np.array([0, *known, unknown])
    lower_edges = np.array([-np.inf, *axis.cuts])
    return np.concatenate([[0], np.searchsorted(level, lower_edges, side="right") + 1])


def _counts(bins: list[NDArray[np.intp]], sizes: list[int]) -> Floats:
    flat = bins[0] if len(bins) == 1 else bins[0] * sizes[1] + bins[1]
    return np.bincount(flat, minlength=int(np.prod(sizes))).astype(np.float64).reshape(sizes)


def as_ebm(model: AdditiveModel) -> ExplainableBoostingRegressor:
    """Return the model as an `ExplainableBoostingRegressor` of the package interpret, for use with
    its tools. It predicts the same score, term by term (for durations: ln(1 + seconds))."""
    ebm = ExplainableBoostingRegressor()
    ebm.feature_names_in_ = [spec.name for spec in model.features]
    ebm.feature_types_in_ = [spec.kind for spec in model.features]
    ebm.n_features_in_ = len(model.features)
    ebm.bins_ = [
        [np.array(axis.cuts, dtype=np.float64)]
        if axis.spec.kind == "continuous"
        else [{name: k for k, name in enumerate(axis.categories, 1)}]
        for axis in model.axes
    ]
    ebm.feature_bounds_ = np.array(
        [(axis.cuts[0], axis.cuts[-1]) if axis.cuts else (np.nan, np.nan) for axis in model.axes]
    )

    def whole(term: Term, values: Floats) -> Floats:
        """Return the table `values` of a term, extended by a bin for unknown values, which
        interpret also has for numeric features."""
        kinds = [model.axes[i].spec.kind for i in term.features]
        return np.pad(values, [(0, int(kind == "continuous")) for kind in kinds])

    ebm.term_features_ = [term.features for term in model.terms]
    ebm.term_names_ = list(model.term_names)
    ebm.term_scores_ = [whole(term, term.scores) for term in model.terms]
    ebm.standard_deviations_ = [whole(term, term.spread) for term in model.terms]
    ebm.bin_weights_ = [whole(term, term.weights) for term in model.terms]
    ebm.bagged_scores_ = [scores[None] for scores in ebm.term_scores_]
    ebm.intercept_ = model.intercept
    ebm.bagged_intercept_ = np.array([model.intercept])
    ebm.bag_weights_ = np.array([sum(t.weights.sum() for t in model.terms[:1])])
    ebm.link_, ebm.link_param_, ebm.has_fitted_ = "identity", np.nan, True
    return ebm
