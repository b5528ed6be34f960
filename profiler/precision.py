"""Infers from GPU counters whether a command uses tensor cores and mixed precision.

The tensor pipe of half-precision matrix instructions (HMMA) also carries TF32, which torch uses for
convolutions in plain FP32 training. What tells the two apart is the FP16 pipe beside it: casts and
element-wise work in half precision leave a trace there, FP32 training with TF32 does not. If the
trace lies between the two, the answer is left open rather than guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BUSY_PCT = 5.0  # SM activity below this shows nothing about what was computed
TENSOR_PCT = 1.0
HALF_PCT = 0.3


@dataclass(frozen=True, slots=True)
class Precision:
    """Whether tensor cores and mixed precision (`amp`) were used. None if the counters cannot show
    it; then `reason` says why."""

    tensor_cores: bool | None
    amp: bool | None
    reason: str


def infer(means: Mapping[str, float]) -> Precision:
    """Return whether one GPU used tensor cores and mixed precision.

    Args:
        means: mean of each counter over the steady window, percent; counters not measured are
            absent.
    """
    active = means.get("sm_active_pct")
    tensor = means.get("hmma_pct", means.get("tensor_pct"))
    half = means.get("fp16_pct")
    if active is None or tensor is None:
        return Precision(None, None, "no tensor-core counters (Hopper's, or DCGM's, are needed)")
    if active < BUSY_PCT:
        return Precision(None, None, f"SMs active {active:.1f} % of the time: too little to decide")
    if tensor < TENSOR_PCT:
        return Precision(False, False, f"tensor cores active {tensor:.2f} % of the time")
    if half is None:
        return Precision(
            True, None, "tensor cores in use; no FP16 counter to distinguish AMP from TF32"
        )
    if half >= HALF_PCT:
        return Precision(
            True, True, f"tensor cores active {tensor:.1f} %, FP16 pipe {half:.1f} % of the time"
        )
    return Precision(True, None, "tensor cores in use, FP16 pipe idle: TF32 or bfloat16")
