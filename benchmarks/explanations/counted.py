"""Recomputes, from recorded data, the mean duration by which a waiting job is ordered in its queue.

A decision records that mean with a receipt: the durations that it was computed from, and their
shares. It is recomputed here from the receipt's shares alone, without the code that computed it.
What a receipt holds is described in `scheduler.core.receipts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import expm1, log1p
from typing import Any

from benchmarks.explanations.log import Moment

# where the stretches of a receipt end, seconds
EDGES_S = (
    15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
    43_200.0, 86_400.0, 172_800.0, 345_600.0,
)  # fmt: skip
ALL_OVER_S = 1_209_600.0  # by then every job has ended
POINTS = 64  # equally likely durations of one curve
EXACT, CLAIMED = 1e-3, 0.1  # how far a figure may be off: nine digits are kept


def counted(moment: Moment, job_id: str) -> str:
    """Recompute the mean duration by which a job is ordered, as recorded last, from the durations
    recorded with it. Return the error in words, or "".

    A job's own claims (stated ranges of its duration) are applied to its own durations, not to the
    blend with those of other jobs; the difference is small.
    """
    for row in reversed(moment.by_job.get(job_id, ())):
        told, receipt = dict(row["body"].get("evidence", ())), row["body"].get("receipt")
        if "counts_s" not in told or not receipt or not receipt[5]:
            continue
        mean = sum(weight * seconds for seconds, weight in own_durations(receipt))
        off = CLAIMED if receipt[7] else EXACT
        if abs(told["counts_s"] - mean) > off * max(1.0, mean):
            return f"{told['counts_s']:.1f} s count, by the durations recorded {mean:.1f}"
        return ""
    return ""


Weighted = list[tuple[float, float]]  # seconds, and their share of all


def own_durations(receipt: Sequence[Any]) -> Weighted:
    """Return a job's own durations by a receipt, in seconds, each with its share. Durations that
    the receipt adds from how other predictions turned out are left out.
    """
    outlived_s, _, most_s, _, _, ended, shift, claims = receipt
    at = [expm1(log1p(edge) + shift) for edge in (0.0, *EDGES_S, ALL_OVER_S)]
    passed = _share_at(at, ended, outlived_s) if outlived_s > 0 else 0.0
    found = Weighted()
    for i in range(POINTS):
        level = passed + (1.0 - passed) * (i + 0.5) / POINTS
        lower, upper = next(
            one for one in pairwise(zip(at, ended, strict=True)) if one[1][1] >= level
        )
        part = (level - lower[1]) / (upper[1] - lower[1])
        first, last = log1p(lower[0]), log1p(upper[0])
        seconds = expm1(first + part * (last - first))
        found.append((max(outlived_s, min(seconds, most_s)), 1.0 / POINTS))
    for low_s, high_s, points, even in claims:
        found = _claimed(found, max(low_s, outlived_s), high_s, points / POINTS, even=even)
    return found


def _share_at(at: Sequence[float], ended: Sequence[float], seconds: float) -> float:
    """Return the share of runs that have ended by `seconds`, read from the curve through the points
    (`at`, `ended`).
    """
    for (since, before), (until, after) in pairwise(zip(at, ended, strict=True)):
        if seconds <= until:
            whole = log1p(until) - log1p(since)
            return before + (after - before) * max(0.0, log1p(seconds) - log1p(since)) / whole
    return 1.0


def _claimed(found: Weighted, low_s: float, high_s: float, share: float, *, even: bool) -> Weighted:
    """Return the durations after the job claimed that the share `share` lies between `low_s` and
    `high_s`. That share keeps its distribution between the two, or is spread evenly in the
    logarithm if `even`.
    """
    within = [one for one in found if low_s <= one[0] <= high_s]
    others = [one for one in found if not low_s <= one[0] <= high_s]
    if even or not within:
        least, most = log1p(low_s), log1p(high_s)
        within = [(expm1(least + (most - least) * (i + 0.5) / POINTS), 1.0) for i in range(POINTS)]
    return _weighing(within, share if others else 1.0) + _weighing(others, 1.0 - share)


def _weighing(found: Weighted, share: float) -> Weighted:
    whole = sum(weight for _, weight in found)
    return [(seconds, weight * share / whole) for seconds, weight in found]
