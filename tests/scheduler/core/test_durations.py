"""Distributions of durations: what they promise is kept when the past is like the future."""

from __future__ import annotations

import random
from math import exp
from statistics import NormalDist

import numpy as np
import pytest

from scheduler.core.durations import DurationDistribution, Stated, at_level


def learned(
    rng: random.Random, jobs: int = 4000
) -> tuple[DurationDistribution, list[tuple[float, float]]]:
    """Predictions that are off by a lognormal factor, and further such jobs."""
    durations = DurationDistribution()

    def job() -> tuple[float, float]:
        predicted = rng.choice([100.0, 900.0, 5000.0])
        return predicted, (1 + predicted) * rng.lognormvariate(0.3, 1.2) - 1

    for _ in range(jobs):
        predicted, true = job()
        durations.learn(predicted, max(0.0, true))
    return durations, [(p, max(0.0, t)) for p, t in (job() for _ in range(3000))]


@pytest.mark.parametrize("elapsed", [0.0, 60.0, 1800.0])
def test_quantiles_are_kept_by_as_many_as_they_promise(elapsed: float) -> None:
    durations, fresh = learned(random.Random(0))
    reached = [(p, t) for p, t in fresh if t > elapsed]
    for level in (0.1, 0.5, 0.9):
        below = sum(t <= at_level(durations.quantiles(p, elapsed), level) for p, t in reached)
        assert below / len(reached) == pytest.approx(level, abs=0.06)


def test_quantiles_rise_begin_at_what_has_passed_and_end_at_the_limit() -> None:
    durations, _ = learned(random.Random(1), jobs=50)
    found = durations.quantiles(600.0, 3000.0, 7200.0)
    assert list(found) == sorted(found)
    assert found[0] >= 3000.0
    assert found[-1] == 7200.0
    assert min(durations.quantiles(100.0, 5000.0, limit_s=600.0)) == 5000.0, "it is past its limit"


def test_before_anything_has_ended_the_belief_is_wide() -> None:
    found = DurationDistribution().quantiles(None)
    assert at_level(found, 0.1) < 200 < 600 < at_level(found, 0.5) * 1.1
    assert at_level(found, 0.9) > 2000


def test_a_clock_that_is_ahead_counts_as_no_time_at_all() -> None:
    durations, _ = learned(random.Random(2), jobs=50)
    assert durations.quantiles(600.0, -5.0) == durations.quantiles(600.0, 0.0)
    durations.learn(600.0, -5.0)


def test_it_is_the_kaplan_meier_estimate() -> None:
    """Written plainly, with NumPy's interpolation: shares that go on, between the middles of steps;
    of a run, of what it has not outlived beside what lasts for as long again."""
    ended, running = [50.0, 200.0, 400.0, 900.0, 2500.0, 8000.0], [100.0, 700.0, 3000.0]
    durations, scale, now = DurationDistribution(weight=0, points=8, tail=2.0), 1001.0, 1e4
    durations.began("slow", 1000.0, now - 2 * running[0], 0.5)
    for ran_s in running[1:]:
        durations.began(f"{ran_s}", 1000.0, now - ran_s)
    for seconds in ended:
        durations.learn(1000.0, seconds, now)

    share, shares, ratios = 1.0, [], [(1 + seconds) / scale for seconds in ended]
    for seconds in ended:
        share *= 1 - 1 / sum(other >= seconds for other in ended + running)
        shares.append(share)
    middles = [1 - (a + b) / 2 for a, b in zip([1.0, *shares], [*shares, 0.0], strict=True)]
    places = (np.arange(256) + 0.5) / 256
    even = np.exp(np.interp(places, middles, np.log([*ratios, ratios[-1]])))
    fresh = np.interp((np.arange(64) + 0.5) / 64, places, even) * scale - 1
    assert durations.quantiles(1000.0) == pytest.approx(fresh.tolist())
    named = dict(durations.described(1000.0))
    for name, level in (("p10_s", 0.1), ("p50_s", 0.5), ("p90_s", 0.9)):
        assert named[name] == pytest.approx(at_level(fresh.tolist(), level))
    for i in range(8):  # of what decides: steps
        level = (i + 0.5) / 8
        reached = [s for s, left in zip(ended, shares, strict=True) if 1 - left > level]
        assert durations.quantile_s(1000.0, level) == pytest.approx(min(reached, default=8000.0))

    outlived = np.interp(1001.0 / scale, even, places)
    left = len(ended) * (1 - outlived)
    own = round(64 * left / (left + 2 * outlived))
    levels = outlived + (1 - outlived) * (np.arange(own) + 0.5) / own
    rest = 64 - own
    found = [*np.interp(levels, places, even) * scale - 1]
    found += [1001.0 * rest / (rest - i - 0.5) - 1 for i in range(rest)]
    expected = sorted(max(seconds, 1000.0) for seconds in found)
    assert durations.quantiles(1000.0, 1000.0) == pytest.approx(expected)


def test_what_goes_on_when_the_last_has_ended_is_not_expected_to_end_with_it() -> None:
    """Of each hundred half end within 600 s, and half go on until they were seen for a day."""
    durations = DurationDistribution(weight=0)
    for i in range(100):
        durations.began(f"j{i}", 600.0, 0.0)
    for i in range(100):
        durations.learn(600.0, 6.0 * i + 3.0, 86_400.0)
    found = durations.quantiles(600.0)
    assert at_level(found, 0.5) == pytest.approx(597.0, rel=0.02)
    # half are left at 597 s: a quarter at twice that, a tenth at five times that
    assert at_level(found, 0.75) == pytest.approx(2 * 597.0, rel=0.05)
    assert at_level(found, 0.9) == pytest.approx(5 * 597.0, rel=0.05)
    lasted = durations.quantiles(600.0, 3600.0)
    assert at_level(lasted, 0.5) == pytest.approx(2 * 3600.0, rel=0.1)
    assert durations.quantile_s(600.0, 0.9) == pytest.approx(86_400.0)  # what decides


def test_a_duration_that_is_stated_is_as_wide_as_its_error() -> None:
    found = DurationDistribution().quantiles(Stated(1000.0, 0.3))
    expected = [1001 * exp(NormalDist(0, 0.3).inv_cdf((i + 0.5) / 64)) - 1 for i in range(64)]
    assert list(found) == pytest.approx(expected, rel=0.02)
