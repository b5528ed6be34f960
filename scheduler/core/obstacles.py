"""Obstacles that keep a waiting job from getting GPUs. Policies decide by them.

A `Reason` is for people and programs outside. It is derived from an obstacle once, when the wait is
recorded (`Turn.wait`), and no decision depends on it.
"""

from __future__ import annotations

from enum import Enum, auto

from scheduler.core.decisions import Reason


class Obstacle(Enum):
    """The obstacle that keeps a job from getting GPUs now: GPUs are missing, or a rule forbids
    those that are free."""

    CLOSED = auto()  # the nodes that would hold it are drained
    BUSY = auto()  # fewer GPUs are free than it asks for
    SCATTERED = auto()  # enough are, but not on the fewest nodes
    KEPT = auto()  # they are kept for another job
    FIRST = auto()  # they are kept for the first in line
    SLOW = auto()  # they are of a type so slow that waiting for others is sooner
    BEHIND = auto()  # others are before it in line
    ROUND = auto()  # the policy decides in rounds
    PROFILE = auto()  # it, or the other, has not been profiled
    OWN = auto()  # the owner of either does not share
    TYPE = auto()  # of another type than it asks for
    MEMORY = auto()  # both do not fit in the memory
    SPEED = auto()  # both would be slowed too much
    OTHERS = auto()  # jobs before it would be kept waiting for longer than it saves

    @property
    def reason(self) -> Reason:
        """The reason code that people and other programs see for the obstacle."""
        return _NAMES[self]


_NAMES = {
    Obstacle.CLOSED: Reason.NODE_DRAINED,
    Obstacle.BUSY: Reason.GPUS_BUSY,
    Obstacle.SCATTERED: Reason.GPUS_FRAGMENTED,
    Obstacle.KEPT: Reason.RESERVED_FOR_STARVING_JOB,
    Obstacle.FIRST: Reason.WOULD_DELAY_FIRST,
    Obstacle.SLOW: Reason.FASTER_GPUS_SOON,
    Obstacle.BEHIND: Reason.BEHIND_HIGHER_PRIORITY,
    Obstacle.ROUND: Reason.NEXT_ROUND,
    Obstacle.PROFILE: Reason.AWAITING_PROFILE,
    Obstacle.OWN: Reason.SHARING_OPTED_OUT,
    Obstacle.TYPE: Reason.NO_MATCHING_GPU_TYPE,
    Obstacle.MEMORY: Reason.MEMORY_GUARD,
    Obstacle.SPEED: Reason.INTERFERENCE_GUARD,
    Obstacle.OTHERS: Reason.KEEPS_OTHERS_OUT,
}
_OF = {reason: obstacle for obstacle, reason in _NAMES.items()}


def obstacle_of(why: Obstacle | Reason) -> Obstacle | None:
    """Return the obstacle that a policy means by an obstacle or a reason code. Return None for a
    reason code by which no policy decides."""
    return why if isinstance(why, Obstacle) else _OF.get(why)
