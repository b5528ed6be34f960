"""The same tasks here, in processes of this machine, and on Dask; and rows in shards."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from features.rows import Rows, training_rows
from pipeline.cluster import mapped
from pipeline.errors import UserError
from pipeline.sharded import write_shards
from pipeline.traces import ingest, read_dataset
from pipeline.traces.dataset import read_months


def squared(value: int) -> int:
    return value * value


@pytest.mark.parametrize("where", ["here", "local:2", "dask:2"])
def test_results_come_in_order_wherever_they_are_made(where: str) -> None:
    with mapped(where) as over:
        assert list(over(squared, list(range(7)))) == [n * n for n in range(7)]


@pytest.mark.parametrize(
    "where", ["", "there", "local", "local:0", "local:-1", "dask:x", "http://a", "tcp://"]
)
def test_a_place_that_is_none_is_refused(where: str) -> None:
    with pytest.raises(UserError, match="--where"), mapped(where):
        pass


def test_an_address_nobody_answers_at_is_said() -> None:
    with pytest.raises(UserError, match="no Dask scheduler answers"), mapped("tcp://127.0.0.1:9"):
        pass


def test_shards_hold_the_rows_of_the_whole(tmp_path: Path) -> None:
    lines = [
        "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,"
        "dataset,model,batchsize,amp,speed,gpu_util,gmem_util,gmem"
    ]
    for i in range(300):
        day, month = 1 + i % 28, 1 + i // 100
        lines.append(
            f"j{i},u{i % 5},a,,{1 + i % 4},4,COMPLETED,2023-{month:02d}-{day:02d} 00:{i % 60:02d}"
            f":00,{60 + 37 * i},CIFAR-10,ResNet18,64,1,4038.5,62.0,34.5,3642.0"
        )
    source = tmp_path / "cluster_log.csv"
    source.write_text("\n".join(lines) + "\n")
    ingest(source, tmp_path / "trace")
    table = read_dataset(tmp_path / "trace")
    assert sum(month.num_rows for month in read_months(tmp_path / "trace")) == len(table) == 300
    whole = training_rows(table, families=("size", "user"))
    cut = float(pd.Series(whole.time).quantile(0.8))
    files, since = write_shards(
        tmp_path / "trace", tmp_path, cut=cut, families=("size", "user"), shard_rows=64
    )
    assert len(files) > 2
    shards = [Rows.from_table(pq.read_table(f)) for f in files]
    seen = whole.ended_before(cut)
    pd.testing.assert_frame_equal(pd.concat([rows.X for rows in shards], ignore_index=True), seen.X)
    assert len(Rows.from_table(since)) == int((whole.time >= cut).sum())
