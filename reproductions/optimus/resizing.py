"""Decides when a job may change its number of GPUs, by the cost of a checkpoint and a restart.

This is ours, not the paper's: Optimus resizes a job whenever its gains say so, whatever a restart
costs. Here the cost is learned for each job, and a resize must save more than it costs, with a
margin.
"""

from __future__ import annotations

from dataclasses import dataclass

DECAY = 0.3  # weight of the newest observation
MARGIN = 2.0  # what is saved over what it costs
BYTES_PER_PARAMETER = 16.0  # weights, gradients and Adam's moments in mixed precision


@dataclass(slots=True)
class Resizing:
    """What one job's resizes cost, and how long its allocations last, learned as they happen.

    Attributes:
        cost_s: estimated seconds of a checkpoint and restart; at first an assumption.
        lasts_s: estimated seconds that an allocation lasts; at first an assumption.
        share: largest share of its time that a job may spend on restarts.
        changed_at: when the job's number of GPUs last changed; None: it never has.
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
        """Return whether a change of the number of GPUs pays.

        Args:
            stay_s: seconds to completion with the GPUs held.
            move_s: seconds to completion with the new number of GPUs.

        The first change always pays. A later one does not within `cost_s` / `share` seconds of the
        last. Otherwise the saving must exceed the cost MARGIN times. It counts only in proportion
        to how much of the time left an allocation usually lasts.
        """
        if self.changed_at is None:
            return True
        if now - self.changed_at < self.cost_s / self.share:
            return False
        kept = min(1.0, self.lasts_s / move_s) if move_s > 0 else 1.0
        return (stay_s - move_s) * kept > MARGIN * self.cost_s
