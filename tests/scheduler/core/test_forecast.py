"""How much is about to arrive."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.arrivals import BIN_S, RecentForecaster, TableForecaster


def a_table(start: float = 0.0) -> TableForecaster:
    """Ten bins: 0..9 jobs, ten times as many GPUs."""
    return TableForecaster(start, list(range(10)), [10.0 * i for i in range(10)])


@pytest.mark.parametrize(
    ("now", "jobs"),
    [
        (0.0, 2.0),  # bins 0-4
        (599.9, 2.0),
        (600.0, 3.0),  # bins 1-5
        (3000.0, 7.0),  # bins 5-9, the last five
        (3600.0, math.inf),  # only four bins ahead: unknown, so busy
        (1e9, math.inf),
        (-1.0, math.inf),
    ],
)
def test_a_table_looks_five_bins_ahead_and_calls_the_unknown_busy(now: float, jobs: float) -> None:
    assert a_table().jobs(now) == jobs
    assert a_table().gpus(now) == (10 * jobs if jobs < math.inf else 0.0), "no node need be kept"
    assert a_table(1e6).jobs(1e6 + now) == jobs


@settings(max_examples=60)
@given(
    arrivals=st.lists(st.tuples(st.floats(0, 2e4), st.integers(1, 64)), max_size=20),
    later=st.floats(0, 5000),
)
def test_the_next_hour_looks_like_the_last(arrivals: list[tuple[float, int]], later: float) -> None:
    forecast = RecentForecaster()
    arrivals.sort()
    for time, gpus in arrivals:
        forecast.submitted(gpus, time)
    now = (arrivals[-1][0] if arrivals else 0.0) + later
    recent = [gpus for time, gpus in arrivals if time >= now - 6 * BIN_S]
    assert forecast.jobs(now) == len(recent) / 6
    assert forecast.gpus(now) == sum(recent) / 6
