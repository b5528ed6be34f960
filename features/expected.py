"""How long the owner of a job expects it to run: a time, "test" or "full".

Standard library only.
"""

from __future__ import annotations

from features.clock import read_seconds

WITHIN = 2.0  # a statement holds if what it is about lasts within this factor of it
NAMED_S = {"test": (0.0, 900.0), "full": (3600.0, 1_209_600.0)}
MOST_S = 1e9  # a statement of more says nothing


def expected(text: str) -> tuple[float, float] | None:
    """Return the range of durations (shortest, longest), in seconds, that an owner's answer allows:
    "test", "full", or a time, which allows from half to twice as long. Return None for "", for a
    time of 0 or above `MOST_S`, and for any other text."""
    if text in NAMED_S:
        return NAMED_S[text]
    seconds = seconds_of(text)
    return (seconds / WITHIN, seconds * WITHIN) if 0 < seconds <= MOST_S else None


def checked(text: str) -> str:
    """Return an owner's answer with surrounding spaces removed, as it is stored. Raise ValueError
    unless it is empty or `expected` gives a range for it."""
    given = text.strip()
    if given and expected(given) is None:
        raise ValueError(f"{given} is no length; give 6h, 1:30:00, test or full")
    return given


def seconds_of(text: str) -> float:
    """Return the seconds of a time as `read_seconds` reads it, or 0 if the text is no time."""
    try:
        return read_seconds(text)
    except ValueError:
        return 0.0
