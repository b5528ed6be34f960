"""Departures from correct behaviour, kept for fidelity to a published simulator.

Everything here is off by default and switched on by the track `published` alone. Each is a defect
or an artefact of the peer's simulator that its published figures depend on.
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
        first_partner: a job is packed with the oldest acceptable partner, not the best.
        srtf_ties_preempt: a waiting job displaces a running one with as much left to do.
        qssf_gpu_count_first: jobs that meet an empty queue are ordered by GPU count.
    """

    tick_s: float = 0.0
    end_lag_s: float = 0.0
    counting_policies: frozenset[str] = frozenset()
    survivor_stays_slow: bool = False
    first_partner: bool = False
    srtf_ties_preempt: bool = False
    qssf_gpu_count_first: bool = False


NONE = Quirks()

PUBLISHED = Quirks(
    tick_s=1.0,
    end_lag_s=1.0,
    counting_policies=frozenset({"srtf", "tiresias", "lucid"}),
    survivor_stays_slow=True,
    first_partner=True,
    srtf_ties_preempt=True,
    qssf_gpu_count_first=True,
)
