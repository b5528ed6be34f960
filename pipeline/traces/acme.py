"""Reads AcmeTrace of the Shanghai AI Laboratory (Hu et al., NSDI'24): the clusters Seren and
Kalos."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import TIME
from pipeline.traces.base import Batch, MeteredFile, Options
from pipeline.traces.cast import blank_to_null, cast_or_null, from_floats, mask
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column
from pipeline.traces.helios import SLURM_STATES
from pipeline.traces.tables import TableAdapter

_OFFSET = r"(?P<offset>Z|[+-]\d{2}:?\d{2})$"


class Acme(TableAdapter):
    """Reads AcmeTrace's ``trace_seren.csv`` (times at +08:00) and ``trace_kalos.csv`` (times at
    +00:00).

    Each file writes one zone throughout; a row in another one is refused (``mixed_zones``). The
    README calls ``duration`` the time from start to end. In Kalos it counts from submission:
    ``duration_s`` is end - start, the recorded value is kept in a column of its own, and a
    difference gives the warning ``duration_counts_waiting``. ``duration_s`` is null for a job that
    still runs or never started. The traces have no job names: ``name`` holds the workload type
    (Pretrain, Evaluation, ...).
    """

    name = "acme"
    version = 2
    title = "AcmeTrace trace_seren.csv, trace_kalos.csv"
    states = SLURM_STATES
    columns = (
        Column("job_id", "job_id", "text"),
        Column("user", "user"),
        Column("node_num", "nodes", "number"),
        Column("gpu_num", "gpus", "number"),
        Column("cpu_num", "cpus", "number"),
        Column("mem_per_pod_GB", "memory_mib", "number", required=False),
        Column("type", "name", "text"),
        Column("state", "state"),
        Column("submit_time", "submit_time", "text"),
        Column("start_time", "start_time", "text"),
        Column("end_time", "end_time", "text"),
        Column("duration", "recorded_duration_s", "number"),
        Column("gpu_time", "gpu_time", "number"),
    )

    def __init__(self) -> None:
        self._offset: str | None = None

    def _read(self, file: MeteredFile, path: Path, options: Options) -> Iterator[Batch]:
        self._offset = None
        yield from super()._read(file, path, options)

    def convert(self, draft: Draft, options: Options) -> None:
        for name in ("submit_time", "start_time", "end_time"):
            self._zoned(draft, name)
        self.map_states(draft)
        # what is recorded of one that never started, or still runs, is no duration
        unknown = np.isnan(draft.millis("start_time")) | np.isnan(draft.millis("end_time"))
        recorded = np.where(unknown, np.nan, draft.number("recorded_duration_s"))
        draft.columns["recorded_duration_s"] = from_floats(recorded)
        if "memory_mib" in draft.columns:
            pods = np.nan_to_num(draft.number("nodes"), nan=1.0)
            draft.columns["memory_mib"] = from_floats(draft.number("memory_mib") * 1024 * pods)

    def _zoned(self, draft: Draft, name: str) -> None:
        texts = blank_to_null(draft.columns[name])
        times = cast_or_null(texts, TIME)
        draft.refuse(pc.and_(pc.is_valid(texts), pc.is_null(times)), f"bad_{name}")
        offsets = pc.struct_field(pc.extract_regex(texts, _OFFSET), "offset")
        if self._offset is None:
            first = pc.drop_null(offsets.filter(pc.is_valid(times)))
            self._offset = first[0].as_py() if len(first) else None
        if self._offset is not None:
            draft.refuse(mask(pc.not_equal(offsets, pa.scalar(self._offset))), "mixed_zones")
        draft.columns[name] = times
