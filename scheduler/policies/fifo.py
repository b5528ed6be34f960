"""First in, first out, with head-of-line blocking; and its variant that skips what does not fit."""

from __future__ import annotations

from scheduler.core.policy import Policy, skipping
from scheduler.core.turn import Turn


class Fifo(Policy):
    """Arrival order; the first job that does not fit holds up the rest."""

    name = "fifo"


class FifoSkip(Policy):
    """Arrival order. A job that does not fit lets later ones pass."""

    name = "fifo-skip"

    def serve(self, turn: Turn) -> None:
        skipping(turn)
