"""Which pairs of features survive the days that they were not fitted on.

A pair is found by what is left of the training rows, and jobs come in bursts of near-copies: of
other days other pairs are found. Each bag of a fit holds out stretches of time (`blocks`). What a
pair takes off the squared error there, beyond the main effects of its bag, is drawn again by whole
stretches: a pair that does not help in nearly all draws is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from models.training.purify import purify_pair

Floats = NDArray[np.float64]
Pair = tuple[int, int]

DRAWS = 200
SURVIVE = 0.95  # of the draws in which a pair has to help


def surviving(
    stacks: dict[tuple[int, ...], Floats],
    weights: dict[tuple[int, ...], Floats],
    bins: Sequence[NDArray[np.intp]],
    intercepts: Floats,
    y: Floats,
    bags: NDArray[np.int8],
    block: NDArray[np.int64],
    *,
    seed: int,
) -> set[Pair]:
    """Return the pairs of features that lower the squared error of held-out rows.

    Each bag measures what a pair takes off on the rows that it held out, beyond the main effects.
    The stretches of time are then drawn again with replacement: a pair stays if it helps in
    `SURVIVE` of the draws.

    Args:
        stacks: the tensor of each term, by its features, (1 + bags, bins[, bins]). The first is of
            all bags together, the others are of one each.
        weights: training rows per cell of each term.
        bins: bins of every feature, each (n,).
        intercepts: intercepts of the bags, (bags,).
        y: target, (n,).
        bags: +1 trains, -1 is held out, (n, bags).
        block: stretch of time of each row, (n,).
        seed: seed of the draws.
    """
    pairs = [(key[0], key[1]) for key in stacks if len(key) == 2]
    if not pairs:
        return set()
    pure = {key: purify_pair(stacks[key], weights[key]) for key in pairs}
    gained = np.zeros((len(pairs), int(block.max()) + 1))
    for bag in range(bags.shape[1]):
        out = np.flatnonzero(bags[:, bag] < 0)
        at = [of[out] for of in bins]
        left = y[out] - intercepts[bag]
        for key, stack in stacks.items():
            if len(key) == 1:
                left = left - stack[1 + bag][at[key[0]]]
        for i, j in pairs:
            _, rows, columns, constant = pure[i, j]
            left = left - rows[1 + bag][at[i]] - columns[1 + bag][at[j]] - constant[1 + bag]
        for k, (i, j) in enumerate(pairs):
            added = pure[i, j][0][1 + bag][at[i], at[j]]
            gain = left**2 - (left - added) ** 2
            gained[k] += np.bincount(block[out], weights=gain, minlength=gained.shape[1])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(gained.shape[1], size=(DRAWS, gained.shape[1]))
    helps = (gained[:, drawn].sum(axis=2) > 0).mean(axis=1)
    return {pair for pair, share in zip(pairs, helps, strict=True) if share >= SURVIVE}
