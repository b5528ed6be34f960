"""What an owner says of how long a job will run: a time, "test" or "full".

Standard library only.
"""

from __future__ import annotations

from features.clock import read_seconds

WITHIN = 2.0  # a statement holds if what it is about lasts within this factor of it
NAMED_S = {"test": (0.0, 900.0), "full": (3600.0, 1_209_600.0)}
MOST_S = 1e9  # a statement of more says nothing


def expected(text: str) -> tuple[float, float] | None:
    """Return the shortest and the longest duration (s) that an owner's words allow: "test", "full",
    or a time. Return None for "" and for anything else.
    """
    if text in NAMED_S:
        return NAMED_S[text]
    seconds = seconds_of(text)
    return (seconds / WITHIN, seconds * WITHIN) if 0 < seconds <= MOST_S else None


def checked(text: str) -> str:
    """Return what an owner expects, in the form in which it is stored. Raise ValueError where it
    names no length.
    """
    given = text.strip()
    if given and expected(given) is None:
        raise ValueError(f"{given} is no length; give 6h, 1:30:00, test or full")
    return given


def seconds_of(text: str) -> float:
    """Return the seconds that a text names, or 0 where it is no time."""
    try:
        return read_seconds(text)
    except ValueError:
        return 0.0
