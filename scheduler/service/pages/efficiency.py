"""How much ended jobs used of what they had asked for: GPUs, GPU memory, and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.service.pages.queries import Used


@dataclass(frozen=True, slots=True)
class Efficiency:
    """What a group of jobs used of their resources. Shares are 0 to 1; None: unknown for all jobs.

    Attributes:
        util: utilisation of their GPUs while measured, weighted by GPU-time.
        measured: share of their GPU-time during which the utilisation was measured.
        mem_mib: largest memory use on a GPU of any job, MiB.
        time: share of the requested time that was used, over jobs with a time limit.
    """

    util: float | None
    measured: float
    mem_mib: float | None
    time: float | None


def efficiency(of: Iterable[Used]) -> Efficiency:
    """Return the figures of several jobs together."""
    used: Sequence[Used] = list(of)
    watched = [one for one in used if one.util_pct is not None]
    gpu_s, watched_s = (sum(one.gpu_s for one in some) for some in (used, watched))
    limited = [(one.ran_s, one.limit_s) for one in used if one.limit_s]
    util = sum((one.util_pct or 0.0) * one.gpu_s for one in watched)
    return Efficiency(
        util=util / watched_s / 100 if watched_s else None,
        measured=watched_s / gpu_s if gpu_s else 0.0,
        mem_mib=max((one.mem_mib for one in used if one.mem_mib is not None), default=None),
        time=sum(ran for ran, _ in limited) / sum(asked for _, asked in limited)
        if limited
        else None,
    )
