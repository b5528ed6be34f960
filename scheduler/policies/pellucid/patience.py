"""Whether the time a job waits counts in the order of its queue. In a deep queue it does not.

What a job is forgiven for its wait is to be little beside what jobs are predicted to take. Where a
queue holds weeks of work everybody has waited for days: counted by the clock, that is more than any
prediction, and shortest first becomes first come, first served. So nobody's wait counts once the
jobs of a virtual cluster ask for `DEEP` times its GPUs, until they ask for no more than it has:
counted again while there still is a queue, the waits of days that it left behind would go first all
at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.policies.pellucid.demand import Demand

DEEP = 3.0


class Patience:
    """Knows the virtual clusters whose queue is deep. In these, the time waited does not count in
    the order.
    """

    def __init__(self, deep: Iterable[str] = ()) -> None:
        self._deep = set(deep)

    def remember(self) -> list[str]:
        """Return the names of the virtual clusters with a deep queue, as a plain record. A queue
        becomes deep when at least `DEEP` times its GPUs are asked for, and stops when they suffice.
        """
        return sorted(self._deep)

    def counts(self, vc: str) -> bool:
        """Return whether the time waited counts in the order of a virtual cluster."""
        return vc not in self._deep

    def changed(self, vc: str, demand: Demand) -> bool:
        """Look at the demand again. Return whether the answer of `counts` changed."""
        slowdown = demand.slowdown(vc)
        if self.counts(vc):
            if slowdown < DEEP:
                return False
            self._deep.add(vc)
            return True
        if slowdown > 1.0:
            return False
        self._deep.discard(vc)
        return True
