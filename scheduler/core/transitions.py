"""What all state machines of the project share: the recorded steps of an object, and the error for
a transition that its table does not allow.

Each kind of object has one table of transitions, keyed by its state and by the event. An event that
is not in the table raises an error that lists all events so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Step(NamedTuple):
    """One step of an object through its states: the time (seconds since the epoch), the kind of the
    event, and the state after it.

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
    """Return the recorded steps of the object `name` as text, one on each line."""
    return "\n".join([name, *(f"  {step}" for step in steps)])
