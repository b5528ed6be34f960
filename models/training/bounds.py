"""Bounds every term of a model to the range of the training rows.

Boosting and blending leave curves that continue where no row was: extended as straight lines, they
could reach any size. Here a curve ends where the data ends, and a feature with only one value has
no term.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import AdditiveModel, Term
from models.training.errors import TrainingError

Floats = NDArray[np.float64]
SEEN = "seen"  # entry of a bundle's metadata: the least and the greatest value of each feature


def bounded(model: AdditiveModel) -> AdditiveModel:
    """Return the model with each term changed in bins without training rows: there it has its score
    at the nearest bin with rows.

    Beyond the first and the last bin with rows a term has the score of that bin. A bin that stands
    for missing or unknown values and had no row has the mean of the others. A feature with all rows
    in one bin loses its term; its score there is added to the intercept. A monotone term stays
    monotone.
    """
    rows = {t.features[0]: t.weights for t in model.terms if len(t.features) == 1}
    still = {i for i, weights in rows.items() if np.count_nonzero(weights) < 2}
    intercept, terms = model.intercept, []
    for term in model.terms:
        if still.isdisjoint(term.features):
            terms.append(_within(model, term, rows))
        elif len(term.features) == 1 and rows[term.features[0]].any():
            intercept += float(term.scores[np.argmax(term.weights)])
    return AdditiveModel(model.axes, terms, intercept, model.link)


def _within(model: AdditiveModel, term: Term, rows: Mapping[int, Floats]) -> Term:
    scores, spread = term.scores.copy(), term.spread.copy()
    for along, i in enumerate(term.features):
        at, bins = np.arange(scores.shape[along]), np.flatnonzero(rows[i])
        numbers = bins[bins > 0]
        if model.axes[i].spec.kind == "continuous" and len(numbers):
            at[1:] = np.clip(at[1:], numbers[0], numbers[-1])
        nobody = np.setdiff1d(_apart(model, i), bins)
        share = rows[i] / rows[i].sum()
        scores, spread = (np.take(of, at, axis=along) for of in (scores, spread))
        for of in (scores, spread):
            np.moveaxis(of, along, 0)[nobody] = np.tensordot(share, of, axes=(0, along))
    return replace(term, scores=scores, spread=spread)


def _apart(model: AdditiveModel, i: int) -> list[int]:
    """Return the bins of feature `i` that have no place in the order of the others: the bin of
    missing values, and for a nominal feature also that of unknown categories."""
    axis = model.axes[i]
    return [0] if axis.spec.kind == "continuous" else [0, axis.size - 1]


def seen(model: AdditiveModel, columns: Any) -> dict[str, list[float]]:
    """Return the least and the greatest value, in training, of each continuous feature that has a
    term: {name: [least, greatest]}.

    Args:
        columns: training rows, by feature name.

    Raises TrainingError when a feature is not among the columns.
    """
    used = sorted({i for term in model.terms for i in term.features})
    found = {}
    for spec in (model.axes[i].spec for i in used if model.axes[i].spec.kind == "continuous"):
        if spec.name not in columns:
            raise TrainingError(f"feature {spec.name!r} is not among the columns")
        values = np.asarray(columns[spec.name], np.float64)
        values = values[np.isfinite(values)]
        if len(values):
            found[spec.name] = [float(f"{values.min():.6g}"), float(f"{values.max():.6g}")]
    return found
