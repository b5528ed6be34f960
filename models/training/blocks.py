"""Splits training rows into bags by blocks of time.

Jobs come in bursts of near-copies. If random rows are held out, copies of a held-out job are among
the training rows, early stopping never sees the error on a new burst, and the model overfits. With
whole stretches of time held out, the GA2M is as good as gradient-boosted trees here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def time_blocks(time: NDArray[np.float64], blocks: int) -> NDArray[np.int64]:
    """Return the number of the block of each row, (n,). A block is a stretch of time; the blocks
    have about equally many rows.

    Rows of the same instant share a block, so there may be fewer than `blocks`.
    """
    edges = np.quantile(time, np.linspace(0, 1, blocks + 1)[1:-1])
    return np.unique(np.searchsorted(edges, time, side="left"), return_inverse=True)[1]


def block_bags(
    time: NDArray[np.float64], bags: int, *, blocks_per_bag: int = 4
) -> NDArray[np.int8]:
    """Return the bags of an EBM (explainable boosting machine), (n, bags): +1 where the bag trains
    on the row, -1 where it holds the row out to decide when to stop early.

    Block b is held out by bag b mod `bags`, so every row is held out once and each bag holds out
    stretches from all over the window.

    Args:
        time: when each row was taken, seconds, in any order.
        bags: number of bags, at least 2.
        blocks_per_bag: number of stretches of time that each bag holds out.
    """
    block = time_blocks(time, bags * blocks_per_bag)
    if block.max(initial=0) + 1 < bags:  # one instant, or nearly: fall back to the rows' order
        rank = np.argsort(np.argsort(time, kind="stable"), kind="stable")
        block = rank * bags // max(len(time), 1)
    held_out = block[:, None] % bags == np.arange(bags)
    return np.where(held_out, -1, 1).astype(np.int8)
