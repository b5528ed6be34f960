from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.history import EWMA_STEP, FAILED, PAST, WINDOW, KeyHistory
from features.schema import State

ENDED = st.tuples(
    st.one_of(st.integers(0, 50).map(float), st.floats(0, 1e7)),
    st.sampled_from([State.COMPLETED, State.FAILED, State.CANCELLED, State.OUT_OF_MEMORY]),
)


@given(st.lists(ENDED, min_size=1, max_size=3 * WINDOW))
def test_statistics_are_those_of_the_whole_record(jobs: list[tuple[float, State]]) -> None:
    key = KeyHistory()
    for now, (duration, state) in enumerate(jobs):
        key.learn(float(now), state, duration)
    past = dict(zip([name for name, *_ in PAST], key.past, strict=True))

    durations = np.array([duration for duration, _ in jobs])
    window = durations[-WINDOW:]
    states = [state for _, state in jobs[-WINDOW:]]
    # weights of an exponential mean that starts from its first value, newest last
    ages = np.arange(len(jobs))[::-1]
    weights = EWMA_STEP * (1 - EWMA_STEP) ** ages
    weights[0] /= EWMA_STEP
    expected = {
        "ended": len(jobs),
        "last_s": durations[-1],
        "ewma_s": weights @ durations,
        "ewma_log_s": math.expm1(weights @ np.log1p(durations)),
        "p25_s": np.quantile(window, 0.25),
        "p50_s": np.quantile(window, 0.50),
        "p90_s": np.quantile(window, 0.90),
        "over_1h_ratio": (window > 3600).mean(),
        "over_6h_ratio": (window > 21600).mean(),
        "failed_ratio": np.mean([state in FAILED for state in states]),
        "cancelled_ratio": np.mean([state is State.CANCELLED for state in states]),
    }
    assert past == pytest.approx(expected, rel=1e-9, abs=1e-6)
