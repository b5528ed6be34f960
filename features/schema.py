"""The schema of traces: every trace adapter returns it and every stage reads it.

Times are UTC; durations are seconds; memory is MiB; utilisation is percent. A null means that the
source does not say; it never means zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from features.job import COUNTERS
from features.states import State as State  # a column's values

# In every dataset's provenance.json. Raised when a column changes meaning, or one is added that may
# not be absent.
SCHEMA_VERSION = 1


TIME = pa.timestamp("ms", tz="UTC")
LABEL = pa.dictionary(pa.int32(), pa.string())

ATTEMPT = pa.struct([("start_time", TIME), ("end_time", TIME), ("gpus", pa.int32())])

TRACE_SCHEMA = pa.schema(
    [
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("user", LABEL),
        pa.field("vc", LABEL),
        pa.field("name", pa.string()),
        # gang size; a share of one GPU counts as one GPU here and as its fraction in gpu_share
        pa.field("gpus", pa.int32(), nullable=False),
        pa.field("gpu_share", pa.float32()),
        pa.field("gpu_type", LABEL),
        pa.field("nodes", pa.int32()),
        pa.field("node_list", LABEL),  # their names, as Slurm lists them
        pa.field("cpus", pa.float32()),
        pa.field("memory_mib", pa.float64()),
        pa.field("qos", LABEL),
        pa.field("state", LABEL, nullable=False),
        pa.field("exit_code", pa.int32()),
        pa.field("submit_time", TIME, nullable=False),
        pa.field("eligible_time", TIME),
        pa.field("start_time", TIME),
        pa.field("end_time", TIME),
        # seconds the job ran: end - start where both are known, else as recorded
        pa.field("duration_s", pa.float64()),
        # as the source wrote it, kept apart because some sources count waiting in it
        pa.field("recorded_duration_s", pa.float64()),
        pa.field("time_limit_s", pa.float64()),
        pa.field("attempts", pa.list_(ATTEMPT)),
        # workload and profile, when the trace carries them
        pa.field("model", LABEL),
        pa.field("dataset", LABEL),
        pa.field("batch_size", pa.int32()),
        pa.field("amp", pa.bool_()),
        pa.field("gpu_util_pct", pa.float32()),
        pa.field("gpu_mem_util_pct", pa.float32()),
        pa.field("gpu_mem_mib", pa.float32()),
        # what the driver counted meanwhile, where the GPU has the counters
        *(pa.field(name, pa.float32()) for name in COUNTERS),
        # 1-based line (or element) of the source this row came from
        pa.field("source_line", pa.int64()),
    ]
)


def is_of_a_trace(names: Sequence[str]) -> bool:
    """Return whether a table with these columns follows `TRACE_SCHEMA`, with or without the
    `COUNTERS` of profiles, which earlier releases did not have."""
    had = [name for name in TRACE_SCHEMA.names if name not in COUNTERS]
    return [name for name in names if name not in COUNTERS] == had
