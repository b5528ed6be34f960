"""Functions of the C library without their last bits, which differ between processors.

What is decided, stored and hashed into `dvc.lock` must not depend on whether a processor fuses a
multiplication with an addition. Differences of one bit vanish where the answer is rounded.
"""

from __future__ import annotations

import math

SECONDS = 6  # digits kept of a duration: microseconds
RATIO = 9  # digits kept of a speed, a chance, a count


def expm1(value: float, digits: int = SECONDS) -> float:
    """Return e ** value - 1, rounded; never below 0, for ln(1 + x) was of no negative x."""
    return max(0.0, round(math.expm1(value), digits))


def exp(value: float, digits: int = SECONDS) -> float:
    """Return e ** value, rounded."""
    return round(math.exp(value), digits)
