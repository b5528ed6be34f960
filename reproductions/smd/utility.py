"""The worth of finishing at some time: the sigmoid of SMD's authors."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Utility:
    """U(t) = worth / (1 + exp(urgency (t - due))), falling in the completion time t.

    The authors draw these from ranges, with t of a few units (worth 1 to 100, due 1 to 15). A
    trace names none: the defaults count t in multiples of the time the job would take on what it
    asks for, which is ours.

    Attributes:
        worth: worth of the job, at once.
        urgency: 0 for a job that can wait, 0.01 to 1 for one that cannot wait long, 4 to 6 for
            one whose deadline is hard.
        due: when half of the worth is lost.
    """

    worth: float = 1.0
    urgency: float = 1.0
    due: float = 2.0

    def __call__(self, completion: float) -> float:
        """Return the worth of a completion so long after submission."""
        return self.worth / (1.0 + exp(min(self.urgency * (completion - self.due), 700.0)))
