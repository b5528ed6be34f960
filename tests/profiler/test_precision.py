"""AMP and tensor cores, from counters."""

from __future__ import annotations

import pytest

from profiler.precision import infer


@pytest.mark.parametrize(
    ("means", "tensor_cores", "amp"),
    [
        ({"sm_active_pct": 60, "hmma_pct": 20, "fp16_pct": 3}, True, True),
        ({"sm_active_pct": 60, "hmma_pct": 20, "fp16_pct": 0.0}, True, None),  # TF32, perhaps
        ({"sm_active_pct": 60, "tensor_pct": 20}, True, None),
        ({"sm_active_pct": 60, "hmma_pct": 0.1, "fp16_pct": 0}, False, False),
        ({"sm_active_pct": 1, "hmma_pct": 0, "fp16_pct": 0}, None, None),  # idle: no verdict
        ({"util_pct": 90}, None, None),
        ({}, None, None),
    ],
)
def test_verdicts(means: dict[str, float], tensor_cores: bool | None, amp: bool | None) -> None:
    found = infer(means)
    assert (found.tensor_cores, found.amp) == (tensor_cores, amp)
    assert found.reason
