"""The states of a job, as all traces and all parts of the program name them."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state in which a job ended, or in which it was when the trace was taken."""

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
