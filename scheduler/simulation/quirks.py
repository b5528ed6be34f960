"""Departures of the engine from correct behaviour, for fidelity to a published simulator.

Everything here is off by default and switched on by `reproductions.published` alone. Each is a
defect or an artefact of the peer's simulator that its published figures depend on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quirks:
    """Which departures are on.

    Attributes:
        tick_s: ends happen on multiples of this many seconds since the epoch; 0 = exact time.
        end_lag_s: under policies that count progress, an end is noticed this much later.
        counting_policies: the policies that count progress.
        survivor_stays_slow: when the older member of a pair ends first, the other is neither
            restored to full speed nor ever packed again.
    """

    tick_s: float = 0.0
    end_lag_s: float = 0.0
    counting_policies: frozenset[str] = frozenset()
    survivor_stays_slow: bool = False


NONE = Quirks()
