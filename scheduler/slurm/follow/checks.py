"""Compares what is known here with what Slurm itself does. What Slurm contradicts is not shown."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.explain.words import clock_time
from scheduler.slurm.read.site import slurm_word
from scheduler.slurm.read.snapshot import ClusterSnapshot
from scheduler.slurm.twin.twin import twin_in

SETTLES_S = 2.0  # after a change Slurm's next look may be of before it


def against_slurm(snapshot: ClusterSnapshot, job_ids: Iterable[str]) -> dict[str, str]:
    """Return the jobs that backfill passed over although the policy `slurm` would start them now,
    with that fact in words. Something that is not known here keeps them.
    """
    twin, found = twin_in(snapshot.core.policy), dict[str, str]()
    looked = twin.site.backfilled if twin is not None else None
    if twin is None or looked is None:
        return {}
    for job_id in job_ids:
        job = snapshot.waiting.get(job_id)
        starts = job_id in twin.soon or job_id in snapshot.core.cluster.runs
        if job is None or not starts or slurm_word(job.reason) == "None":
            continue
        if looked > max(snapshot.changed, job.submit, job.eligible or 0.0) + SETTLES_S:
            plan = job.start if job.start is not None and job.start > snapshot.now else None
            when = f" before {clock_time(plan, snapshot.now)}" if plan is not None else ""
            found[job_id] = (
                f"by all that is known here it could start now, and Slurm does not start it{when}: "
                "what keeps it is not known"
            )
    return found
