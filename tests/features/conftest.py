"""The public Venus trace in the project's schema, without the workload columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

from features.schema import TRACE_SCHEMA


def read_venus(folder: Path) -> pa.Table:
    """Rows of `cluster_full_log.csv`. Its workload columns follow from the duration: dropped."""
    options = csv.ConvertOptions(column_types={"job_id": pa.string(), "jobname": pa.string()})
    raw = csv.read_csv(folder / "venus" / "cluster_full_log.csv", convert_options=options)
    known = {
        "job_id": raw["job_id"],
        "user": raw["user"],
        "vc": raw["vc"],
        "name": raw["jobname"],
        "gpus": raw["gpu_num"],
        "cpus": raw["cpu_num"],
        "state": pc.utf8_lower(raw["state"]),
        "submit_time": pc.assume_timezone(raw["submit_time"], "UTC"),
        "duration_s": raw["duration"],
    }
    columns = [
        known[field.name].combine_chunks().cast(field.type)
        if field.name in known
        else pa.nulls(raw.num_rows, field.type)
        for field in TRACE_SCHEMA
    ]
    return pa.table(columns, schema=TRACE_SCHEMA)


@pytest.fixture(scope="session")
def venus(shared_data: Path) -> pa.Table:
    return read_venus(shared_data)
