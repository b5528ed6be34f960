"""Student's t distribution, for intervals over the few seeds of a comparison."""

from __future__ import annotations

from math import atan, cos, pi, sin, sqrt


def within(t: float, degrees: int) -> float:
    """Return the probability that Student's t with `degrees` degrees of freedom lies between -t and
    t.

    Abramowitz and Stegun, 26.7.3 and 26.7.4: a finite sum for integer degrees of freedom.
    """
    angle = atan(t / sqrt(degrees))
    odd = degrees % 2
    term = cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def bound(chance: float, degrees: int) -> float:
    """Return the number t such that Student's t lies between -t and t with probability `chance`:
    2.776 for 0.95 and 4 degrees of freedom."""
    low, high = 0.0, 1.0
    while within(high, degrees) < chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, degrees) < chance else (low, middle)
    return high
