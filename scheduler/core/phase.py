"""The phases through which a job goes in the service."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The phase of a job of the service, between its submission and its end."""

    SUBMITTED = "submitted"  # not in a queue yet: not evaluated, or waits for its profile
    PROFILING = "profiling"  # on the profiling partition
    QUEUED = "queued"
    HELD = "held"  # waits, and does not start until it is released
    STARTING = "starting"  # decided; not yet seen to run
    RUNNING = "running"
    ENDED = "ended"  # by itself, well or not: see its state
    CANCELLED = "cancelled"
    REFUSED = "refused"  # can never run here
    LOST = "lost"  # was begun, and nobody knows how it ended; not run again

    @property
    def waits(self) -> bool:
        """Whether the job waits for GPUs, held or not."""
        return self in WAITS

    @property
    def holds_gpus(self) -> bool:
        return self in HOLDS

    @property
    def over(self) -> bool:
        """Whether the job has ended and nothing more will happen to it."""
        return self in OVER


ELIGIBLE = (Phase.SUBMITTED, Phase.QUEUED)  # may be given GPUs
WAITS = (*ELIGIBLE, Phase.HELD)
HOLDS = (Phase.PROFILING, Phase.STARTING, Phase.RUNNING)
OVER = (Phase.ENDED, Phase.CANCELLED, Phase.REFUSED, Phase.LOST)
