"""Reads a source (a trace's file) with its adapter and writes it as a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.codec import Json
from features.job import Job, of_trace
from features.schema import SCHEMA_VERSION
from pipeline.traces.base import Adapter, Batch, Meter, Options, Reject, TraceError, add
from pipeline.traces.dataset import PROVENANCE, SUMMARY, DatasetWriter, replacing, write_json
from pipeline.traces.fingerprints import Seen, fingerprint, hash_texts
from pipeline.traces.registry import adapter_for

_ALL_TIME = (0, 0)


@dataclass(slots=True)
class IngestSummary:
    """Counts of the rows of a source that were kept, refused or left out.

    ``rows_in == kept + sum(quarantined) + duplicates + sum(skipped)`` holds.

    Attributes:
        source: name of the file or directory.
        format: name of the adapter that read it.
        rows_in: rows in the source.
        kept: jobs written.
        quarantined: rows refused, by reason.
        duplicates: rows equal to an earlier row in all columns. They are quarantined too.
        skipped: valid rows that stand for no job of their own, by kind.
        unsorted: jobs submitted earlier than some job in a row before.
        missing_starts: jobs without a start.
        repeated_job_ids: jobs whose id an earlier job has, with other values.
        warnings: doubtful values that were kept: number of jobs, by code.
        first_submit, last_submit: times of the first and the last submission, ISO 8601, UTC.
    """

    source: str
    format: str
    rows_in: int = 0
    kept: int = 0
    quarantined: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unsorted: int = 0
    missing_starts: int = 0
    repeated_job_ids: int = 0
    warnings: dict[str, int] = field(default_factory=dict)
    first_submit: str | None = None
    last_submit: str | None = None


def ingest(
    source: Path,
    out: Path,
    *,
    format: str = "auto",
    timezone: str | None = None,
    origin: datetime | None = None,
    without_gpus: bool = False,
    progress: Callable[[int], None] | None = None,
) -> IngestSummary:
    """Read a trace and write it as a dataset (see ``pipeline.traces.dataset``). Return the summary.

    Memory hardly grows with the source: it holds one block, at most ``HELD_ROWS`` rows waiting to
    be written, and 16 bytes per row to find duplicates, which are on disk beyond a few million
    rows.

    Args:
        source: file of the trace, or its directory for PAI 2020.
        out: directory of the dataset; an older dataset there is replaced as a whole.
        format: adapter name, or ``auto``.
        timezone: zone of the source's clock, if it differs from the format's default.
        origin: time of offset 0, for formats whose times are offsets.
        without_gpus: keep jobs without GPUs, if the format has any (sacct).
        progress: called with the number of source bytes read so far.

    Raises:
        TraceError: the source is not in this format, none of its rows is a job, or ``out`` cannot
            be written. Then ``out`` is unchanged.
    """
    adapter = adapter_for(source, format)
    meter = Meter(progress)
    options = replace(adapter.options(timezone, origin, meter), without_gpus=without_gpus)
    if adapter.origin is not None and options.origin.tzinfo is None:
        raise TraceError(f"origin: {options.origin.isoformat()} has no zone")
    with replacing(out) as folder, _system_memory():
        writer = DatasetWriter(folder)
        try:
            counts = _Counts(adapter, folder)
            for batch in adapter.read(source, options):
                jobs, rejects = counts.take(batch)
                writer.write(jobs)
                writer.quarantine(rejects)
        finally:
            writer.close()
        summary = counts.summary(source.resolve().name, adapter.name)
        if not summary.kept:
            why = _what(summary)
            advice = adapter.advice.get(why.split(":")[0])
            raise TraceError(
                f"{summary.source} as {adapter.name}: no job in it ({why})"
                + (f"; {advice}" if advice else "")
            )
        write_json(folder / SUMMARY, asdict(summary))
        write_json(folder / PROVENANCE, _provenance(adapter, options, meter, summary))
    return summary


@contextmanager
def _system_memory() -> Iterator[None]:
    """Make Arrow allocate memory with the C library's allocator inside the block.

    Arrow's own pool returns the memory of each block of the trace to the kernel, which must clear
    it again. That took a seventh of the CPU time for a large trace.
    """
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _what(summary: IngestSummary) -> str:
    found = Counter(summary.quarantined) + Counter(summary.skipped)
    return ", ".join(f"{why}: {n}" for why, n in found.most_common(4)) or "0 rows"


def _provenance(adapter: Adapter, options: Options, meter: Meter, summary: IngestSummary) -> Json:
    return {
        "source": summary.source,
        "files": [asdict(file) for file in meter.files],
        "adapter": adapter.name,
        "adapter_version": adapter.version,
        "schema_version": SCHEMA_VERSION,
        "timezone": options.timezone if adapter.timezone is not None else None,
        "origin": options.origin.isoformat() if adapter.origin is not None else None,
        "rows_in": summary.rows_in,
        "kept": summary.kept,
        "quarantined": sum(summary.quarantined.values()),
        "duplicates": summary.duplicates,
        "skipped": sum(summary.skipped.values()),
    }


class _Counts:
    """Counts the rows of a source, and finds repeated ones, batch by batch."""

    def __init__(self, adapter: Adapter, folder: Path) -> None:
        # Where the line stands in for the id, two equal rows differ in nothing else.
        self._ignore = {"source_line"} | ({"job_id"} if adapter.line_ids else set())
        self._rows = Seen(folder)
        self._ids = None if adapter.line_ids else Seen(folder)
        self._latest = np.iinfo(np.int64).min
        self._earliest = np.iinfo(np.int64).max
        self._total = Counter[str]()
        self._reasons = Counter[str]()
        self._skipped = Counter[str]()
        self._warnings = Counter[str]()

    def take(self, batch: Batch) -> tuple[pa.Table, list[Reject]]:
        """Count the rows of a batch. Return (its jobs without duplicates of earlier rows; its
        refused rows and the duplicates)."""
        jobs, rejects = batch.jobs, list(batch.rejects)
        self._total["rows_in"] += batch.rows
        self._reasons.update(reject.reason for reject in batch.rejects)
        add(self._skipped, batch.skipped)
        add(self._warnings, batch.warnings)
        if not len(jobs):
            return jobs, rejects
        submit = pc.cast(jobs["submit_time"], pa.int64()).to_numpy()
        span = int(submit.min()), int(submit.max())
        repeated = self._rows.check(fingerprint(jobs, self._ignore), *span)
        if repeated.any():
            for line in jobs["source_line"].filter(pa.array(repeated)).to_pylist():
                rejects.append(Reject(batch.source, line, "duplicate", batch.text(line)))
            self._total["duplicates"] += int(repeated.sum())
            jobs, submit = jobs.filter(pa.array(~repeated)), submit[~repeated]
        self._count_kept(jobs, submit)
        return jobs, rejects

    def _count_kept(self, jobs: pa.Table, submit: Any) -> None:
        if not len(jobs):
            return
        if self._ids is not None:
            ids = hash_texts(jobs["job_id"].combine_chunks())
            self._total["repeated_job_ids"] += int(self._ids.check(ids, *_ALL_TIME).sum())
        so_far = np.maximum.accumulate(np.concatenate([[self._latest], submit]))
        self._total["unsorted"] += int((submit < so_far[:-1]).sum())
        self._latest = int(so_far[-1])
        self._earliest = min(self._earliest, int(submit.min()))
        self._total["kept"] += len(jobs)
        self._total["missing_starts"] += jobs["start_time"].null_count

    def summary(self, source: str, format: str) -> IngestSummary:
        kept = self._total["kept"] > 0
        return IngestSummary(
            source,
            format,
            **{name: self._total[name] for name in _COUNTED},
            quarantined=dict(sorted(self._reasons.items())),
            skipped=dict(sorted(self._skipped.items())),
            warnings=dict(sorted(self._warnings.items())),
            first_submit=_iso(self._earliest) if kept else None,
            last_submit=_iso(self._latest) if kept else None,
        )


_COUNTED = ("rows_in", "kept", "duplicates", "unsorted", "missing_starts", "repeated_job_ids")


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat().replace("+00:00", "Z")


def jobs_in_order(table: pa.Table) -> Iterator[Job]:
    """Yield the jobs of a table as their submitters describe them, in the order of the table."""
    names = ("job_id", "user", "vc", "name", "gpus", "cpus", "memory_mib", "gpu_type")
    for batch in table.select([*names, "submit_time", "time_limit_s"]).to_batches(10_000):
        submit = pc.cast(batch["submit_time"], pa.int64()).to_numpy() / 1000
        for row, when in zip(batch.to_pylist(), submit.tolist(), strict=True):
            yield of_trace(row, when)
