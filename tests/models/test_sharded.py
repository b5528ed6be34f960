"""Fits per shard, merged, against one fit of everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from features.rows import Rows
from models.training.duration import PRESETS, fit_at, fit_duration
from models.training.errors import TrainingError
from models.training.sharded import fit_shard, fit_sharded, merge, plan, sampled
from tests.models.drawn import drawn

CUT = 1e12  # all had ended
PRESET = replace(PRESETS["fast"], interactions=3, outer_bags=2, max_rounds=150)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("shards")
    files = []
    for i in range(3):
        files.append(folder / f"{i}.parquet")
        pq.write_table(drawn(4_000, i).table(), files[-1], row_group_size=1_000)
    return files


def error(model: object, rows: Rows) -> float:
    missed = model.score_batch(rows.X) - np.log1p(rows.y)  # type: ignore[attr-defined]
    return float(np.sqrt(np.mean(missed**2)))


def test_shards_do_nearly_as_well_as_one_fit(shards: list[Path]) -> None:
    test = drawn(4_000, 99)
    done: list[int] = []
    merged, told = fit_sharded(shards, cut=CUT, seed=0, preset=PRESET, progress=done.append)
    tables = [Rows.from_table(pq.read_table(file)) for file in shards]
    everything = [np.concatenate([getattr(t, name) for t in tables]) for name in ("y", "time")]
    frames = pd.concat([t.X for t in tables], ignore_index=True)
    single = fit_duration(frames, *everything, tables[0].features, seed=0, preset=PRESET)
    assert told["rows"] == 12_000
    assert done == [1, 2, 3]
    assert error(merged, test) < 1.06 * error(single.model, test)
    alone, _ = fit_sharded(shards[:1], cut=CUT, seed=0, preset=PRESET)
    assert error(merged, test) < error(alone, test)


def test_a_merge_is_of_one_model_that_model_and_of_several_in_any_order_the_same(
    shards: list[Path],
) -> None:
    shared = plan(sampled(shards[:2], seed=0, rows=900), cut=CUT, seed=0, preset=PRESET)
    assert shared.sample_rows == 900
    assert len(shared.pairs) == 3
    one, other = (fit_shard(file, shared) for file in shards[:2])
    X = drawn(500, 7).X

    def scores(*parts: object) -> np.ndarray:
        return merge(parts, shared).score_batch(X)

    np.testing.assert_allclose(scores(one, one, one), scores(one), atol=1e-9)
    np.testing.assert_allclose(scores(one, other), scores(other, one), atol=1e-9)


def test_jobs_that_still_run_count_in_a_shard_as_in_one_fit(tmp_path: Path) -> None:
    rows = drawn(3_000, 5)
    began = (rows.time - rows.time.min()) / 1_000
    rows = replace(rows, start_time=began, end_time=began + rows.y)
    cut = float(np.quantile(rows.end_time, 0.7))
    known = rows.known_by(cut)
    assert 20 < np.isnan(known.y).sum() < len(known) / 2
    file = tmp_path / "shard.parquet"
    pq.write_table(known.table(), file)
    preset = replace(PRESET, interactions=0)
    apart, found = fit_sharded([file], cut=cut, seed=0, preset=preset)
    single = fit_at(rows, cut, seed=0, preset=preset)
    assert found["rows"] == single.metadata["rows"] == len(known)
    off = apart.score_batch(rows.X) - single.model.score_batch(rows.X)
    ended = known.where(np.isfinite(known.y))
    pq.write_table(ended.table(), file)
    without, _ = fit_sharded([file], cut=cut, seed=0, preset=preset)
    missed = without.score_batch(rows.X) - single.model.score_batch(rows.X)
    assert abs(off.mean()) < 0.1 * abs(missed.mean())


def test_bad_shards_are_refused_by_name(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no shard"):
        sampled([], seed=0)
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1PAR1")
    with pytest.raises(TrainingError, match=r"broken\.parquet"):
        sampled([broken], seed=0)
    other = tmp_path / "other.parquet"
    rows = drawn(200, 0)
    pq.write_table(replace(rows, features=rows.features[:5]).table(), other)
    with pytest.raises(TrainingError, match=r"other\.parquet: its features differ"):
        sampled([shards[0], other], seed=0)
    none = tmp_path / "none.parquet"
    pq.write_table(replace(rows, y=np.full(200, np.nan)).table(), none)
    with pytest.raises(TrainingError, match="no ended job"):
        fit_shard(none, plan(sampled(shards[:1], seed=0), cut=CUT, seed=0, preset=PRESET))
