"""Arrow tables in the form figures need: columns as numbers, rows by group and by job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def floats(column: pa.ChunkedArray) -> Floats:
    """Return a column of numbers, (rows,); NaN where there is none."""
    numbers: Floats = column.cast(pa.float64()).to_numpy()
    return numbers


def groups(column: pa.ChunkedArray) -> dict[Any, NDArray[np.intp]]:
    """Return the rows of each value of a column without nulls, by value."""
    values, at, counts = np.unique(column.to_numpy(), return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(at, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(values.tolist(), rows, strict=False))


def means(by: pa.ChunkedArray, of: pa.ChunkedArray) -> dict[Any, float]:
    """Return the mean of one column by each value of another."""
    numbers = floats(of)
    return {value: float(numbers[rows].mean()) for value, rows in groups(by).items()}


def of_jobs(table: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """Return the row of each job in a table with a column job_id; nulls where it has none."""
    return table.take(pc.index_in(ids, table["job_id"]))


def filled(table: pa.Table, **absent: str) -> pa.Table:
    """Return the table with these columns as texts, and the given text in place of each null."""
    texts = {name: pc.fill_null(table[name].cast(pa.string()), to) for name, to in absent.items()}
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | texts)


def sizes(column: pa.ChunkedArray) -> dict[Any, int]:
    """Return how often each value of a column occurs, the most frequent first."""
    return dict(Counter(column.to_pylist()).most_common())
