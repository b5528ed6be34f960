"""The value of finishing a job at a given time: the sigmoid of SMD's authors."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True)
class Utility:
    """The function U(t) = worth / (1 + exp(urgency (t - due))), which falls with the completion
    time t.

    The authors draw the parameters from ranges, with t of a few units (worth 1 to 100, due 1 to
    15). A trace has none of them. Our defaults count t in multiples of the time that the job would
    take on the GPUs it asks for.

    Attributes:
        worth: upper bound of the value; nearly the value of completing the job at once.
        urgency: 0 for a job that can wait, 0.01 to 1 for one that cannot wait long, 4 to 6 for one
            with a hard deadline.
        due: time at which half of the value is lost.
    """

    worth: float = 1.0
    urgency: float = 1.0
    due: float = 2.0

    def __call__(self, completion: float) -> float:
        """Return the value (utility) of a job that completes `completion` units of time after its
        submission."""
        return self.worth / (1.0 + exp(min(self.urgency * (completion - self.due), 700.0)))
