"""Selects the pairs of features that also help on days that they were not fitted on.

A pair is chosen by the errors that remain on the training rows, and jobs come in bursts of
near-copies, so other days would give other pairs. Each bag of a fit holds out stretches of time
(`blocks`). There it is measured how much a pair lowers the squared error, beyond the main effects
of its bag. The stretches are then resampled: a pair that does not help in nearly all resamples is
dropped.
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

    For each bag, it is measured on the held-out rows how much a pair lowers the error beyond the
    main effects. The stretches of time are then resampled with replacement: a pair stays if it
    helps in the share `SURVIVE` of the resamples.

    Args:
        stacks: the tables of each term, by its features, (1 + bags, bins[, bins]): that of all bags
            together, then that of each bag.
        weights: number of training rows in each cell of each term.
        bins: for every feature, the bin of each row, (n,).
        intercepts: intercepts of the bags, (bags,).
        y: target, (n,).
        bags: +1 trains, -1 is held out, (n, bags).
        block: number of the stretch of time of each row, (n,).
        seed: seed of the resampling.
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
