"""A trial: a copy of the core, a change that is made in it, and what the copy decides then.

Every what-if question is answered by trials. The caller chooses how far a trial goes: with the
change only, for crude figures; with one round of decisions, which shows the jobs that start at
once; or run into simulated futures (`whatif.forecasts`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from scheduler.core.core import Core
from scheduler.core.decisions import STARTS, Action, Decision

Alteration = Callable[[Core, float], object]  # made to a copy that stands at a moment
Item = str | int  # a job that leaves, or a closed node that opens


class Trial:
    """A copy of the core in which a change was made.

    Args:
        core: the copy; it is used up.
        now: the time of the copy, seconds since the epoch.
        alter: function that makes the change; None: nothing is changed.

    Attributes:
        decisions: what the copy decided at once; empty before `decide` is called.
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
        """Return the last decision of this trial about a job, or None if there is none."""
        return next((d for d in reversed(self.decisions) if d.job_id == job_id), None)

    def begins(self, job_id: str, actions: Container[Action] = STARTS) -> Decision | None:
        """Return the decision by which a job gets its GPUs at once, or None if it does not."""
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
    """Return a function that removes waiting or running jobs from a copy of the core, and opens
    closed nodes."""

    def alter(core: Core, now: float) -> None:
        for item in gone:
            if isinstance(item, int):
                core.nodes.open_wholly(item)
            else:
                core.withdrawn(item, now)

    return alter
