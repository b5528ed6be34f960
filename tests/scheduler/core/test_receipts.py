"""What a receipt says is what the distribution says, and it is kept where a prediction is made."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.repeats import Claim
from scheduler.core.curves import Predicted
from scheduler.core.decisions import Action, Decision
from scheduler.core.durations import Duration, DurationDistribution, Stated, at_level, seconds_of
from scheduler.core.receipts import Receipt, _along
from tests.scheduler.policies.pellucid.test_repredict import HOUR, a_desk, burst


def test_the_durations_of_a_receipt_are_those_of_the_distribution() -> None:
    draw, distribution = Random(0), DurationDistribution()
    for _ in range(400):
        distribution.learn(6000.0 * draw.random(), 10 ** draw.uniform(0.0, 5.0))
    claims = 0
    for trial in range(400):
        hazards = [0.4 * draw.random() for _ in range(17)]
        limit_s = draw.choice([1_209_600.0, 3600.0, 50_000.0])
        lows = [10 ** draw.uniform(0.0, 4.0) for _ in range(draw.randrange(3))]
        said = tuple(Claim(low, low * draw.uniform(1.1, 5.0), draw.random()) for low in lows)
        predicted: Duration = Predicted.of(
            10 ** draw.uniform(1.0, 5.0), hazards, draw.gauss(0.0, 1.0), limit_s, said
        )
        if trial % 10 == 0:
            predicted = draw.choice([seconds_of(predicted), Stated(500.0, 0.3, 800.0)])
        outlived_s = draw.choice([0.0, 0.0, 200.0, 5000.0])
        limit = draw.choice([None, limit_s])
        found = distribution.receipt(predicted, outlived_s, limit)
        read = Receipt.read(json.loads(json.dumps(found.plain())))
        assert read is not None
        assert read.durations() == pytest.approx(
            distribution.quantiles(predicted, outlived_s, limit), rel=1e-6, abs=1e-4
        )
        claims += len(read.claims)
    assert claims > 50


def test_a_prediction_keeps_its_receipt_and_a_new_one_its_own() -> None:
    assert not any(d.receipt for d in taken(keeps=False))
    decisions = taken(keeps=True)
    kept = [d for d in decisions if d.receipt]
    assert {d.action for d in kept} == {Action.ENQUEUE, Action.WAIT, Action.START}
    for d in kept:
        read, said = Receipt.read(d.receipt), dict(d.evidence)
        assert read is not None
        for name, level in (("p50_s", 0.5), ("p90_s", 0.9)):
            assert at_level(read.durations(), level) == pytest.approx(said[name], rel=1e-6)
        assert Decision.from_body(json.loads(json.dumps(d.body()))) == d
    again = [d for d in kept if "predicted_before_s" in dict(d.evidence)]
    assert {d.job_id for d in again} >= {f"slow{i}" for i in range(10)}


def taken(*, keeps: bool) -> list[Decision]:
    """What is decided of two users' jobs, which are predicted again."""
    desk, found = a_desk(), list[Decision]()
    desk.core.keeps_receipts = keeps
    decide = desk.core.decide

    def decided(now: float) -> list[Decision]:
        made = decide(now)
        found.extend(made)
        return made

    desk.core.decide = decided  # type: ignore[method-assign]
    burst(desk)
    desk.end("first", now=2 * HOUR)
    return found


@given(
    st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True).map(sorted),
    st.lists(st.integers(-20, 20), min_size=8, max_size=8),
    st.floats(-10.0, 60.0),
)
def test_a_value_between_two_is_on_the_line_between_them(
    across: list[int], up: list[int], at: float
) -> None:
    found = _along(across, up[: len(across)], at)
    assert found == pytest.approx(float(np.interp(at, across, up[: len(across)])), abs=1e-6)
