"""Purification: moves everything that a single feature can express out of a term of two features.

The table of a pair can hide main effects: if r is added to one of its rows and taken from the main
effect, the predictions are the same, but the curves are not. The functional ANOVA makes the tables
unique: every row and column of a pair has the weighted mean zero. Lengerich et al., "Purifying
interaction effects with the functional ANOVA", AISTATS 2020 (arXiv:1911.04974).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def purify_pair(scores: Floats, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return tables of a pair of features, each split into four parts that add up to it: pure
    interaction, effects of the rows, effects of the columns, constant.

    The weighted two-way additive fit: rows and columns solve its normal equations, in one step
    instead of the paper's alternating passes.

    Args:
        scores: (tensors, I, J), all split by the same weights.
        weights: (I, J), rows of training data per cell, >= 0.

    Returns:
        pure (tensors, I, J), rows (tensors, I), columns (tensors, J), constant (tensors,).
        Weighted means of each row and column of `pure`, of `rows` and of `columns` are zero;
        a row or column without training rows is centred by the other feature's totals.
    """
    total = weights.sum()
    if total <= 0:
        weights = np.ones_like(weights)
        total = weights.sum()
    w = weights / total
    by_row, by_column = w.sum(axis=1), w.sum(axis=0)
    system = np.block([[np.diag(by_row), w], [w.T, np.diag(by_column)]])
    sums = np.concatenate([(scores * w).sum(axis=2), (scores * w).sum(axis=1)], axis=1)
    effects = np.linalg.lstsq(system, sums.T, rcond=None)[0].T
    rows, columns = effects[:, : len(by_row)], effects[:, len(by_row) :]
    rows[:, by_row == 0] = (scores - columns[:, None, :])[:, by_row == 0] @ by_column
    columns[:, by_column == 0] = np.einsum(
        "tij,i->tj", (scores - rows[:, :, None])[:, :, by_column == 0], by_row
    )
    row_mean, column_mean = rows @ by_row, columns @ by_column
    rows -= row_mean[:, None]
    columns -= column_mean[:, None]
    constant = row_mean + column_mean
    pure = scores - rows[:, :, None] - columns[:, None, :] - constant[:, None, None]
    return pure, rows, columns, constant
