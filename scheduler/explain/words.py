"""Times, durations and numbers as a person reads them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
_UNITS = (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1.0))


def duration(seconds: float | None) -> str:
    """Seconds in at most two units: "93 s", "3 min 20 s", "35 min", "3 h 35 min", "2 d 4 h"."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds) if seconds < 600 else 60 * round(seconds / 60)
    for i, (unit, size) in enumerate(_UNITS[:-1]):
        if whole >= size:
            small, step = _UNITS[i + 1]
            big, rest = divmod(whole, int(size))
            rest = 0 if unit == "min" and big >= 10 else round(rest / step)
            if rest * step >= size:  # 59.6 min is an hour
                big, rest = big + 1, 0
            return f"{big} {unit} {rest} {small}" if rest else f"{big} {unit}"
    return f"{whole} s"


def clock(seconds: float) -> str:
    """Seconds since something, to the second: "+5d 11:25:20", "+00:03:20"."""
    sign = "-" if seconds < 0 else "+"
    whole = round(abs(seconds))
    days, rest = divmod(whole, int(DAY_S))
    hours, rest = divmod(rest, 3600)
    text = f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{sign}{days}d {text}" if days else f"{sign}{text}"


def moment(epoch_s: float | None, *, zone: bool = False) -> str:
    """Seconds since the epoch as a UTC date and time, to the second."""
    if epoch_s is None:
        return "never"
    text = datetime.fromtimestamp(round(epoch_s), UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text} UTC" if zone else text


def number(value: float | None) -> str:
    """A number with thousands separated and about four significant digits."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def factor(value: float) -> str:
    """A multiplier: "x0.40", "x12"."""
    if value >= 100 or (value < 0.01 and value > 0):
        return f"×{value:.2g}" if value < 1e4 else f"×{value:.1e}"
    return f"×{value:.2f}" if value < 10 else f"×{value:.0f}"


def percent(share: float) -> str:
    """A share of one as percent; small shares keep a digit."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def count(n: int, noun: str) -> str:
    """ "1 job", "2 jobs"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(items: list[str]) -> str:
    """ "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
