"""Decides when a job may be given another number of GPUs, by the cost of a checkpoint and a
restart.

Ours, not the paper's: Optimus resizes whenever its gains say so and pays for it. Here the cost is
learnt per job, and a resize has to pay for itself with a margin.
"""

from __future__ import annotations

from dataclasses import dataclass

DECAY = 0.3  # weight of the newest observation
MARGIN = 2.0  # what is saved over what it costs
BYTES_PER_PARAMETER = 16.0  # weights, gradients and Adam's moments in mixed precision


@dataclass(slots=True)
class Resizing:
    """The costs of a job's resizes, and how long its allocations last, learned as they happen.

    Attributes:
        cost_s: seconds of a checkpoint and restart; the first value is a prior.
        lasts_s: seconds that an allocation lasts; likewise.
        share: share of its time a job may spend on restarts, at most.
        changed_at: when the job was last given other GPUs; None before the first time.
    """

    cost_s: float = 30.0
    lasts_s: float = 3600.0
    share: float = 0.25
    changed_at: float | None = None

    def changed(self, now: float, cost_s: float | None = None) -> None:
        """Record that the job was given another number of GPUs at `now`. `cost_s`: seconds that the
        restart took; None: unknown.
        """
        if self.changed_at is not None:
            self.lasts_s += DECAY * (now - self.changed_at - self.lasts_s)
        self.changed_at = now
        if cost_s is not None:
            self.cost_s += DECAY * (cost_s - self.cost_s)

    def worth(self, stay_s: float, move_s: float, now: float) -> bool:
        """Return whether a move pays.

        Args:
            stay_s, move_s: seconds to completion with the GPUs held, and with the new ones.

        The saving counts for as much of the time left as an allocation usually lasts, and must
        exceed the cost MARGIN times.
        """
        if self.changed_at is None:
            return True
        if now - self.changed_at < self.cost_s / self.share:
            return False
        kept = min(1.0, self.lasts_s / move_s) if move_s > 0 else 1.0
        return (stay_s - move_s) * kept > MARGIN * self.cost_s
