"""One trial: a copy of the core, what is altered in it, and what it decides then.

Every "what if" is one. How far it is played is up to who asks: only altered, which crude figures
are read from; decided once, which says who starts at once; or followed into futures
(`whatif.forecasts`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from scheduler.core.core import Core
from scheduler.core.decisions import STARTS, Action, Decision

Alteration = Callable[[Core, float], object]  # made to a copy that stands at a moment
Item = str | int  # a job that leaves, or a closed node that opens


class Trial:
    """A copy of the core in which something is altered.

    Args:
        core: the copy; used up.
        now: the moment that it stands at, seconds since the epoch.
        alter: None: nothing is.

    Attributes:
        decisions: what it decided at once; empty before `decide`.
    """

    def __init__(self, core: Core, now: float, alter: Alteration | None = None):
        self.core, self.now = core, now
        self.decisions: Sequence[Decision] = ()
        if alter is not None:
            alter(core, now)

    def decide(self) -> Trial:
        """Let the copy of the core take its decisions at the trial's time. Return this trial."""
        self.decisions = self.core.decide(self.now)
        return self

    def last(self, job_id: str) -> Decision | None:
        """Return what was decided last about a job; None: nothing."""
        return next((d for d in reversed(self.decisions) if d.job_id == job_id), None)

    def begins(self, job_id: str, actions: Container[Action] = STARTS) -> Decision | None:
        """Return the decision by which a job gets its GPUs at once; None: it does not."""
        return begins(self.decisions, job_id, actions)


def begins(
    decisions: Iterable[Decision], job_id: str, actions: Container[Action] = STARTS
) -> Decision | None:
    """Return the first decision that gives a job its GPUs. Return None if there is none.

    Args:
        actions: actions that count. By default profiling does not count as a start.
    """
    return next((d for d in decisions if d.job_id == job_id and d.action in actions), None)


def without(gone: Iterable[Item]) -> Alteration:
    """Return the alteration by which jobs leave, waiting or running, and closed nodes open."""

    def alter(core: Core, now: float) -> None:
        for item in gone:
            if isinstance(item, int):
                core.nodes.open_wholly(item)
            else:
                core.withdrawn(item, now)

    return alter
