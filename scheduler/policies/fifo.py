"""First in, first out, with head-of-line blocking; and a variant that skips jobs that do not
fit."""

from __future__ import annotations

from scheduler.core.policy import Policy, skipping
from scheduler.core.turn import Turn


class Fifo(Policy):
    """The policy `fifo`: jobs start in arrival order, and the first that does not fit holds up the
    rest."""

    name = "fifo"


class FifoSkip(Policy):
    """A variant of `fifo`: jobs start in arrival order, and one that does not fit is skipped."""

    name = "fifo-skip"

    def serve(self, turn: Turn) -> None:
        skipping(turn)
