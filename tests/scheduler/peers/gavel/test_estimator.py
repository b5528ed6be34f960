"""Pair speeds from a few trials."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.peers.allocation.throughputs import Kind, ThroughputTable
from scheduler.peers.gavel.estimator import PairEstimator, completed, nearest


def a_table(kinds: int, seed: int = 0) -> ThroughputTable:
    """Pair speeds of rank 2: how heavy a job is; heavy jobs mind others more."""
    rng = np.random.default_rng(seed)
    names = [Kind(f"k{i}", 1) for i in range(kinds)]
    heavy = rng.uniform(0.1, 0.9, kinds)
    minds = 0.2 + 0.8 * heavy
    pairs = {
        (a, b): (1 - minds[i] * heavy[j], 1 - minds[j] * heavy[i])
        for i, a in enumerate(names)
        for j, b in enumerate(names)
    }
    return ThroughputTable({"x": dict.fromkeys(names, 1.0)}, {"x": pairs})


def test_a_low_rank_matrix_is_completed() -> None:
    rng = np.random.default_rng(0)
    full = rng.uniform(0.2, 1, (20, 2)) @ rng.uniform(0.1, 0.5, (2, 30))
    holes = np.where(rng.random(full.shape) < 0.4, np.nan, full)
    found = completed(holes, rng, rank=2)
    assert np.abs(found - full).max() < 0.06
    assert (found == full)[~np.isnan(holes)].all()
    assert (completed(np.full((3, 3), np.nan), rng) >= 0).all()


def test_the_nearest_row_is_the_one_that_points_the_same_way() -> None:
    table = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert nearest(np.array([5.0, 4.0]), table) == 1
    assert nearest(np.zeros(2), table) == 0


def test_a_known_kind_tried_everywhere_is_recognised() -> None:
    table = a_table(12)
    estimator = PairEstimator([table.of(kind) for kind in table.kinds], ["x"], profiled=1.0)
    for kind in table.kinds:
        alike = estimator.estimate(table.of(kind))
        assert alike.kind == kind
        assert alike.alone("x") == 1.0
        for other in table.kinds:
            estimator.estimate(table.of(other))
            assert alike.beside("x", other) == pytest.approx(table.speed("x", kind, other))


def test_few_trials_beat_a_guess_and_sharing_teaches() -> None:
    table = a_table(40, seed=1)
    estimator = PairEstimator([table.of(kind) for kind in table.kinds[:30]], ["x"], profiled=0.5)
    alike = {kind: estimator.estimate(table.of(kind)) for kind in table.kinds}
    truth = {(a, b): table.speed("x", a, b) for a in table.kinds for b in table.kinds}
    mean = np.mean(list(truth.values()))
    error = np.mean([abs(alike[a].beside("x", b) - v) for (a, b), v in truth.items()])
    assert error < 0.6 * np.mean([abs(mean - v) for v in truth.values()])
    a, b = table.kinds[35], table.kinds[36]
    estimator.watched("x", alike[a], alike[b])
    assert alike[a].beside("x", b) == table.speed("x", a, b)
    assert alike[b].beside("x", a) == table.speed("x", b, a)


@pytest.mark.parametrize("profiled", [0.0, 1.5])
def test_a_part_that_is_none_is_refused(profiled: float) -> None:
    with pytest.raises(ValueError, match="profiled"):
        PairEstimator([], ["x"], profiled=profiled)
