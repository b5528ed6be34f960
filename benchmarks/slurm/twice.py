"""Two real runs of one workload: what slurmctld itself does differently the second time."""

from __future__ import annotations

from typing import Any

from scipy.stats import spearmanr

from benchmarks.slurm.recording import Recording


def two_runs(once: Recording, again: Recording, cycle_s: float) -> dict[str, Any]:
    """Starts of one run against those of another of the same seed, from the first submission on.

    Submissions and ends come within a second of where they were: a machine is never as quick twice.
    """
    jobs = [
        pair
        for one, other in zip(once.submitted, again.submitted, strict=True)
        for pair in zip(one.tasks(), other.tasks(), strict=True)
    ]
    pairs = [
        (once.truth[a].start - once.began, again.truth[b].start - again.began)
        for a, b in jobs
        if a in once.truth and b in again.truth
    ]
    near = sum(abs(a - b) <= cycle_s + 0.5 for a, b in pairs)
    return {
        "seed": once.seed,
        "jobs": len(pairs),
        "within_cycle": round(near / max(1, len(pairs)), 3),
        "rank_correlation": round(float(spearmanr(*zip(*pairs, strict=True))[0]), 3),
    }
