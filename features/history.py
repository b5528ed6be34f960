"""What the features remember of past jobs, per key: a user, a (user, GPUs), a template (jobs that
are submitted again and again) or a virtual cluster.

Only *ended* jobs count in the statistics of durations; running jobs count as lower bounds. Every
update and every read is O(1) in the number of jobs seen. The memory of a key is bounded, except for
one entry per running job.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from math import expm1, log1p, nan

from features.spec import FeatureSpec
from features.states import State
from features.survival import Hazard

# Recency beats length here: submitters change what they do from week to week. A window of the
# last jobs also gives exact quantiles, which a sketch would only approximate.
WINDOW = 32
# Weight of the newest job in the exponentially weighted means.
EWMA_STEP = 0.3
# A job found running has on average half its time ahead of it (inspection at a random moment).
RESIDUAL = 2.0
# In the outlook neither what ended nor what runs counts for more than about the memory of the
# means, 1 / EWMA_STEP jobs.
OUTLOOK_CAP = 3
HOUR_S = 3600.0

FAILED = frozenset({State.FAILED, State.OUT_OF_MEMORY, State.NODE_FAIL})

# (suffix, unit, text); the order of `KeyHistory.past` and of the `since` values after it.
PAST = (
    ("ended", "jobs", "how many jobs of {who} have ended"),
    ("last_s", "s", "how long the last ended job of {who} ran"),
    ("ewma_s", "s", "recent mean duration of {who}"),
    ("ewma_log_s", "s", "recent typical (geometric mean) duration of {who}"),
    ("p25_s", "s", f"a quarter of the last {WINDOW} jobs of {{who}} were shorter"),
    ("p50_s", "s", f"half of the last {WINDOW} jobs of {{who}} were shorter"),
    ("p90_s", "s", f"nine tenths of the last {WINDOW} jobs of {{who}} were shorter"),
    ("over_1h_ratio", "", f"share of the last {WINDOW} jobs of {{who}} that ran over an hour"),
    ("over_6h_ratio", "", f"share of the last {WINDOW} jobs of {{who}} that ran over six hours"),
    ("failed_ratio", "", f"share of the last {WINDOW} jobs of {{who}} that failed"),
    ("cancelled_ratio", "", f"share of the last {WINDOW} jobs of {{who}} that were cancelled"),
)
SINCE = (
    ("since_submit_s", "s", "time between the previous submission of {who} and this one"),
    ("since_end_s", "s", "time since a job of {who} last ended"),
)
RUNNING = (
    ("running", "jobs", "how many other jobs of {who} run now"),
    ("queued", "jobs", "how many other jobs of {who} wait now"),
    ("longest_running_s", "s", "how long the oldest running job of {who} has run so far"),
    ("mean_running_s", "s", "how long the running jobs of {who} have run so far, on average"),
    ("outlook_s", "s", "recent typical duration of {who}, raised by how long others run already"),
)


def specs(
    prefix: str, who: str, family: str, stats: tuple[tuple[str, str, str], ...]
) -> list[FeatureSpec]:
    """Return one FeatureSpec per entry of `stats`, in that order.

    Args:
        prefix: start of the features' names, such as "user".
        who: the key in words, filled into each text.
        stats: (end of the name, unit, text with `{who}`) of each feature.
    """
    return [
        FeatureSpec(
            name=f"{prefix}_{suffix}",
            kind="continuous",
            family=family,
            unit=unit,
            text=text.format(who=who),
        )
        for suffix, unit, text in stats
    ]


class Running:
    """Start times of the running jobs of one key. The earliest and the mean are found in O(1)."""

    __slots__ = ("_base", "_starts", "_sum")

    def __init__(self) -> None:
        # Starts arrive in time order, so the first entry is the earliest. An OrderedDict
        # unlinks in O(1); iterating a plain dict from its start would skip old holes again
        # and again.
        self._starts: OrderedDict[str, float] = OrderedDict()
        # The sum is kept relative to a nearby time: sums of epoch seconds lose precision.
        self._base = 0.0
        self._sum = 0.0

    def add(self, job_id: str, now: float) -> None:
        if not self._starts:
            self._base, self._sum = now, 0.0
        self._starts[job_id] = now
        self._sum += now - self._base

    def remove(self, job_id: str) -> None:
        self._sum -= self._starts.pop(job_id) - self._base

    def values(self, job_id: str, now: float) -> tuple[int, float, float]:
        """Return (number of running jobs of this key other than `job_id`, their longest elapsed
        seconds, their mean elapsed seconds). The latter two are NaN if there are no such jobs."""
        starts = self._starts
        if not starts:
            return 0, nan, nan
        own = starts.get(job_id)
        count, total = len(starts), self._sum
        if own is not None:
            count, total = count - 1, total - (own - self._base)
            if not count:
                return 0, nan, nan
        earliest = next(start for key, start in starts.items() if key != job_id)  # <= 2 steps
        return count, now - earliest, now - self._base - total / count


class KeyHistory:
    """The history of the jobs of one key (a user, a virtual cluster, ...). Its events must come in
    time order."""

    __slots__ = (
        "_cancelled",
        "_ended",
        "_ewma",
        "_ewma_log",
        "_failed",
        "_last",
        "_past",
        "_ring",
        "_sorted",
        "hazard",
        "last_end",
        "last_submit",
        "queued",
        "running",
    )

    def __init__(self) -> None:
        self._ended = 0
        self._last = self._ewma = self._ewma_log = nan
        self._failed = self._cancelled = 0
        # Ring of (duration, failed, cancelled) of the last WINDOW ended jobs, the oldest
        # overwritten first, and the same durations in ascending order.
        self._ring: list[tuple[float, bool, bool]] = []
        self._sorted: list[float] = []
        self._past: tuple[float, ...] | None = None
        self.last_submit = nan
        self.last_end = nan
        self.queued = 0
        self.running = Running()
        self.hazard: Hazard | None = None  # kept where the family `survival` is

    def learn(self, now: float, state: State, duration_s: float) -> None:
        """Add to the history a job of this key that ended at `now` after running `duration_s`
        seconds."""
        entry = (duration_s, state in FAILED, state is State.CANCELLED)
        if self._ended < WINDOW:
            self._ring.append(entry)
        else:
            slot = self._ended % WINDOW
            old, failed, cancelled = self._ring[slot]
            self._ring[slot] = entry
            del self._sorted[bisect_left(self._sorted, old)]
            self._failed -= failed
            self._cancelled -= cancelled
        insort(self._sorted, duration_s)
        self._failed += entry[1]
        self._cancelled += entry[2]
        logged = log1p(duration_s)
        if self._ended:
            self._ewma += EWMA_STEP * (duration_s - self._ewma)
            self._ewma_log += EWMA_STEP * (logged - self._ewma_log)
        else:
            self._ewma, self._ewma_log = duration_s, logged
        self._ended += 1
        self._last = duration_s
        self.last_end = now
        self._past = None

    def present(self, job_id: str, now: float, own_queued: bool) -> tuple[float, ...]:
        """Return the values of the features `RUNNING` of this key (running and queued jobs), not
        counting the job `job_id`. `own_queued` says whether that job waits in this key's queue."""
        count, longest, mean = self.running.values(job_id, now)
        queued = float(self.queued - own_queued)
        return float(count), queued, longest, mean, self._outlook(count, mean)

    def _outlook(self, count: int, mean_elapsed: float) -> float:
        """Return a typical duration in seconds, in which running jobs count as lower bounds.
        Without running jobs, return that of ended jobs (NaN if none has ended).

        If running jobs have run long, the mean of ln(1 + seconds) of ended jobs is moved towards
        ln(1 + RESIDUAL x mean elapsed seconds), in proportion to the share of running jobs.
        Otherwise long jobs, which have not ended yet, would be missing from the statistics.
        """
        if not count:
            return expm1(self._ewma_log)
        bound = log1p(RESIDUAL * mean_elapsed)
        if not self._ended:
            return expm1(bound)
        running, ended = min(count, OUTLOOK_CAP), min(self._ended, OUTLOOK_CAP)
        share = running / (running + ended)
        return expm1(self._ewma_log + share * max(0.0, bound - self._ewma_log))

    @property
    def ended(self) -> int:
        """Return the number of jobs of this key that have ended after a known duration."""
        return self._ended

    def latest(self, most: int) -> list[float]:
        """Return the durations, in seconds, of the `most` jobs that ended last, the oldest first;
        `WINDOW` of them at most."""
        ring, newest = self._ring, (self._ended - 1) % WINDOW
        count = min(most, len(ring))
        return [ring[(newest - i) % WINDOW][0] for i in reversed(range(count))]

    @property
    def past(self) -> tuple[float, ...]:
        """Return the values of the features `PAST` (statistics of ended jobs); where no job has
        ended, 0 ended jobs and NaN. They change only when a job ends."""
        if self._past is None:
            self._past = self._compute_past()
        return self._past

    def _compute_past(self) -> tuple[float, ...]:
        n = len(self._sorted)
        if not n:
            return (0.0,) + (nan,) * (len(PAST) - 1)
        return (
            float(self._ended),
            self._last,
            self._ewma,
            expm1(self._ewma_log),
            _quantile(self._sorted, 0.25),
            _quantile(self._sorted, 0.50),
            _quantile(self._sorted, 0.90),
            (n - bisect_right(self._sorted, HOUR_S)) / n,
            (n - bisect_right(self._sorted, 6 * HOUR_S)) / n,
            self._failed / n,
            self._cancelled / n,
        )


def _quantile(ascending: list[float], q: float) -> float:
    """Return the quantile `q` of a non-empty ascending list, linear between neighbours (numpy's
    default).
    """
    position = q * (len(ascending) - 1)
    low = int(position)
    if low + 1 == len(ascending):
        return ascending[low]
    return ascending[low] + (position - low) * (ascending[low + 1] - ascending[low])
