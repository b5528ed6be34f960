"""How long an answer takes where 10,000 are in line: what is in the way, and what would help."""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.orchestrator import deep_line
from scheduler.explain import findings
from scheduler.explain.whatif.counterfactuals import WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory

ANSWERS = 60


def measure(answers: int = ANSWERS, seed: int = 0) -> dict[str, Any]:
    """Percentiles of processor milliseconds, and the share of answers that name somebody.

    Every answer is about another job and begins with nothing kept from the one before.
    """
    line = deep_line(Memory)
    (queue,) = line.core.queues.values()
    jobs = random.Random(seed).sample([queued.job.job_id for queued in queue], answers // 2)
    jobs += [queue[place].job.job_id for place in range(answers - len(jobs))]
    memory = line.core.estimator
    assert isinstance(memory, Memory)
    why: list[float] = []
    helps: list[float] = []
    named = 0
    for job_id in jobs:
        futures = Futures(line.core, memory, line.now)
        began = time.process_time()
        found = findings.analysis(findings.answer(futures, job_id), "u1", futures)
        why.append(1000 * (time.process_time() - began))
        named += bool(found.holders)
        began = time.process_time()
        WhatIf(futures, budget_s=0.0).suggestions(job_id)
        helps.append(1000 * (time.process_time() - began))
    return {
        "waiting": len(queue),
        "named": named / len(jobs),
        "why_p50_ms": _level(why, 0.5),
        "why_p99_ms": _level(why, 0.99),
        "helps_p99_ms": _level(helps, 0.99),
    }


def _level(values: list[float], level: float) -> float:
    return round(sorted(values)[int(level * (len(values) - 1))], 1)
