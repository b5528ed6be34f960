"""Reads the finished jobs of a Pellucid service, as `pellucid export` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from features.given import arrow_file
from features.schema import is_of_a_trace
from pipeline.traces.base import Adapter, Batch, Options, TraceError, head
from pipeline.traces.check import Draft

ROWS = 64 << 10  # held at a time


class Finished(Adapter):
    """Reads a Parquet file in the trace schema. Its rows are checked like those of any other
    source."""

    name = "pellucid"
    version = 1
    title = "finished jobs of a Pellucid service (Parquet)"

    def sniff(self, path: Path) -> float:
        if not head(path).startswith(b"PAR1"):
            return 0.0
        try:
            with arrow_file(path) as file:
                return float(is_of_a_trace(pq.read_schema(file).names))
        except (pa.ArrowInvalid, OSError):
            return 0.0

    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        with options.meter.open(path):
            pass  # counts and digests it
        line = 0
        try:
            for batch in _batches(path):
                lines = np.arange(line + 1, line + 1 + len(batch))
                columns = {name: batch.column(name) for name in batch.schema.names}
                line += len(batch)
                yield Draft(columns, lines, path.name, lambda line: f"row {line}").batch()
        except (pa.ArrowInvalid, OSError) as error:
            raise TraceError(f"{path.name}: cannot be read ({error})") from error


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with arrow_file(path) as source:
        file = pq.ParquetFile(source)
        if not is_of_a_trace(file.schema_arrow.names):
            raise TraceError(f"{path.name}: is not what `pellucid export` writes")
        yield from file.iter_batches(ROWS)
