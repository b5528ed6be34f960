"""Measures how long an answer takes with 10,000 jobs in line: the answer to what is in a job's way,
and to what would help.
"""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.calibration import level
from features.job import Job
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core
from scheduler.core.estimates import TableEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Predictors
from scheduler.core.profiling import WaitingStage
from scheduler.explain import findings
from scheduler.explain.whatif.counterfactuals import WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.pellucid.policy import Pellucid

ANSWERS = 60
QUEUED = 10_000
NODES = 256
SIZES = (1, 1, 1, 1, 2, 4, 8, 8, 16, 32)


def deep_line() -> tuple[Core, Memory]:
    """Return a core with 10,000 jobs that wait for GPUs, all of which are in use, and its memory
    (its record of durations).
    """
    rng, submitted = random.Random(0), 0
    pairs = TablePairPredictor(_Everyone(), lambda a, b: (0.9, 0.85))
    seconds = {f"j{i}": rng.lognormvariate(6.0, 2.0) for i in range(QUEUED * 3)}
    cluster = Cluster(ClusterSpec({"vc": NODES + 2}), {"vc": 2})
    memory = Memory(TableEstimator("given", seconds))
    policy = Pellucid(predictors=Predictors(pairs))
    core = Core(cluster, policy, memory, profiling=WaitingStage())
    while sum(len(queue) for queue in core.queues.values()) < QUEUED:
        size, user = rng.choice(SIZES), f"u{submitted % 50}"
        core.submitted(Job(f"j{submitted}", 0.0, size, user, "vc"), 0.0)
        submitted += 1
        if submitted % 500 == 0:
            core.decide(0.0)
    core.decide(0.0)
    return core, memory


class _Everyone(dict[str, int]):
    """A mapping of job ids to scores in which every job has score 0."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> int:
        return 0


def measure(answers: int = ANSWERS, seed: int = 0) -> dict[str, Any]:
    """Return percentiles of an answer's processor time in milliseconds, and the share of answers
    that name an obstacle.

    Every answer is about another job and uses nothing cached for an earlier one.
    """
    core, memory = deep_line()
    (queue,) = core.queues.values()
    jobs = random.Random(seed).sample([queued.job.job_id for queued in queue], answers // 2)
    jobs += [queue[place].job.job_id for place in range(answers - len(jobs))]
    why: list[float] = []
    helps: list[float] = []
    named = 0
    for job_id in jobs:
        futures = Futures(core, memory, 0.0)
        began = time.process_time()
        found = findings.analysis(futures, job_id, "u1")
        why.append(1000 * (time.process_time() - began))
        named += bool(found.holders)
        began = time.process_time()
        WhatIf(futures, budget_s=0.0).suggestions(job_id)
        helps.append(1000 * (time.process_time() - began))
    return {
        "waiting": len(queue),
        "named": named / len(jobs),
        "why_p50_ms": round(level(why, 0.5), 1),
        "why_p99_ms": round(level(why, 0.99), 1),
        "helps_p99_ms": round(level(helps, 0.99), 1),
    }
