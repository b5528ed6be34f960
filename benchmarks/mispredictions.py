"""What one misprediction costs the others of its virtual cluster.

    python -m benchmarks.mispredictions --json [--seeds 220 221 222] [--each 8]

A job that runs for half a day or more on four GPUs or more is drawn, and the month of Venus is
played twice: predicted truly, and predicted to end within a minute. Everything else is as ever, and
no running job is stopped in either. Prints by how much longer the other jobs of its virtual cluster
took: those that were submitted between its submission and its end, all of the month, and the one of
these that took longest.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from statistics import fmean, median
from typing import Any

from features.job import Job
from pipeline.worlds import Scenario, open_scenario
from scheduler.core.estimates import Estimate, Estimator
from scheduler.simulation.loop import JobResult

LONG_S, WIDE = 12 * 3600.0, 4  # jobs that are drawn take so long, and so many GPUs
SHORT_S = 60.0  # what they are predicted at
HOUR_S = 3600.0


class Planted(Estimator):
    """An estimator that says something else of one job."""

    def __init__(self, inner: Estimator, job_id: str, seconds: float):
        self._inner, self._job_id, self._seconds = inner, job_id, seconds
        self.name = inner.name

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("name", "enqueued", "estimate"):
            return super().__getattribute__(name)
        return getattr(self._inner, name)

    def enqueued(self, job: Job, now: float) -> Estimate:
        told = self._inner.enqueued(job, now)
        return Estimate(self._seconds) if job.job_id == self._job_id else told

    def estimate(self, job: Job, now: float) -> Estimate:
        told = self._inner.estimate(job, now)
        return Estimate(self._seconds) if job.job_id == self._job_id else told


def measure(scenario: Scenario, job_id: str) -> dict[str, Any]:
    """What it costs to predict one job at `SHORT_S`."""
    took_s = scenario.workload.work[job_id].duration_s
    true, wrong = (_played(scenario, job_id, s) for s in (took_s, SHORT_S))
    mine = true[job_id]
    until = max(true[job_id].end_time or 0.0, wrong[job_id].end_time or 0.0)
    later = {
        other: wrong[other].jct_s - result.jct_s
        for other, result in true.items()
        if other != job_id and result.job.vc == mine.job.vc
    }
    since = mine.job.submit_time
    beside = [later[other] for other in later if since <= true[other].job.submit_time <= until]
    return {
        "job": job_id,
        "gpus": mine.job.gpus,
        "ran_h": round(took_s / HOUR_S, 1),
        "waited_h": {
            "true": round(mine.queue_s / HOUR_S, 2),
            "mispredicted": round(wrong[job_id].queue_s / HOUR_S, 2),
        },
        "beside": len(beside),
        "mean_h": round(fmean(beside) / HOUR_S, 3) if beside else 0.0,
        "month_mean_h": round(fmean(later.values()) / HOUR_S, 3) if later else 0.0,
        "worst_h": round(max(later.values(), default=0.0) / HOUR_S, 2),
    }


def _played(scenario: Scenario, job_id: str, seconds: float) -> dict[str, JobResult]:
    policy = scenario.policy("pellucid")
    estimator = Planted(scenario.estimators(policy), job_id, seconds)
    outcome, _ = scenario.play(scenario.core(policy, estimator))
    return {result.job.job_id: result for result in outcome.jobs}


def drawn(scenario: Scenario, seed: int, count: int) -> list[str]:
    """Jobs that are long and wide, by lot."""
    work = scenario.workload.work
    found = [
        job.job_id
        for job in scenario.workload.jobs
        if work[job.job_id].duration_s >= LONG_S and job.gpus >= WIDE
    ]
    return random.Random(seed).sample(found, min(count, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--track", default="honest")
    parser.add_argument("--compress", type=float, default=1.0, help="of the months submissions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[220, 221, 222])
    parser.add_argument("--each", type=int, default=8, help="jobs per seed")
    parser.add_argument("--json", action="store_true", help="accepted: it always prints JSON")
    asked = parser.parse_args()
    found = []
    for seed in asked.seeds:
        scenario = open_scenario(
            asked.data / "venus", track=asked.track, seed=seed, compress=asked.compress
        )
        for job_id in drawn(scenario, seed, asked.each):
            found.append({"seed": seed, **measure(scenario, job_id)})
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    means = [one["mean_h"] for one in found]
    json.dump(
        {
            "mispredicted_at_s": SHORT_S,
            "jobs": found,
            "mean_h": {"median": median(means), "mean": round(fmean(means), 3), "most": max(means)},
            "worst_h": {
                "median": median(one["worst_h"] for one in found),
                "most": max(one["worst_h"] for one in found),
            },
        },
        sys.stdout,
        indent=1,
    )
    print()


if __name__ == "__main__":
    main()
