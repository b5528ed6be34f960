"""FIFO and Gandiva's packing."""

from __future__ import annotations

import numpy as np

from reproductions.gavel.heuristics import (
    FAIR_PAIR,
    equal_shares,
    introspected,
)
from tests.reproductions.gavel.problems import a_problem


def test_gandiva_pairs_only_when_gpus_are_short_and_parts_bad_pairs() -> None:
    rng = np.random.default_rng(0)
    roomy = a_problem(6, gpus=(3, 3), pairs=True)
    assert introspected(roomy, [(0, 1)], rng) == []
    problem = a_problem(12, 3, gpus=(2, 2), gangs=True, pairs=True)
    pairs = introspected(problem, [], rng)
    assert len({job for pair in pairs for job in pair}) == 2 * len(pairs)
    assert all(problem.gpus[a] == problem.gpus[b] for a, b in pairs)
    sums = {
        (a, b): np.mean([problem.speed(k, a, b) + problem.speed(k, b, a) for k in range(2)])
        for a, b in pairs
    }
    again = introspected(problem, pairs, rng)
    assert {pair for pair, both in sums.items() if both >= FAIR_PAIR} <= set(again)


def test_equal_shares_fit_the_cluster() -> None:
    problem = a_problem(12, 3, gpus=(2, 2), gangs=True, pairs=True)
    rows = equal_shares(problem, introspected(problem, [], np.random.default_rng(0)))
    used = sum(problem.gpus[a] * share for a, _, share in rows)
    assert (used <= problem.capacity + 1e-9).all()
    assert all(share.sum() <= 1 + 1e-9 for _, _, share in rows)
