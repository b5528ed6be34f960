"""Finds rows that were already seen, in bounded memory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]

# Fingerprints kept in memory before a run moves to disk: 32 MiB.
RUN_ROWS = 4 << 20

_ODD = 0x9E3779B97F4A7C15


def hash_texts(values: Any) -> Hashes:
    """Return a 64-bit hash of each text. It is Python's own, which differs between processes;
    within a process, equal texts have equal hashes."""
    texts = values.to_pylist()
    return np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)


def fingerprint(table: pa.Table, ignore: Collection[str]) -> Hashes:
    """Return a 64-bit hash of every row, over all columns but ``ignore``.

    Two different rows have the same hash with probability 2**-64; among 10**8 rows, there is such a
    pair with probability 3 in 10,000.
    """
    total = np.zeros(len(table), np.uint64)
    for position, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if name in ignore or column.null_count == len(column):
            continue
        salt = np.uint64((position + 1) * _ODD % 2**64)
        mixed = _mix(_hash_column(column.combine_chunks()) + salt)
        if column.null_count:
            # A null adds nothing, so a block in which the whole column is null agrees with others.
            mixed[pc.is_null(column).to_numpy()] = 0
        total += mixed
    return total


def _mix(values: Hashes) -> Hashes:
    """Mix the bits of the values, in place, by the finaliser of SplitMix64 (Steele et al.,
    OOPSLA'14): every bit of the result depends on every bit of the value. Return the values."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _hash_column(values: Any) -> Hashes:
    """Return a 64-bit number for each value, equal for equal values; any number for null."""
    if pa.types.is_dictionary(values.type):
        if not len(values.dictionary):
            return np.zeros(len(values), np.uint64)
        kinds = hash_texts(values.dictionary)
        known: Hashes = kinds[pc.fill_null(values.indices, 0).to_numpy()]
        return known
    if pa.types.is_string(values.type):
        return hash_texts(values)
    if pa.types.is_nested(values.type):
        return hash_texts(pa.array([repr(value) for value in values.to_pylist()], pa.string()))
    if pa.types.is_floating(values.type):
        exact = pc.fill_null(pc.cast(values, pa.float64()), 0.0).to_numpy()
        return exact.view(np.uint64)  # type: ignore[no-any-return]
    whole = values if pa.types.is_timestamp(values.type) else pc.cast(values, pa.int32())
    return pc.fill_null(pc.cast(whole, pa.int64()), 0).to_numpy().view(np.uint64)  # type: ignore[no-any-return]


class _Run:
    """Sorted hashes of some rows, and the smallest and largest key (submission time) of these
    rows."""

    def __init__(self, hashes: Hashes, low: int, high: int) -> None:
        self.hashes, self.low, self.high = hashes, low, high

    def holds(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        at = np.searchsorted(self.hashes, hashes)
        at = np.minimum(at, len(self.hashes) - 1)
        found: npt.NDArray[np.bool_] = self.hashes[at] == hashes
        return found


class Seen:
    """Remembers the hashes of all rows seen, in sorted runs. Full runs are written to disk.

    Equal rows have equal keys (submission times), so a run is searched only if its keys overlap
    those of the block. If the source is sorted, that is only the last run, however long the source
    is.
    """

    def __init__(self, folder: Path, run_rows: int = RUN_ROWS) -> None:
        self._folder = folder
        self._run_rows = run_rows
        self._runs: list[_Run] = []

    def check(self, hashes: Hashes, low: int, high: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that repeat an earlier row of this or a former block. Remember
        all rows for later blocks.

        Args:
            hashes: one hash per row, in order.
            low, high: smallest and largest key of these rows.
        """
        if not len(hashes):
            return np.zeros(0, bool)
        order = np.argsort(hashes)
        ordered = hashes[order]
        repeated = np.zeros(len(hashes), bool)
        repeated[1:] = ordered[1:] == ordered[:-1]
        if repeated.any():
            # The first of equal rows is the one that stays; the faster sort may have moved it.
            order = np.argsort(hashes, kind="stable")
        for run in self._runs:
            if run.low <= high and low <= run.high:
                repeated |= run.holds(ordered)
        self._remember(_Run(ordered[~repeated], low, high))
        result = np.empty(len(hashes), bool)
        result[order] = repeated
        return result

    def _remember(self, run: _Run) -> None:
        if not len(run.hashes):
            return
        # Runs at least double in size from the last to the first: their number stays logarithmic.
        while self._runs and len(self._runs[-1].hashes) < 2 * len(run.hashes):
            last = self._runs[-1]
            if len(last.hashes) >= self._run_rows:
                break
            self._runs.pop()
            both = np.concatenate([last.hashes, run.hashes])
            both.sort(kind="stable")
            run = _Run(both, min(last.low, run.low), max(last.high, run.high))
        if len(run.hashes) >= self._run_rows:
            run = _Run(self._to_disk(run.hashes), run.low, run.high)
        self._runs.append(run)

    def _to_disk(self, hashes: Hashes) -> Hashes:
        # Unlinked at once: the mapping keeps it alive, and a killed run leaves nothing behind.
        path = self._folder / ".seen"
        hashes.tofile(path)
        mapped: Hashes = np.memmap(path, np.uint64, mode="r")
        path.unlink()
        return mapped
