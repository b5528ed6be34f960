"""What state tables share: the recorded steps of a thing, and the error for a transition that is in
no table.

A thing that lives through named states moves by one table, keyed by its state and by what happens
to it. What is not in the table cannot happen: the error tells everything that did.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Step(NamedTuple):
    """One event in a state machine: its time (seconds since the epoch), its kind, and the state
    after it.

    Attributes:
        number: number of the event or the decision; -1 without one.
    """

    at: float
    what: StrEnum
    state: StrEnum
    number: int = -1

    def __str__(self) -> str:
        which = f" {self.number}" if self.number >= 0 else ""
        return f"{self.at:.3f} {self.what}{which}: {self.state}"


class IllegalTransition(RuntimeError):
    """Raised when an event is not allowed in the present state. The message lists the events so
    far.
    """

    def __init__(self, what: StrEnum, state: StrEnum, story: str) -> None:
        super().__init__(f"{what} while {state}\n{story}")


def story(name: str, steps: Iterable[Step]) -> str:
    """Return everything that happened to `name`, a line each."""
    return "\n".join([name, *(f"  {step}" for step in steps)])
