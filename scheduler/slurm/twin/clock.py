"""When slurmctld goes through its queue, and when it computes priorities.

After controller.c, agent.c, job_scheduler.c, backfill.c and the decay thread of
priority/multifactor of Slurm 22.05. A loop that runs about once a second makes the main pass every
`sched_interval`. It also makes one after a job came or ended, but not sooner than
`batch_sched_delay` after the last pass. Only where the site has an epilog does the end of a job
cause a pass at once. Backfill pauses for `bf_interval` after each run. Priorities and fair share
are computed every `PriorityCalcPeriod`, those of a new job when it comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from scheduler.slurm.twin.priority import duration_s
from scheduler.slurm.twin.site import Site

NEVER = -inf


@dataclass(slots=True)
class Rhythm:
    """The intervals between slurmctld's passes over its queue, in seconds. With `at_once`, the end
    of a job causes a pass."""

    delay_s: float
    main_s: float
    backfill_s: float
    calc_s: float
    at_once: bool = False

    @classmethod
    def of(cls, site: Site) -> Rhythm:
        """Return the intervals that a site sets, with Slurm's own defaults for the others."""
        return cls(
            delay_s=site.parameter("batch_sched_delay", 3),
            main_s=site.parameter("sched_interval", 60),
            backfill_s=site.parameter("bf_interval", 30),
            calc_s=duration_s(site.config.get("PriorityCalcPeriod", "00:05:00")) or 300.0,
            at_once=site.config.get("Epilog", "(null)") not in ("", "(null)")
            and "defer" not in site.parameters,
        )


@dataclass(slots=True)
class Clock:
    """Which passes of slurmctld are due, for each virtual cluster.

    Attributes:
        looped: time when the loop made its last main pass; before the first one, when it was first
            asked.
        calculated: time when priorities were computed last.
    """

    rhythm: Rhythm
    looped: float = NEVER
    calculated: float = NEVER
    _full: float = NEVER  # of its passes every `main_s`, the first
    _backfilled: dict[str, float] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)  # of these a job ended, and no pass was since
    _came: set[str] = field(default_factory=set)
    _changed: set[str] = field(default_factory=set)  # since their last backfill
    _known: set[str] = field(default_factory=set)  # looked at before
    _seen: float | None = None  # when Slurm backfilled last

    def see(self, now: float, backfilled: float) -> None:
        """Continue from the time `backfilled`, in whole seconds, at which Slurm ran backfill last.
        Slurm does not show the times of its main passes, so the next ones are assumed half way to
        the latest time possible."""
        since = backfilled + 0.5
        self._seen = since + max(0.0, (now - since) // self.rhythm.backfill_s) * (
            self.rhythm.backfill_s
        )
        self._full = now - self.rhythm.main_s / 2
        self.looped = now - self.rhythm.delay_s / 2

    def tries(self, vc: str) -> bool:
        """Return whether this pass lies between two passes of Slurm, so that it only gives reasons,
        and starts no job. It is recorded as made."""
        if self._seen is None or vc in self._known:
            return False
        self._known.add(vc)
        self._came.add(vc)
        self._changed.add(vc)
        self._backfilled[vc] = self._seen
        return True

    def came(self, vc: str) -> None:
        """Record that a job of a virtual cluster is to be considered in the next pass."""
        self._came.add(vc)

    def ended(self) -> None:
        """Record that a job ended and freed its nodes."""
        (self._ended if self.rhythm.at_once else self._came).update(self._known)

    def changed(self) -> None:
        """Record that nodes became free although no job ended on them."""
        self._came |= self._known
        self._changed |= self._known

    def main_due(self, vc: str, now: float) -> bool:
        """Return whether the main pass is due now. If so, record it as made."""
        self._changed.add(vc)
        if vc not in self._known:
            self._known.add(vc)
            self._full = now if self._full == NEVER else self._full
            self.looped = now
        elif vc in self._came and now >= self._loop_at(now):
            self.looped = now
        elif vc not in self._ended and self.looped != now:
            return False
        self._ended.discard(vc)
        self._came.discard(vc)
        return True

    def _loop_at(self, now: float) -> float:
        """Return the time when the loop makes its next main pass. It lies in the past if a pass was
        due that is not recorded as made."""
        every = self.rhythm.main_s
        last = self._full + (now - self._full) // every * every
        if self.looped < last:
            return last
        return min(max(self.looped, last) + self.rhythm.delay_s, last + every)

    def backfill_due(self, vc: str, now: float) -> bool:
        """Return whether backfill is due now. If so, record it as run."""
        due = now >= self._backfilled.get(vc, NEVER) + self.rhythm.backfill_s
        if due:
            self._backfilled[vc] = now
            self._changed.discard(vc)
        return due

    def next(self, now: float, *, backfills: bool) -> float | None:
        """Return the time of the next pass after `now`, seconds since the epoch. Return None if
        none is due.
        """
        times = []
        if self._came:
            times.append(self._loop_at(now))
        if backfills:
            times += [
                self._backfilled.get(vc, now) + self.rhythm.backfill_s for vc in self._changed
            ]
        return min((at for at in times if at > now), default=None)

    def calculation(self, now: float) -> float | None:
        """Return the last time, up to `now`, at which priorities were due to be computed again, and
        record it. Return None where they were not due."""
        if self.calculated == NEVER:
            self.calculated = now
            return now
        turns = (now - self.calculated) // self.rhythm.calc_s
        if turns < 1:
            return None
        self.calculated += turns * self.rhythm.calc_s
        return self.calculated
