"""A score taken apart (`scheduler.explain.terms`)."""

from scheduler.explain.terms import (
    SHOWN_TERMS,
    TOLERANCE,
    Breakdown,
    Term,
    breakdowns,
    factor_of,
    gap_of,
    seconds_of,
)

__all__ = [
    "SHOWN_TERMS",
    "TOLERANCE",
    "Breakdown",
    "Term",
    "breakdowns",
    "factor_of",
    "gap_of",
    "seconds_of",
]
