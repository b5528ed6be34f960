"""Times, durations and numbers as a person reads them (`scheduler.explain.words`)."""

from scheduler.explain.words import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    clock,
    count,
    duration,
    factor,
    listed,
    moment,
    number,
    percent,
)

__all__ = [
    "DAY_S",
    "HOUR_S",
    "MINUTE_S",
    "clock",
    "count",
    "duration",
    "factor",
    "listed",
    "moment",
    "number",
    "percent",
]
