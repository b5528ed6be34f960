"""Who may run on reserved GPUs until the job that they are kept for can start."""

from __future__ import annotations

from typing import Any, cast

import pytest

from features.job import Job
from scheduler.core.cluster import Run
from scheduler.core.durations import DurationDistribution
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.backfill import QUANTILE, Backfill
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid


def a_backfill(left_s: float) -> Backfill:
    """One GPU is kept, which a run will hold for `left_s` more."""
    desk = Desk(pellucid(), cluster_of(gpus=2))
    desk.submit(a_job("there", gpus=2))
    runs: list[Run] = list(desk.core.cluster.runs.values())
    turn: Any = None  # asked for nothing before a job starts
    return Backfill(turn, [(0, 1)], runs, lambda run: left_s, DurationDistribution(weight=1))


def queued(estimate_s: float, limit_s: float | None = None) -> QueuedJob:
    found = QueuedJob(Job("j", 0.0, 1, "user", "vc", time_limit_s=limit_s), 0)
    found.estimate_s = estimate_s
    return found


@pytest.mark.parametrize(
    ("estimate_s", "limit_s", "admitted"),
    [
        (500.0, None, True),
        (5000.0, None, False),
        (5000.0, 900.0, True),  # its limit ends it in time, whatever is predicted
        (5000.0, 1100.0, False),
        (500.0, 1100.0, True),
        (5000.0, 0.0, False),  # 0: no limit
    ],
)
def test_who_is_gone_in_time_is_admitted(
    estimate_s: float, limit_s: float | None, admitted: bool
) -> None:
    assert a_backfill(1000.0).admits(queued(estimate_s, limit_s)) is admitted


def test_a_level_of_many_predictions_is_that_of_each() -> None:
    distribution = DurationDistribution()
    for i in range(500):
        distribution.learn(float(i * i), float(i * 7 % 1000))
    at = distribution.quantile_at(QUANTILE)
    for predicted_s in (0.0, 59.0, 60.0, 61.0, 299.9, 1200.0, 5000.0, 43_200.0, 1e6):
        assert at(predicted_s) == distribution.quantile_s(predicted_s, QUANTILE)
    assert cast("float", at(100.0)) > 0
