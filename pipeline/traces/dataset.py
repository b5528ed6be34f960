"""A dataset: a trace on disk, as Parquet files by month, with records of its source.

::

    DIR/month=2020-09/part-00000.parquet    jobs submitted in that month (UTC), TRACE_SCHEMA
    DIR/quarantine.parquet                  rows that are no job: source, line, reason, text
    DIR/provenance.json                     files read (name, size, SHA-256), adapter, zone, counts
    DIR/summary.json                        rows in, kept, quarantined by reason, ...

The directory is written under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.given import LARGE, arrow_file, read_text
from features.schema import TIME, TRACE_SCHEMA
from pipeline.traces.base import REJECTS_SCHEMA, Reject, TraceError, rejects_table

PROVENANCE, SUMMARY, QUARANTINE = "provenance.json", "summary.json", "quarantine.parquet"

# Rows of one month that make a row group, and rows held over all months before the fullest is
# written: 64 Ki rows are about 10 MiB.
GROUP_ROWS = 128 << 10
HELD_ROWS = 512 << 10
OPEN_FILES = 24

_LABELS = [f.name for f in TRACE_SCHEMA if pa.types.is_dictionary(f.type)]
_REPEATED = ["gpus", "nodes", "cpus", "memory_mib", "gpu_share", "time_limit_s", "batch_size"]
_TIMES = [f.name for f in TRACE_SCHEMA if f.type == TIME]
_writer = partial(
    pq.ParquetWriter,
    compression="snappy",
    # What a reader may want to skip row groups by.
    write_statistics=["submit_time", "gpus"],
    use_dictionary=_LABELS + _REPEATED,
    # Sorted or nearly so: differences are small.
    column_encoding=dict.fromkeys([*_TIMES, "source_line"], "DELTA_BINARY_PACKED")
    | {"job_id": "DELTA_BYTE_ARRAY"},
)


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a new directory to write into. It replaces ``out`` if the block succeeds.

    Raises:
        TraceError: ``out`` holds something that is no dataset, or cannot be written.
    """
    _check_target(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise TraceError(f"{out}: cannot be written ({error.strerror})") from error
    try:
        yield new
        _set_mode(new)
        _swap(new, out)
    except OSError as error:
        raise TraceError(f"{out}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _check_target(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise TraceError(f"{out}: is a file, not a directory")
    if out.is_dir() and any(out.iterdir()) and not (out / PROVENANCE).is_file():
        raise TraceError(f"{out}: holds something that is not a dataset; it is left alone")


def _set_mode(folder: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)


def _swap(new: Path, out: Path) -> None:
    if not out.exists():
        new.rename(out)
        return
    old = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.old."))
    out.rename(old / "dataset")
    try:
        new.rename(out)
    except OSError:
        (old / "dataset").rename(out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


class DatasetWriter:
    """Writes jobs by month, and refused rows in one file. It holds few of them in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, list[pa.Table]] = {}
        self._open: OrderedDict[str, pq.ParquetWriter] = OrderedDict()
        self._parts: dict[str, int] = {}
        self._quarantine = pq.ParquetWriter(folder / QUARANTINE, REJECTS_SCHEMA)

    def write(self, jobs: pa.Table) -> None:
        """Add jobs. They need not be in order of submission."""
        for month, part in _by_month(jobs):
            held = self._held.setdefault(month, [])
            held.append(part)
            if _rows(held) >= GROUP_ROWS:
                self._flush(month)
        while sum(_rows(held) for held in self._held.values()) > HELD_ROWS:
            self._flush(max(self._held, key=lambda month: _rows(self._held[month])))

    def quarantine(self, rejects: list[Reject]) -> None:
        """Add refused rows to the quarantine file."""
        if rejects:
            self._quarantine.write_table(rejects_table(rejects))

    def close(self) -> None:
        """Write the jobs that are still in memory, and close every file."""
        for month in sorted(self._held):
            self._flush(month)
        for writer in self._open.values():
            writer.close()
        self._open.clear()
        self._quarantine.close()

    def _flush(self, month: str) -> None:
        table = pa.concat_tables(self._held.pop(month)).unify_dictionaries()
        writer = self._open.get(month)
        if writer is None:
            if len(self._open) >= OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            folder = self._folder / f"month={month}"
            folder.mkdir(exist_ok=True)
            number = self._parts[month] = self._parts.get(month, -1) + 1
            path = folder / f"part-{number:05d}.parquet"
            writer = _writer(path, TRACE_SCHEMA)
        self._open[month] = writer
        self._open.move_to_end(month)
        writer.write_table(table)


def _rows(tables: list[pa.Table]) -> int:
    return sum(len(table) for table in tables)


def _by_month(jobs: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield (month, its jobs) for each month of submission. Jobs keep their order within a
    month."""
    if not len(jobs):
        return
    millis = pc.cast(jobs["submit_time"], pa.int64()).to_numpy().view("datetime64[ms]")
    months = millis.astype("datetime64[M]")
    steps = np.diff(months.view(np.int64))
    if (steps >= 0).all():
        bounds = [0, *(np.flatnonzero(steps) + 1).tolist(), len(months)]
        for start, end in itertools.pairwise(bounds):
            yield str(months[start]), jobs.slice(start, end - start)
        return
    for month in np.unique(months):
        yield str(month), jobs.filter(pa.array(months == month))


def write_json(path: Path, content: object) -> None:
    """Write an object to `path` as indented JSON. Equal objects give equal files."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check_whole(path: Path, rows: int) -> None:
    """Raise TraceError unless `rows`, the number of jobs read from the dataset at `path`, is the
    number in its summary. Otherwise a month's file may have been lost."""
    try:
        kept = json.loads(read_text(path / SUMMARY, LARGE))["kept"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: {SUMMARY} cannot be read ({error})") from None
    if kept != rows:
        raise TraceError(f"{path}: holds {rows} jobs, but {SUMMARY} says {kept}; ingest it again")


def read_dataset(path: Path) -> pa.Table:
    """Return all jobs of a dataset, in order of ``submit_time``, then ``source_line``.

    Returns:
        A table in ``TRACE_SCHEMA``, in one chunk, one dictionary per label column.

    Raises:
        TraceError: ``path`` holds no dataset, or not as many jobs as its summary says.
    """
    table = _read(path, _files(path))
    _check_whole(path, table.num_rows)
    return table


def read_months(path: Path) -> Iterator[pa.Table]:
    """Yield the table that `read_dataset` returns month by month, holding one month in memory."""
    rows = 0
    for files in _months(path):
        month = _read(path, files)
        rows += month.num_rows
        yield month
    _check_whole(path, rows)


def read_between(path: Path, since_s: float, until_s: float) -> Iterator[pa.Table]:
    """Yield, month by month, the jobs with `since_s` <= submit time < `until_s`, without reading
    others into memory. Both bounds are seconds since the epoch, or infinite."""
    wanted = pc.scalar(True)
    if since_s > -inf:
        wanted &= pc.field("submit_time") >= _time(since_s)
    if until_s < inf:
        wanted &= pc.field("submit_time") < _time(until_s)
    for files in _months(path):
        yield _read(path, files, wanted)


def _time(seconds: float) -> pa.Scalar:
    return pa.scalar(round(1000 * seconds), pa.int64()).cast(TIME)


def _months(path: Path) -> Iterator[list[Path]]:
    """Yield, for each month that has jobs, the list of its Parquet files."""
    for _, files in itertools.groupby(_files(path), key=lambda file: file.parent):
        yield list(files)


def _files(path: Path) -> list[Path]:
    if not (path / PROVENANCE).is_file():
        raise TraceError(
            f"{path}: holds no dataset (no {PROVENANCE}); make one with pellucid ingest"
        )
    return sorted(path.glob("month=*/part-*.parquet"))


def _part(path: Path, wanted: pc.Expression | None) -> pa.Table:
    with arrow_file(path) as file:
        return pq.read_table(file, schema=TRACE_SCHEMA, partitioning=None, filters=wanted)


def _read(path: Path, files: list[Path], wanted: pc.Expression | None = None) -> pa.Table:
    try:
        parts = [_part(file, wanted) for file in files]
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(f"{path}: cannot be read ({error})") from error
    table = pa.concat_tables([TRACE_SCHEMA.empty_table(), *parts]).unify_dictionaries()
    submit, line = (
        pc.cast(table[n], pa.int64()).to_numpy() for n in ("submit_time", "source_line")
    )
    later, same = submit[1:] > submit[:-1], submit[1:] == submit[:-1]
    if not (later | same & (line[1:] > line[:-1])).all():
        table = table.take(pa.array(np.lexsort((line, submit))))
    return table.combine_chunks()
