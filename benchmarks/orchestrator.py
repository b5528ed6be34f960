"""Speed of the policy `pellucid`: one decision pass over a deep queue, and a month of Venus.

    python -m benchmarks.orchestrator --json [--data ../shared/data]

The pass: 10,000 jobs wait for 2,048 GPUs that are all in use; jobs end one after the other and
others arrive, and every pass over the queue is timed in CPU seconds with its decisions turned into
the table that a recorder writes. The month: track `honest` with own predictions, which includes
refitting the duration model. Prints the figures, and whether the budget in
`orchestrator_budget.json` holds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import Calibration
from features.job import Job, Profile
from features.schema import State
from pipeline.runs import run
from pipeline.worlds import open_scenario
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import Estimator, TableEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Predictors
from scheduler.core.profiling import WaitingStage
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.simulation.recorder import decision_table

BUDGET = Path(__file__).with_name("orchestrator_budget.json")
QUEUED = 10_000
NODES = 256
SIZES = (1, 1, 1, 1, 2, 4, 8, 8, 16, 32)


@dataclass
class DeepLine:
    """A core with many in line, which goes on second by second."""

    core: Core
    now: float
    rng: random.Random
    submitted: int = 0

    def submit(self) -> None:
        size = self.rng.choice(SIZES)
        name, user = f"j{self.submitted}", f"u{self.submitted % 50}"
        self.core.submitted(Job(name, self.now, size, user, "vc"), self.now)
        self.submitted += 1

    def step(self) -> None:
        """A job ends, another is seen at work, one more comes; nothing is decided yet."""
        self.now += 1.0
        core, rng, now = self.core, self.rng, self.now
        gone = rng.choice(list(core.cluster.runs.values()))
        if gone.profiling:
            core.profile_ended(gone.job.job_id, _profile(rng), now)
        else:
            core.ended(gone.job.job_id, State.COMPLETED, now - gone.start_time, now)
        watched = rng.choice(list(core.cluster.runs.values()))
        if not watched.profiling and watched.partner is None:
            core.observed(watched.job.job_id, _profile(rng), now)
        self.submit()


def deep_line(beside: Callable[[Estimator], Estimator] = lambda given: given) -> DeepLine:
    """10,000 waiting for GPUs that are all in use.

    Args:
        beside: puts something around the estimator.
    """
    rng = random.Random(0)
    pairs = TablePairPredictor(_Everyone(), lambda a, b: (0.9, 0.85))
    policy = Pellucid(predictors=Predictors(pairs))
    seconds = {f"j{i}": rng.lognormvariate(6.0, 2.0) for i in range(QUEUED * 3)}
    cluster = Cluster(ClusterSpec({"vc": NODES + 2}), {"vc": 2})
    estimator = beside(TableEstimator("given", seconds))
    line = DeepLine(Core(cluster, policy, estimator, profiling=WaitingStage()), 0.0, rng)
    while sum(len(queue) for queue in line.core.queues.values()) < QUEUED:
        line.submit()
        if line.submitted % 500 == 0:
            line.core.decide(line.now)
    line.core.decide(line.now)
    return line


def decision_passes(passes: int = 400) -> dict[str, float]:
    """Percentiles of a decision pass, milliseconds of CPU time, recording included."""
    line, times = deep_line(), []
    for _ in range(passes):
        line.step()
        begun = time.process_time()
        decision_table(line.core.decide(line.now))
        times.append(1000 * (time.process_time() - begun))
    p50, p99 = np.percentile(times, (50, 99))
    return {"pass_p50_ms": round(float(p50), 2), "pass_p99_ms": round(float(p99), 2)}


class _Everyone(dict[str, int]):
    """Every job scores 0."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> int:
        return 0


def _profile(rng: random.Random) -> Profile:
    return Profile(rng.uniform(5, 95), rng.uniform(5, 60), rng.uniform(1000, 14_000), False)


def measure(data: Path, *, month: bool = True) -> dict[str, Any]:
    """Every figure, and whether it is within budget."""
    calibration = Calibration()
    figures: dict[str, Any] = dict(decision_passes())
    if month:
        done = run(open_scenario(data / "venus", track="honest", seed=100), "pellucid")
        figures |= {"month_cpu_s": done["cpu_s"], "month_avg_jct_s": done["avg_jct_s"]}
        done = run(
            open_scenario(data / "venus", track="honest", seed=100, durations="gpus"), "pellucid"
        )
        figures |= {"month_without_fits_cpu_s": done["cpu_s"]}
    verdict = calibration.judge(figures, BUDGET)
    return {**figures, "budget": verdict, "holds": verdict["holds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--no-month", action="store_true", help="time the decision pass only")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    figures = measure(arguments.data, month=not arguments.no_month)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print(", ".join(f"{name} {value}" for name, value in figures.items() if name != "budget"))
    sys.exit(0 if figures["holds"] else 1)


if __name__ == "__main__":
    main()
