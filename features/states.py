"""How a job ends, as every trace and every part of the program names it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """How a job ended, or where it was when the trace was taken."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    PREEMPTED = "preempted"
    RUNNING = "running"
    PENDING = "pending"
    UNKNOWN = "unknown"


MENDABLE = State.FAILED, State.OUT_OF_MEMORY  # another try may end otherwise
