"""Tables that translate Slurm's words for how a job ended into Pellucid's."""

from __future__ import annotations

from features.states import State

RUNNING = frozenset(
    ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")
)
STATES = {
    "COMPLETED": State.COMPLETED,
    "FAILED": State.FAILED,
    "CANCELLED": State.CANCELLED,
    "TIMEOUT": State.TIMEOUT,
    "DEADLINE": State.TIMEOUT,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "PREEMPTED": State.PREEMPTED,
    "REVOKED": State.CANCELLED,
    "NODE_FAIL": State.NODE_FAIL,
    "BOOT_FAIL": State.NODE_FAIL,
}
OVER = frozenset(STATES)
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
