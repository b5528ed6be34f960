"""Functions of the C library, rounded so that all processors return the same number.

Processors differ in the last bits, because some fuse a multiplication with an addition. Decisions,
stored values and hashes in `dvc.lock` must not depend on that.
"""

from __future__ import annotations

import math

SECONDS = 6  # digits kept of a duration: microseconds
RATIO = 9  # digits kept of a speed, a chance, a count


def expm1(value: float, digits: int = SECONDS) -> float:
    """Return e ** value - 1, rounded to `digits` decimals, and at least 0. It inverts ln(1 + x) of
    a duration x, which is never negative."""
    return max(0.0, round(math.expm1(value), digits))


def exp(value: float, digits: int = SECONDS) -> float:
    """Return e to the power of `value`, rounded to `digits` decimals so that all processors give
    the same number."""
    return round(math.exp(value), digits)
