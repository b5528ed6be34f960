"""How many GPUs the jobs of a virtual cluster ask for, running or waiting, as if no job shared any.

Sharing saves GPUs, which is worth its cost only where GPUs are scarce. The number of free GPUs does
not show that, since sharing itself leaves many free. The number that all jobs ask for does, and
pairing jobs does not change it.

It also shows how long a wait is fair. If jobs ask for three times as many GPUs as there are,
sharing them out evenly would give each job a third of its speed. The fair clock of a virtual
cluster runs slower than the wall clock by this factor, and never faster. Over a wait, it shows the
work that the job would have had done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass, field, replace

from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn


@dataclass(slots=True)
class _Asked:
    """The number of GPUs that all jobs of a virtual cluster ask for, and its fair clock. The clock
    is slower than real time by the ratio of GPUs asked for to GPUs of the virtual cluster."""

    gpus: int = 0
    there: int = 0  # GPUs of the virtual cluster, as of its last turn; 0: it has had no turn
    shown_s: float = 0.0  # by the clock, at `at`
    at: float = 0.0
    unseen_s: dict[str, float] = field(default_factory=dict)  # waits before the clock began, by job

    @property
    def slowdown(self) -> float:
        """How many times slower than the wall clock the fair clock runs: GPUs that jobs ask for
        over GPUs there are, at least 1."""
        return max(1.0, self.gpus / self.there) if self.there else 1.0

    def clock(self, now: float) -> float:
        return self.shown_s + (now - self.at) / self.slowdown

    def change(self, now: float, gpus: int = 0, there: int | None = None) -> None:
        """Add `gpus` to the number of GPUs that jobs ask for, from `now` on. Set the number of GPUs
        of the virtual cluster to `there`, unless that is None."""
        self.shown_s, self.at = self.clock(now), now
        self.gpus += gpus
        if there is not None:
            self.there = there


@dataclass(slots=True, kw_only=True)
class DemandMemory:
    """A plain record of the state of `Demand`.

    Attributes:
        jobs: for each job that has not ended: its virtual cluster, its GPUs, and what the fair
            clock showed when it was submitted.
        asked: maps each virtual cluster to its number of GPUs asked for and its fair clock.
        paused: for jobs that left their queue for a while: their wait so far by the fair clock,
            seconds.
    """

    jobs: dict[str, tuple[str, int, float]]
    asked: dict[str, _Asked]
    paused: dict[str, float]


class Demand:
    """Counts the GPUs that all jobs ask for, from when they join a queue until they end.

    Args:
        pooled: count all virtual clusters as one, since they use one another's GPUs.
    """

    def __init__(self, pooled: bool = False):
        self.pooled = pooled
        self._jobs: dict[str, tuple[str, int, float]] = {}  # where, GPUs, the clock when it came
        self._asked: defaultdict[str, _Asked] = defaultdict(_Asked)  # by virtual cluster
        self._paused: dict[str, float] = {}  # jobs to come back: what they waited, by the clock

    def joins(self, queued: QueuedJob, now: float) -> None:
        """Count the GPUs of a job that joins its queue. A job that comes back, or was changed, is
        counted only once.
        """
        job, where = queued.job, self._where(queued.job.vc)
        asked, known = self._asked[where], self._jobs.get(job.job_id)
        came, waited_s = asked.clock(now), max(now - queued.submit_time, 0.0)
        paused_s = self._paused.get(job.job_id)
        if known is not None:
            came -= self._asked[known[0]].clock(now) - known[2]
        elif paused_s is not None:
            came -= paused_s
        elif asked.there:
            came -= waited_s
        else:  # how many ask is not known before all are here
            asked.unseen_s[job.job_id] = waited_s
        self.over(job.job_id, now)
        self._jobs[job.job_id] = where, job.gpus, came
        asked.change(now, job.gpus)

    def remember(self) -> DemandMemory:
        """Return a plain record of the counts and clocks."""
        asked = {
            where: replace(one, unseen_s=dict(one.unseen_s)) for where, one in self._asked.items()
        }
        return DemandMemory(jobs=dict(self._jobs), asked=asked, paused=dict(self._paused))

    def restore(self, memory: DemandMemory) -> None:
        """Restore what `remember` returned, in a cluster with the same virtual clusters."""
        self._jobs, self._paused = dict(memory.jobs), dict(memory.paused)
        for where, one in memory.asked.items():
            self._asked[where] = replace(one, unseen_s=dict(one.unseen_s))

    def take_over(self, other: Demand, jobs: Iterable[QueuedJob], now: float) -> None:
        """Take over the counts of another `Demand`. What `jobs` have waited by its fair clock
        (which runs slower the more GPUs are asked for) is kept."""
        self._paused = other._paused
        if self.pooled == other.pooled:
            self._jobs, self._asked = other._jobs, other._asked
            return
        for queued in jobs:
            job_id = queued.job.job_id
            self.pause(job_id, other.waited_s(job_id, now))
            self.joins(queued, now)

    def begin(self, turn: Turn) -> None:
        """Record how many GPUs a virtual cluster (or all, when `pooled`) has. Then count the waits
        of jobs that joined before this number was known. Called as a turn (a round of decisions on
        the virtual cluster) begins."""
        where = self._where(turn.vc)
        there = turn.cluster.spec.gpus if self.pooled else turn.pool.gpus
        asked = self._asked[where]
        if there != asked.there:
            asked.change(turn.now, there=there)
        for job_id, waited_s in asked.unseen_s.items():
            if job_id in self._jobs:
                _, gpus, came = self._jobs[job_id]
                self._jobs[job_id] = where, gpus, came - waited_s / asked.slowdown
        asked.unseen_s.clear()

    def waited_s(self, job_id: str, now: float) -> float | None:
        """Return how many seconds a job has waited by the fair clock, which runs slower the more
        GPUs are asked for. Return None for a job that is neither counted nor paused."""
        if job_id not in self._jobs:
            return self._paused.get(job_id)
        where, _, came = self._jobs[job_id]
        asked = self._asked[where]
        return asked.clock(now) - came + asked.unseen_s.get(job_id, 0.0) / asked.slowdown

    def pause(self, job_id: str, waited_s: float | None) -> None:
        """Store how many seconds a job has waited so far by the fair clock (which runs slower the
        more GPUs are asked for), while the job is out of its queue and not counted."""
        if waited_s is not None:
            self._paused[job_id] = waited_s

    def over(self, job_id: str, now: float) -> None:
        """Stop counting the GPUs of a job, and forget what it had waited."""
        self._paused.pop(job_id, None)
        if job_id in self._jobs:
            where, gpus, _ = self._jobs.pop(job_id)
            self._asked[where].change(now, -gpus)

    def clock(self, vc: str, now: float) -> float:
        """Return what the fair clock of a virtual cluster shows at `now`, in seconds. It runs
        slower the more GPUs jobs ask for."""
        return self._asked[self._where(vc)].clock(now)

    def restricted_to(self, kept: Collection[str]) -> Demand:
        """Return the same counts, with records only of the jobs in `kept`."""
        demand = copy(self)
        demand._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id in kept}
        return demand

    def clock_at_arrival(self, job_id: str) -> float | None:
        """Return what the fair clock (which runs slower the more GPUs are asked for) showed when a
        job was submitted, or None for a job that is not counted."""
        job = self._jobs.get(job_id)
        return None if job is None else job[2]

    def slowdown(self, vc: str) -> float:
        """Return how many times slower than the wall clock a virtual cluster's fair clock runs now:
        GPUs that jobs ask for over GPUs there are, at least 1."""
        return self._asked[self._where(vc)].slowdown

    def share(self, turn: Turn) -> float:
        """Return the number of GPUs that jobs of the turn's virtual cluster ask for, divided by its
        number of GPUs."""
        asked = self._asked[self._where(turn.vc)]
        return asked.gpus / max(asked.there, 1)

    def _where(self, vc: str) -> str:
        return "" if self.pooled else vc
