"""Makes a fitted model monotone in given features.

Constraining an EBM while it boosts keeps interactions off the constrained features, and lets a
correlated feature take over what the constrained one may not say. So the model is fitted without
constraints and flattened afterwards: main effects by isotonic regression weighted by training rows,
then each pair, so that its sum with its share of the main effect never goes the wrong way. Then the
whole score is monotone in the feature, interactions included, and not only the main effect.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Floats = NDArray[np.float64]
Tensors = dict[tuple[int, ...], Floats]


def monotonise(
    scores: Tensors, weights: Mapping[tuple[int, ...], Floats], directions: Mapping[int, int]
) -> tuple[Tensors, set[tuple[int, ...]]]:
    """Return shape functions flattened until the score is monotone in every feature of
    `directions`.

    Args:
        scores: table of each term; keys are feature positions. Bin 0 (missing values) has no order
            and does not change. A feature in `directions` must be continuous and have a main
            effect.
        weights: number of training rows in each cell of each term.
        directions: +1 (never falls) or -1 (never rises) by feature.

    Returns:
        the new tables, and the keys of those that changed.
    """
    result = dict(scores)
    for i, direction in directions.items():
        main = result[(i,)].copy()
        main[1:] = _isotonic(main[1:], weights[(i,)][1:], direction)
        result[(i,)] = main
    pairs = [key for key in scores if len(key) == 2]
    uses = {i: sum(i in key for key in pairs) for i in directions}
    for key in pairs:
        ordered = [(axis, i) for axis, i in enumerate(key) if i in directions]
        # Each pair answers for its share of the mains: shares that are monotone sum to a
        # monotone score. Signs turn "never rises" into "never falls".
        tensor = result[key].copy()
        for axis, i in ordered:
            tensor += _along(result[(i,)] / uses[i], axis)
        for axis, i in ordered:
            tensor = _isotonic_along(tensor, weights[key], axis, directions[i])
        if len(ordered) == 2:  # the second pass may have bent the first direction again
            tensor = _cumulative(tensor, directions[ordered[0][1]])
        for axis, i in ordered:
            tensor -= _along(result[(i,)] / uses[i], axis)
        result[key] = tensor
    changed = {key for key in scores if not np.allclose(result[key], scores[key], atol=1e-9)}
    return result, changed


def _along(values: Floats, axis: int) -> Floats:
    return values[:, None] if axis == 0 else values[None, :]


def _isotonic(values: Floats, weights: Floats, direction: int) -> Floats:
    if len(values) < 2:
        return values
    # Empty bins weigh next to nothing, but must weigh something.
    fitted = isotonic_regression(
        values, weights=np.maximum(weights, 1e-3), increasing=direction > 0
    )
    return np.asarray(fitted.x, dtype=np.float64)


def _isotonic_along(tensor: Floats, weights: Floats, axis: int, direction: int) -> Floats:
    lines, line_weights = np.moveaxis(tensor, axis, 1).copy(), np.moveaxis(weights, axis, 1)
    for line, weight in zip(lines, line_weights, strict=True):
        line[1:] = _isotonic(line[1:], weight[1:], direction)
    return np.moveaxis(lines, 1, axis)


def _cumulative(tensor: Floats, direction: int) -> Floats:
    """Return a copy that is monotone along axis 0: the running maximum (`direction` > 0) or
    minimum. Where the tensor is ordered along axis 1, the copy is, too. Bin 0 (missing values) does
    not change."""
    extreme = np.maximum if direction > 0 else np.minimum
    tensor = tensor.copy()
    tensor[1:] = extreme.accumulate(tensor[1:], axis=0)
    return tensor
