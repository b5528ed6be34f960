"""Histories (how long the jobs of a group lasted) of a trace's largest groups, for a chart of what
was learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from features.job import Job
from features.lifetimes import lifetimes
from features.names import normalise
from features.replay import Lifetime, replay
from features.state import FeatureState
from features.survival import LEVELS, History

MOST = 4  # groups of a level that are kept


def learned_histories(trace: pa.Table, until: float, most: int = MOST) -> list[History]:
    """Return the histories learned from a trace up to the time `until`, seconds since the epoch, as
    a service would know them then. A job that still runs counts with the time that it has run.

    Of each level of `survival.LEVELS` (all jobs, VC and GPUs, user, template), the `most` groups
    with most jobs are returned.
    """
    lives, _ = lifetimes(trace)
    known = [life.until(until) for life in lives if life.job.submit_time < until]
    state = FeatureState({"survival"})
    for _ in replay(known, state, moments=()):
        pass
    found = {
        (level, history.of): history
        for level, job in _frequent(known, most)
        for history in state.histories(job, until)
        if history.level == level
    }
    return list(found.values())


def _frequent(lives: Sequence[Lifetime], most: int) -> list[tuple[str, Job]]:
    """Return (level, latest job of the group) for the `most` groups of each level with most
    jobs."""
    counts: dict[str, Counter[object]] = {level: Counter() for level in LEVELS}
    latest: dict[tuple[str, object], Job] = {}
    for life in lives:
        job = life.job
        kind = normalise(job.name) if job.name else (job.gpus, job.cpus)
        keys = ("", (job.vc, job.gpus), job.user, (job.user or job.vc, kind))
        for level, key in zip(LEVELS, keys, strict=True):
            counts[level][key] += 1
            latest[level, key] = job
    return [
        (level, latest[level, key])
        for level, count in counts.items()
        for key, _ in count.most_common(most)
    ]
