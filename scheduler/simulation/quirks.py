"""Departures of the engine from correct behaviour, for fidelity to a published simulator.

All are off by default, and only `reproductions.published` switches them on. Each is a defect or an
artefact of the published simulator on which its figures depend.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """Which departures from correct behaviour are on.

    Attributes:
        tick_s: jobs end at multiples of this many seconds since the epoch; 0 = at their exact time.
        end_lag_s: seconds by which an end is noticed later, under policies that count progress.
        counting_policies: names of the policies that count progress.
        survivor_stays_slow: whether, when the older job of a pair ends first, the other neither
            returns to full speed nor is ever packed again.
    """

    tick_s: float = 0.0
    end_lag_s: float = 0.0
    counting_policies: frozenset[str] = frozenset()
    survivor_stays_slow: bool = False


NONE = Quirks()
