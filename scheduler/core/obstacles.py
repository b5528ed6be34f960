"""What keeps a waiting job from GPUs: what policies decide by.

A `Reason` is what people and programs outside read; it is named from an obstacle once, when the
wait is recorded (`Turn.wait`), and steers nothing.
"""

from __future__ import annotations

from enum import Enum, auto

from scheduler.core.decisions import Reason


class Obstacle(Enum):
    """What a job lacks, or what stands between it and GPUs that are there."""

    CLOSED = auto()  # the nodes that would hold it are drained
    BUSY = auto()  # fewer GPUs are free than it asks for
    SCATTERED = auto()  # enough are, but not on the fewest nodes

    @property
    def reason(self) -> Reason:
        """What it is called outside."""
        return _NAMES[self]


_NAMES = {
    Obstacle.CLOSED: Reason.NODE_DRAINED,
    Obstacle.BUSY: Reason.GPUS_BUSY,
    Obstacle.SCATTERED: Reason.GPUS_FRAGMENTED,
}
