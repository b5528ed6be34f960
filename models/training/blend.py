"""Blends a trained model with the histories of similar jobs, so that predictions change smoothly as
more jobs are seen.

The sum of some `survival` features is itself an estimate of a job's duration, usable from the first
job on. The GA2M (the trained additive model) is mixed with it: score = weight * GA2M + (1 - weight)
* sum, with a weight that grows with the number of jobs seen. Both are additive, so the mixture is
one GA2M. Its terms of those features include their share of the sum, on a fine grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from models.bundle import AdditiveModel, Axis, Term

# Width of a bin of a feature's own share, in its own unit (ln seconds), and where bins lie.
STEP = 0.05
_GRID = np.round(np.arange(-9.0, 14.0, STEP), 9)


def blended(
    model: AdditiveModel, features: Sequence[str], weight: float, frame: pd.DataFrame
) -> AdditiveModel:
    """Return a model with the score `weight` times that of `model` plus (1 - weight) times the sum
    of `features`.

    Args:
        model: the trained model; its score has the unit of `features`.
        features: names of continuous features; their sum estimates what the score predicts.
        weight: weight of the model, 0 to 1.
        frame: rows that show how often values of the features fall into each bin; may be empty.
    """
    terms = [_scaled(term, weight) for term in model.terms]
    mixed = AdditiveModel(model.axes, terms, weight * model.intercept, model.link)
    for feature in features:
        mixed = _with_share(mixed, feature, 1.0 - weight, frame)
    return mixed


def _with_share(
    model: AdditiveModel, feature: str, share: float, frame: pd.DataFrame
) -> AdditiveModel:
    """Return the model with `share` times the value of one of its continuous features added to its
    score; a missing value adds nothing.

    Args:
        frame: rows that show how often values of the feature fall into each bin.
    """
    i = next(i for i, spec in enumerate(model.features) if spec.name == feature)
    old = model.axes[i]
    cuts = np.unique(np.concatenate([_GRID, np.array(old.cuts)]))
    axis = Axis(old.spec, cuts=tuple(cuts.tolist()))
    origin = np.concatenate(
        [[0], np.searchsorted(np.array(old.cuts), np.array([-np.inf, *cuts]), side="right") + 1]
    )
    bins = axis.bins(frame[feature])
    terms = list(model.terms)
    for k, term in enumerate(terms):
        if i in term.features:
            along = term.features.index(i)
            terms[k] = replace(
                term,
                scores=np.take(term.scores, origin, axis=along),
                spread=np.take(term.spread, origin, axis=along),
                weights=_split(term.weights, origin, along, bins),
            )
    own = np.concatenate([[0.0, cuts[0] - STEP / 2], cuts + np.diff(cuts, append=cuts[-1]) / 2])
    own *= share
    counts = np.bincount(bins, minlength=axis.size).astype(np.float64)
    centre = float(own @ counts / counts.sum()) if counts.sum() else 0.0
    own = np.concatenate([[0.0], own[1:] - centre])  # unknown: as the average
    place = next((k for k, term in enumerate(terms) if term.features == (i,)), None)
    if place is None:
        terms.insert(0, Term((i,), own, counts, np.zeros(axis.size)))
    else:
        main = terms[place]
        terms[place] = replace(main, scores=main.scores + own)
    axes = [axis if a is old else a for a in model.axes]
    return AdditiveModel(axes, terms, model.intercept + centre, model.link)


def _scaled(term: Term, weight: float) -> Term:
    return replace(term, scores=term.scores * weight, spread=term.spread * weight)


def _split(
    weights: NDArray[np.float64], origin: NDArray[np.intp], along: int, bins: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return counts of rows, over the finer bins of one axis. The count of each old bin is divided
    among its new bins in proportion to the rows in `bins`, or equally if it has none.

    Args:
        weights: counts over the old bins of all axes.
        origin: for each new bin, the old bin that it lies in.
        along: number of the axis.
        bins: for each row, its new bin.
    """
    fine = np.bincount(bins, minlength=len(origin)).astype(np.float64)
    coarse = np.bincount(origin, weights=fine, minlength=weights.shape[along])
    size = np.bincount(origin, minlength=weights.shape[along])
    part = np.where(
        coarse[origin] > 0, fine / np.maximum(coarse[origin], 1e-300), 1.0 / size[origin]
    )
    shape = [1] * weights.ndim
    shape[along] = -1
    return np.asarray(np.take(weights, origin, axis=along) * part.reshape(shape))
