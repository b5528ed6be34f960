"""The two tables a bench writes, in the vocabulary and types of `features.schema`.

`solo`: one row per configuration and device. `pairs`: one row per pair, sharing mode and device;
``speed_1`` is the steps per second of the first job while it shares, relative to the same job
alone. Figures of a GPU are null where a CPU was measured.
"""

from __future__ import annotations

import pyarrow as pa

from features.schema import LABEL, TIME, TRACE_SCHEMA

WORKLOAD = [TRACE_SCHEMA.field(name) for name in ("model", "dataset", "batch_size", "amp")]
USAGE = [TRACE_SCHEMA.field(name) for name in ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib")]
# beyond what a trace carries; names and units as in `profiler.samplers.FIELDS`
COUNTERS = ("power_w", "sm_clock_mhz", "sm_active_pct", "sm_occupancy_pct", "tensor_pct",
            "hmma_pct", "fp16_pct", "fp32_pct", "dram_pct")  # fmt: skip
HOST = ("cpu_pct", "rss_mib")


def _floats(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.float64()) for name in names]


_MEASURED = [
    *USAGE,
    *_floats(*COUNTERS, *HOST),
    pa.field("device", LABEL, nullable=False),  # gpu or cpu: what was measured
    pa.field("device_name", LABEL, nullable=False),
    pa.field("measured_at", TIME, nullable=False),
]

SOLO_SCHEMA = pa.schema(
    [
        *WORKLOAD,
        pa.field("repeats", pa.int32(), nullable=False),
        # mean and spread over repeats; half width of the 95 % confidence interval of the mean
        *_floats("steps_per_s", "steps_per_s_sd", "half_width_pct"),
        pa.field("tight", pa.bool_(), nullable=False),
        *_floats("torch_mem_mib"),
        # step time as estimated from outside, beside the truth 1 / steps_per_s
        *_floats("step_s_estimate", "step_confidence"),
        *_MEASURED,
    ]
)

PAIR_SCHEMA = pa.schema(
    [
        *(field.with_name(f"{field.name}_{side}") for side in (1, 2) for field in WORKLOAD),
        pa.field("sharing", LABEL, nullable=False),  # time-slicing, or mps
        pa.field("repeats", pa.int32(), nullable=False),
        *_floats("speed_1", "speed_2", "speed_1_sd", "speed_2_sd"),
        *_floats("half_width_1_pct", "half_width_2_pct"),
        pa.field("tight", pa.bool_(), nullable=False),
        *_MEASURED,
    ]
)
