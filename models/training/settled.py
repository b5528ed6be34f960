"""Rounds fitted tables so that every processor gives the same ones.

Fitted floats differ in their last bits from processor to processor: BLAS and NumPy choose their
instructions by processor. Here the floats are rounded to a grid so coarse that such a difference
vanishes, and so fine that no prediction changes by a ten-thousandth. The grid is a power of two: a
score is the exact sum of its terms, in whatever order they are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.bundle import AdditiveModel, Bundle, Term
from models.bundle.arrivals import ArrivalModel
from models.bundle.packing import PairSpeedModel
from models.bundle.tree import Tree

Floats = NDArray[np.float64]

GRID = 2.0**-20  # of ln(1 + seconds), about a millionth
DECIMALS = 6  # of what is no score


def settled(bundle: Bundle) -> Bundle:
    """Return the bundle with the scores of its models of durations and arrivals, and the speeds of
    its tree of pair speeds, rounded to multiples of `GRID`.

    Settings of the arrivals model are rounded to `DECIMALS` decimals. Other models and the metadata
    do not change.
    """
    parts: dict[str, Any] = {name: getattr(bundle, name) for name in bundle.parts}
    if "duration" in parts:
        parts["duration"] = settled_model(parts["duration"])
    if "pair_speed" in parts:
        parts["pair_speed"] = PairSpeedModel(_settled_tree(parts["pair_speed"].tree))
    if "arrivals" in parts:
        settings, models = parts["arrivals"].parts()
        parts["arrivals"] = ArrivalModel.from_parts(
            _settled_json(settings), {name: settled_model(model) for name, model in models.items()}
        )
    return Bundle(**parts, metadata=bundle.metadata, created_by=bundle.created_by)


def settled_model(model: AdditiveModel) -> AdditiveModel:
    """Return the model with its scores rounded to multiples of `GRID`.

    If rounding makes the score not monotone in a feature that must be, its main effect is
    corrected.
    """
    terms = [
        replace(term, scores=on_grid(term.scores), spread=on_grid(term.spread))
        for term in model.terms
    ]
    for i, axis in enumerate(model.axes):
        if axis.spec.monotone:
            _mended(terms, i, axis.spec.monotone, before=model.terms)
    return AdditiveModel(model.axes, terms, float(on_grid(model.intercept)), model.link)


def on_grid(values: Any) -> Floats:
    """Return the values rounded to multiples of `GRID`, where -0.0 becomes 0.0."""
    return np.asarray(np.round(np.asarray(values, dtype=np.float64) / GRID) * GRID + 0.0)


def least_steps(terms: Sequence[Term], i: int, direction: int) -> Floats:
    """Return, for each cut of feature `i`, the smallest change of the score across that cut over
    all values of the other features. It is positive where the score goes in `direction` (+1 rising,
    -1 falling). The array is empty if no term has the feature."""
    total: Floats = np.zeros(0)
    for term in terms:
        if i not in term.features:
            continue
        tensor = np.moveaxis(term.scores, term.features.index(i), 0)[1:] * direction
        step = np.diff(tensor, axis=0)
        least = step if step.ndim == 1 else step.min(axis=1)
        total = least if not total.size else total + least
    return total


def _mended(terms: list[Term], i: int, direction: int, *, before: Sequence[Term]) -> None:
    """Correct the main effect of feature `i`, in place, where rounding made the score not monotone.

    Each term was rounded alone, so the score may go back by a few grid steps where it was constant
    `before` rounding. Where it went back before rounding, too, nothing is corrected.
    """
    place = next((k for k, term in enumerate(terms) if term.features == (i,)), None)
    steps, were = least_steps(terms, i, direction), least_steps(before, i, direction)
    if place is None or not steps.size:
        return
    lost = np.where(were > -GRID / 2, np.maximum(-steps, 0.0), 0.0)
    scores = terms[place].scores.copy()
    scores[2:] += direction * np.cumsum(lost)
    terms[place] = replace(terms[place], scores=scores)


def _settled_tree(tree: Tree) -> Tree:
    return Tree(
        tree.features,
        [replace(node, value=tuple(on_grid(node.value).tolist())) for node in tree.nodes],
    )


def _settled_json(value: Any) -> Any:
    """Return plain JSON with floats rounded to `DECIMALS` decimals."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, dict):
        return {key: _settled_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_settled_json(one) for one in value]
    return value
