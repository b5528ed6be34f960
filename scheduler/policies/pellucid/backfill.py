"""Backfill: jobs that are likely to be gone before reserved GPUs could be used anyway.

A reservation waits for the longest of the runs on its GPUs; until then those of its GPUs that are
free stand idle. A job may use them if it ends, with chance `level`, before the time for which the
last of those runs is, with chance `level`, still there (EASY backfilling, Lifka 1995, with
quantiles of the predictive distributions in the place of requested times).

What it may cost the job that waits is bounded. A guest is charged its GPUs times its time limit,
without one that quantile; charges grow when a guest outstays them. Nobody is let in whose
charge would bring the sum over all guests of one reservation above `most_gpu_s`. So a job is
overtaken on the GPUs it waits for by `most_gpu_s` GPU-seconds at most, if nobody outstays its
charge (never, with enforced time limits), and by what those already in outstay it at most. Once
the runs that were there first are gone nobody is let in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from scheduler.core.cluster import Run
from scheduler.core.core import QueuedJob
from scheduler.core.decisions import Evidence
from scheduler.core.durations import Outlook


@dataclass(frozen=True, slots=True)
class Terms:
    """Why a guest is let in: it is likely to end before the window does, and its charge is left."""

    reserved_for: str
    ends_within_s: float
    window_s: float
    charge_gpu_s: float

    @property
    def evidence(self) -> Evidence:
        return tuple(asdict(self).items())


@dataclass(slots=True)
class _Guests:
    """Guests of one reservation. Amounts in GPU-seconds."""

    used: float = 0.0  # by those that are gone
    inside: dict[str, tuple[int, float, float]] = field(default_factory=dict)  # GPUs, since, charge

    def charged(self, now: float) -> float:
        return self.used + sum(
            max(charge, gpus * (now - since)) for gpus, since, charge in self.inside.values()
        )


class Backfill:
    """Who may run on reserved GPUs for a while.

    Args:
        level: how sure, in [0.5, 1).
        most_gpu_s: GPU-seconds of guests per reservation; 0: nobody is let in.
    """

    def __init__(self, outlook: Outlook, level: float, most_gpu_s: float):
        if not 0.5 <= level < 1:
            raise ValueError(f"backfill_quantile is {level:g}; it must be in [0.5, 1)")
        if not most_gpu_s >= 0:
            raise ValueError(f"overtake_gpu_s is {most_gpu_s:g}; it must be 0 or more")
        self.level = level
        self.most_gpu_s = most_gpu_s
        self._outlook = outlook
        self._guests: dict[str, _Guests] = {}  # by the job the GPUs are kept for

    def window_s(self, holder: str, runs: Iterable[tuple[Run, float]], now: float) -> float:
        """Seconds for which reserved GPUs are surely of no use to their job.

        Args:
            runs: those on the reserved GPUs, with their predicted durations; guests count for
                nothing.
        """
        guests = self._guests.get(holder)
        inside = guests.inside if guests is not None else {}
        left = (
            self._outlook.surely_left_s(predicted_s, now - run.start_time, self.level)
            for run, predicted_s in runs
            if run.job.job_id not in inside
        )
        return max(left, default=0.0)

    def admits(self, queued: QueuedJob, holder: str, window_s: float, now: float) -> Terms | None:
        """The terms on which a job may be a guest; None when it may not."""
        job = queued.job
        assert queued.estimate_s is not None
        within_s = self._outlook.quantile_s(queued.estimate_s, self.level)
        most_s = within_s if job.time_limit_s is None else job.time_limit_s
        within_s = min(within_s, most_s)
        guests = self._guests.get(holder) or _Guests()
        charge = job.gpus * most_s
        if within_s > window_s or guests.charged(now) + charge > self.most_gpu_s:
            return None
        return Terms(holder, within_s, window_s, charge)

    def began(self, queued: QueuedJob, terms: Terms, now: float) -> None:
        """A job was let in."""
        guests = self._guests.setdefault(terms.reserved_for, _Guests())
        guests.inside[queued.job.job_id] = queued.job.gpus, now, terms.charge_gpu_s

    def over(self, job_id: str, now: float) -> None:
        """A job, guest or holder or neither, is over."""
        self._guests.pop(job_id, None)
        for guests in self._guests.values():
            guest = guests.inside.pop(job_id, None)
            if guest is not None:
                guests.used += guest[0] * (now - guest[1])
