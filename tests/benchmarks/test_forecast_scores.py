"""Scores of forecasts."""

from __future__ import annotations

import random

import pytest

from benchmarks.forecast_scores import (
    Scored,
    calibration,
    pinball,
    scored,
)
from scheduler.explain.whatif.forecasts import StartForecast


def test_coverage_is_counted_over_all_over_those_that_waited_and_by_promise() -> None:
    made = [
        Scored(0.0, 0.0, 0.0),
        Scored(100.0, 200.0, 150.0),
        Scored(100.0, 200.0, 300.0),
        Scored(5000.0, None, 9000.0),
    ]
    told = calibration(made)
    assert told["all"]["jobs"] == 4
    assert told["all"]["p90"] == pytest.approx(2 / 3)
    assert told["waited"]["p90"] == 0.5
    assert told["waited"]["p90_unavailable"] == 1
    assert told["waited"]["p50"] == 0.0
    assert told["open"]["jobs"] == 3
    assert [g["jobs"] for g in told["by_promised_wait"]] == [2, 0, 0, 0, 0, 0]
    assert told["waited"]["pinball_p90_s"] == pytest.approx((50 * 0.1 + 100 * 0.9) / 2)


def test_pinball_loss_is_least_at_the_quantile() -> None:
    rng = random.Random(0)
    true = [rng.expovariate(1.0) for _ in range(4000)]
    losses = {p: sum(pinball(p, t, 0.9) for t in true) for p in (1.5, 2.3026, 3.2)}
    assert min(losses, key=lambda p: losses[p]) == 2.3026


def test_forecasts_that_are_unavailable_are_not_scored() -> None:
    assert scored([(StartForecast(0.0, why_not="no time"), 5.0)]) == []
    assert scored([(StartForecast(10.0, 20.0, 30.0), 25.0)]) == [Scored(10.0, 20.0, 15.0)]
