"""The histories of the jobs that a trace has most of, for a picture of what was learned."""

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
    """Return the histories that a trace has taught at `until`, seconds since the epoch.

    Of each level those with the most jobs, as a service would know them then: jobs that run
    count by the time they have outlived.
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
    """Return (level, latest job) of the `most` groups of each level that have most jobs."""
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
