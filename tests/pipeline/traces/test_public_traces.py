"""The public traces themselves, where they are at hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.testing.adapter import check_table
from pipeline.traces import IngestSummary, ingest, read_dataset

pytestmark = pytest.mark.shared_data


def load(source: Path, out: Path) -> tuple[IngestSummary, pa.Table]:
    summary = ingest(source, out)
    table = read_dataset(out)
    check_table(table)
    return summary, table


def counts(table: pa.Table, name: str) -> dict[Any, int]:
    return Counter(table[name].to_pylist())


def test_openb(shared_data: Path, tmp_path: Path) -> None:
    summary, table = load(shared_data / "openb" / "openb_pod_list_default.csv", tmp_path / "out")
    assert summary.format == "openb"
    assert summary.rows_in == 8152
    assert summary.quarantined == {"no_gpu": 1088}
    quarantine = pq.read_table(tmp_path / "out" / "quarantine.parquet")
    phases = Counter(text.split(",")[7] for text in quarantine["text"].to_pylist())
    kept = counts(table, "state")
    names = {
        "Running": "running",
        "Failed": "failed",
        "Pending": "pending",
        "Succeeded": "completed",
    }
    assert {phase: phases[phase] + kept[state] for phase, state in names.items()} == {
        "Running": 5193,
        "Failed": 1870,
        "Pending": 897,
        "Succeeded": 192,
    }
    fractional = pc.less(table["gpu_share"], 1.0)
    assert pc.sum(fractional).as_py() == 3078
    assert summary.missing_starts == kept["pending"]


def test_philly_flat(shared_data: Path, tmp_path: Path) -> None:
    summary, table = load(shared_data / "philly" / "philly.csv", tmp_path / "out")
    assert summary.format == "philly-csv"
    assert summary.rows_in == 82_247
    assert summary.duplicates == 65
    assert summary.kept == 82_182
    quarantine = pq.read_table(tmp_path / "out" / "quarantine.parquet")
    again = sum(text.split(",")[2] == "1" for text in quarantine["text"].to_pylist())
    assert counts(table, "gpus")[1] + again == 76_627
    assert summary.unsorted > 0
    assert "gpu_time_differs" not in summary.warnings


def test_venus(shared_data: Path, tmp_path: Path) -> None:
    summary, table = load(shared_data / "venus" / "cluster_full_log.csv", tmp_path / "out")
    assert summary.format == "helios-full"
    assert summary.kept == summary.rows_in == 23_859
    assert summary.quarantined == {}
    assert summary.unsorted == 0
    assert (summary.first_submit, summary.last_submit) == (
        "2020-09-01T00:00:03Z",
        "2020-09-26T23:58:10Z",
    )
    assert counts(table, "state") == {
        "completed": 13_281,
        "cancelled": 6_036,
        "failed": 4_531,
        "node_fail": 7,
        "timeout": 4,
    }
    assert table["model"].null_count == 0
