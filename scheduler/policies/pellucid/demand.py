"""How many GPUs the jobs of a virtual cluster ask for, running or waiting, as if nobody shared.

What sharing saves is GPUs, and they are worth its cost only where they are missed. Free GPUs do not
tell: where much is shared many are free. What all the jobs ask for does, and does not move when a
pair is made or not made.

It also tells how long a wait is fair. Shared out evenly, with nobody waiting, GPUs of which three
times as many are asked for as there are would give each job a third of its speed. The fair clock
of a virtual cluster runs so much slower than the wall's, and never faster: what it shows of a wait
is the work that a job would have had done.
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
    """The GPUs that the jobs of a virtual cluster ask for in all, and the fair clock of that
    virtual cluster. The clock runs slower than real time by the ratio of GPUs asked for to GPUs
    there are.
    """

    gpus: int = 0
    there: int = 0  # GPUs to be had, as of the last turn; 0: there was none yet
    shown_s: float = 0.0  # by the clock, at `at`
    at: float = 0.0
    unseen_s: dict[str, float] = field(default_factory=dict)  # waits before the clock began, by job

    @property
    def slowdown(self) -> float:
        """How many times slower than the wall clock the fair clock runs; at least 1."""
        return max(1.0, self.gpus / self.there) if self.there else 1.0

    def clock(self, now: float) -> float:
        return self.shown_s + (now - self.at) / self.slowdown

    def change(self, now: float, gpus: int = 0, there: int | None = None) -> None:
        """Add `gpus` to the GPUs asked for from `now` on. Set the number of GPUs `there`, unless it
        is None.
        """
        self.shown_s, self.at = self.clock(now), now
        self.gpus += gpus
        if there is not None:
            self.there = there


@dataclass(slots=True, kw_only=True)
class DemandMemory:
    """The state of `Demand` as a plain record.

    Attributes:
        jobs: for each job that has not ended: its virtual cluster, its GPUs, and the fair clock
            when it was submitted.
        asked: GPUs asked for and fair clock, by virtual cluster.
        paused: for jobs that were paused and will wait again: their wait so far by the fair clock,
            seconds.
    """

    jobs: dict[str, tuple[str, int, float]]
    asked: dict[str, _Asked]
    paused: dict[str, float]


class Demand:
    """Counts the GPUs asked for by jobs that have not ended.

    Args:
        pooled: virtual clusters use one another's GPUs; what counts is what all of them ask for.
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
        """Return what was counted, as a plain record."""
        asked = {
            where: replace(one, unseen_s=dict(one.unseen_s)) for where, one in self._asked.items()
        }
        return DemandMemory(jobs=dict(self._jobs), asked=asked, paused=dict(self._paused))

    def restore(self, memory: DemandMemory) -> None:
        """Restore what `remember` returned, for the same virtual clusters."""
        self._jobs, self._paused = dict(memory.jobs), dict(memory.paused)
        for where, one in memory.asked.items():
            self._asked[where] = replace(one, unseen_s=dict(one.unseen_s))

    def take_over(self, other: Demand, jobs: Iterable[QueuedJob], now: float) -> None:
        """Take over the counts of another `Demand`. Waits of `jobs` by its fair clock are kept."""
        self._paused = other._paused
        if self.pooled == other.pooled:
            self._jobs, self._asked = other._jobs, other._asked
            return
        for queued in jobs:
            job_id = queued.job.job_id
            self.pause(job_id, other.waited_s(job_id, now))
            self.joins(queued, now)

    def begin(self, turn: Turn) -> None:
        """Record the number of GPUs of a virtual cluster (of all when `pooled`) as a turn begins.
        Then credit the waits of jobs that came before that number was known.
        """
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
        """Return how long a job has waited by the fair clock, seconds; None where it is neither
        counted nor paused.
        """
        if job_id not in self._jobs:
            return self._paused.get(job_id)
        where, _, came = self._jobs[job_id]
        asked = self._asked[where]
        return asked.clock(now) - came + asked.unseen_s.get(job_id, 0.0) / asked.slowdown

    def pause(self, job_id: str, waited_s: float | None) -> None:
        """Store the wait so far of a job that is not counted for a while, by the fair clock,
        seconds.
        """
        if waited_s is not None:
            self._paused[job_id] = waited_s

    def over(self, job_id: str, now: float) -> None:
        """Stop counting a job, if it was counted."""
        self._paused.pop(job_id, None)
        if job_id in self._jobs:
            where, gpus, _ = self._jobs.pop(job_id)
            self._asked[where].change(now, -gpus)

    def clock(self, vc: str, now: float) -> float:
        """Return the fair clock of a virtual cluster, seconds."""
        return self._asked[self._where(vc)].clock(now)

    def restricted_to(self, kept: Collection[str]) -> Demand:
        """Return the same count, in which only the jobs among `kept` are known."""
        demand = copy(self)
        demand._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id in kept}
        return demand

    def clock_at_arrival(self, job_id: str) -> float | None:
        """Return the fair clock at the arrival of a job, or None where it is not counted."""
        job = self._jobs.get(job_id)
        return None if job is None else job[2]

    def slowdown(self, vc: str) -> float:
        """Return how many times slower than the wall clock the fair clock runs now."""
        return self._asked[self._where(vc)].slowdown

    def share(self, turn: Turn) -> float:
        """Return the GPUs asked for in the turn's virtual cluster divided by the GPUs that
        it has.
        """
        asked = self._asked[self._where(turn.vc)]
        return asked.gpus / max(asked.there, 1)

    def _where(self, vc: str) -> str:
        return "" if self.pooled else vc
