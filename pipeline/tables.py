"""Helpers for figures computed from Arrow tables: columns as numbers, rows by group and by job."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def floats(column: pa.ChunkedArray) -> Floats:
    """Return a column of numbers as an array, (rows,); NaN for null."""
    numbers: Floats = column.cast(pa.float64()).to_numpy()
    return numbers


def groups(column: pa.ChunkedArray) -> dict[Any, NDArray[np.intp]]:
    """Return, for each value of a column, the indices of its rows: {value: rows}. The column has no
    nulls."""
    values, at, counts = np.unique(column.to_numpy(), return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(at, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(values.tolist(), rows, strict=False))


def means(by: pa.ChunkedArray, of: pa.ChunkedArray) -> dict[Any, float]:
    """Return the mean of the column `of` for each value of the column `by`."""
    numbers = floats(of)
    return {value: float(numbers[rows].mean()) for value, rows in groups(by).items()}


def of_jobs(table: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """Return, for each id in `ids`, the row of the table with that `job_id`; nulls if there is
    none."""
    return table.take(pc.index_in(ids, table["job_id"]))


def filled(table: pa.Table, **absent: str) -> pa.Table:
    """Return the table with the named columns as text, in which each null is replaced by the text
    given for the column (`vc="-"`)."""
    texts = {name: pc.fill_null(table[name].cast(pa.string()), to) for name, to in absent.items()}
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | texts)


def sizes(column: pa.ChunkedArray) -> dict[Any, int]:
    """Return how often each value of a column occurs, the most frequent first."""
    return dict(Counter(column.to_pylist()).most_common())
