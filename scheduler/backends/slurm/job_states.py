"""How a job ended, in Slurm's words and in ours."""

from __future__ import annotations

from pathlib import Path

from features.schema import State
from scheduler.backends.slurm.parse import Row

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
_BY_SLURM = (State.CANCELLED, State.TIMEOUT, State.OUT_OF_MEMORY, State.PREEMPTED)
TAIL = 8192  # bytes of output that are looked at


def judge(row: Row) -> tuple[State, int | None]:
    """The state, and the exit code of what ended by itself."""
    state = STATES[row.state]
    return state, None if state in _BY_SLURM else row.exit_code


def ran_out_of_memory(row: Row, output: Path) -> bool:
    """Whether Slurm killed it for its memory. 22.05 without cgroups calls that a failure, by
    SIGKILL, and says why in the job's output only."""
    return row.status & 0x7F == 9 and "xceeded job memory limit" in _tail(output)


def last_line(output: Path) -> str:
    """The last line of its output, for a person."""
    lines = [line.strip() for line in _tail(output).splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _tail(output: Path) -> str:
    try:
        with output.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
