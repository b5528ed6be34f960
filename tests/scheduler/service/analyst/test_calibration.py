"""Scores of forecasts, and the correction learned from them."""

from __future__ import annotations

import random

import pytest

from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.service.analyst.calibration import (
    Correction,
    Scored,
    Tracker,
    calibration,
    pinball,
    scored,
)


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


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_tracker_keeps_the_share_it_promises_though_its_promises_are_biased(
    level: float,
) -> None:
    rng = random.Random(1)
    tracker, kept = Tracker(level, 0.02), []
    for _ in range(4000):
        true = rng.lognormvariate(0.0, 1.0)
        kept.append(true <= 1.3 * tracker.stretch)
        tracker.learn(kept[-1])
    assert sum(kept[500:]) / 3500 == pytest.approx(level, abs=0.02)


def test_a_promise_is_broken_when_its_time_has_passed_and_only_once() -> None:
    correction = Correction(step=0.1)
    correction.promised("a", StartForecast(0.0, 10.0, 20.0))
    correction.passed(15.0)
    assert correction.trackers["p50", "near"].learned == 1
    assert correction.learned == 0
    correction.started("a", 18.0)
    assert (correction.trackers["p50", "near"].learned, correction.learned) == (1, 1)
    correction.passed(100.0)
    assert (correction.trackers["p50", "near"].learned, correction.learned) == (1, 1)
    assert correction.stretches["p50 near"] > 1 > correction.stretches["p90 near"]
    assert correction.stretches["p50 far"] == correction.stretches["p90 far"] == 1


def test_a_correction_stretches_the_wait_moves_the_end_and_leaves_certainty_alone() -> None:
    correction = Correction(step=1.0)
    for name in ("a", "b"):
        correction.promised(name, StartForecast(0.0, 10.0, 20.0))
        correction.passed(30.0)
    stretch = correction.stretches["p90 near"]
    assert stretch > 2
    made = correction.corrected(StartForecast(100.0, 110.0, 120.0, 160.0, 200.0))
    assert made.start_p90 == pytest.approx(100.0 + 20.0 * stretch)
    assert made.start_p50 is not None
    assert made.start_p90 is not None
    assert made.start_p50 <= made.start_p90
    assert made.end_p90 == pytest.approx(200.0 + made.start_p90 - 120.0)
    sure = StartForecast(100.0, 110.0, 110.0)
    assert correction.corrected(sure) == sure


def test_the_jobs_one_user_sends_together_teach_as_much_as_one() -> None:
    alone, many = Correction(), Correction()
    alone.promised("a", StartForecast(0.0, 10.0, 20.0), "ada")
    for i in range(100):
        many.promised(f"a{i}", StartForecast(float(i), 10.0 + i, 20.0 + i), "ada")
    for correction in (alone, many):
        correction.passed(200.0)
    assert many.learned == 100
    assert many.stretches == pytest.approx(alone.stretches)
    for i, (user, hour) in enumerate((("ada", 1), ("bob", 1), ("ada", 2))):
        many.promised(
            str(i), StartForecast(hour * 3600.0, hour * 3600.0 + 10, hour * 3600.0 + 20), user
        )
    many.passed(9000.0)
    before, after = alone.trackers["p90", "near"], many.trackers["p90", "near"]
    assert after.log == pytest.approx(4 * before.log)


def test_of_jobs_sent_one_after_the_outcome_of_another_the_nth_teaches_an_nth() -> None:
    alone, many = Correction(), Correction()
    for correction, jobs in ((alone, 1), (many, 4)):
        for i in range(jobs):
            at = 100.0 * i
            correction.promised(str(i), StartForecast(at, at + 10.0, at + 20.0), "ada")
            correction.passed(at + 50.0)
    one, four = alone.trackers["p90", "near"], many.trackers["p90", "near"]
    assert four.log == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) * one.log)


def test_a_job_that_left_teaches_nothing() -> None:
    correction = Correction()
    correction.promised("a", StartForecast(0.0, 10.0, 20.0))
    correction.forget("a")
    correction.passed(100.0)
    assert correction.learned == 0
