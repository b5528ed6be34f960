"""What running jobs already tell, and how the estimate comes apart by level."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from features.spec import Value
from features.state import FeatureError, FeatureState
from features.survival import (
    _MIDDLE_LOG,
    SHRINKAGE,
    SPECS,
    SUM,
    Hazard,
    Lives,
    beyond,
    hazards,
    values,
)

NOW = 1_600_000_000.0


def named(state: FeatureState, job: Job, now: float) -> dict[str, Value]:
    names = (spec.name for spec in state.features)
    row = dict(zip(names, state.row(job, now), strict=True))
    return row | {"sum": sum(row[spec.name] for spec in SUM)}  # type: ignore[misc]


def job(number: int, at: float, user: str = "ann", **asked: object) -> Job:
    return Job(f"j{number}", at, 1, user=user, vc="v", **asked)  # type: ignore[arg-type]


def test_a_job_that_stops_and_starts_again_is_counted_once() -> None:
    rows = []
    for stops in (False, True):
        state = FeatureState({"survival", "odds"})
        state.submit(job(0, NOW), NOW)
        state.start("j0", NOW)
        if stops:
            state.requeue("j0", NOW + 1000)
            state.start("j0", NOW + 1500)
            state.end("j0", NOW + 5500, State.COMPLETED, 4000.0)
        else:
            state.end("j0", NOW + 4000, State.COMPLETED, 4000.0)
        rows.append(state.row(job(1, NOW + 9000), NOW + 9000))
    assert rows[0] == rows[1]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.none() | st.floats(1, 1e6))
def test_the_error_is_that_of_the_mean(lasted: list[float], limit: float | None) -> None:
    """To first order: the mean, moved by the deviation of each stretch's share in turn."""
    group, book = Hazard(30.0), Lives()
    for number, seconds in enumerate(lasted):
        book.submit(str(number), (group,))
        book.start(str(number), 0.0)
        book.end(str(number), seconds)
    shares = np.array(hazards([None, None, None, group])[-1])
    logs = np.minimum(_MIDDLE_LOG, math.log1p(limit) if limit else math.inf)

    def mean(of: np.ndarray) -> float:
        alive = np.append(np.cumprod(1.0 - of[:-1]), 0.0)
        return float(-np.diff(alive, prepend=1.0) @ logs)

    variance = 0.0
    for b, known in enumerate(group.reached[:-1]):
        deviation = math.sqrt(shares[b] * (1 - shares[b]) / (known + SHRINKAGE + 1))
        moved = shares.copy()
        moved[b] += 1e-6
        variance += ((mean(moved) - mean(shares)) / 1e-6 * deviation) ** 2
    told = dict(zip((s.name for s in SPECS), values([None] * 3 + [group], limit), strict=False))
    assert told["like_error"] == pytest.approx(math.sqrt(variance), rel=1e-3, abs=1e-4)


def test_the_outlook_is_what_the_features_say_and_needs_its_family() -> None:
    state = FeatureState({"survival", "odds"})
    state.submit(job(0, NOW), NOW)
    state.start("j0", NOW)
    state.end("j0", NOW + 50, State.COMPLETED, 50.0)
    terms, error = state.outlook(job(1, NOW + 90), NOW + 90)
    row = named(state, job(1, NOW + 90), NOW + 90)
    assert (sum(terms), error) == (row["sum"], row["like_error"])
    with pytest.raises(FeatureError, match="survival"):
        FeatureState({"size"}).outlook(job(1, NOW), NOW)


@given(
    st.lists(st.floats(0.01, 0.9), min_size=16, max_size=16),
    st.lists(st.floats(0.0, 14.0), min_size=2, max_size=2),
    st.none() | st.floats(1, 1e6),
)
def test_who_outlives_more_lasts_longer(
    hazard: list[float], moments: list[float], limit: float | None
) -> None:
    low, high = sorted(moments)
    most = math.log1p(limit) if limit else math.inf
    means = [beyond([*hazard, 0.5], at, limit) for at in (-math.inf, low, high)]
    assert means == pytest.approx(sorted(means), abs=1e-9)
    assert all(mean <= most + 1e-9 for mean in means)
    assert means[2] >= min(high, most) - 1e-9


@pytest.mark.parametrize("looked_at", [False, True], ids=["preempted", "profiled"])
def test_what_a_job_has_outlived_raises_what_is_believed_of_it(looked_at: bool) -> None:
    state = FeatureState({"survival"})
    for number, seconds in enumerate([9000.0] * 2 + [20.0] * 8):  # mostly short, some long
        state.submit(job(number, NOW + number), NOW + number)
        state.end(f"j{number}", NOW + number, State.COMPLETED, seconds)
    at, waits = NOW + 20_000, job(50, NOW + 20_000)
    state.submit(waits, at)
    before = state.outlook(waits, at)[0]
    assert state.beyond(waits, at, sum(before)) == (0.0, 0.0)
    begin, over = (state.try_out, state.tried_out) if looked_at else (state.start, state.requeue)
    begin("j50", at)
    over("j50", at + 200)
    outlived_s, adds = state.beyond(waits, at + 200, sum(before))
    assert outlived_s == 200.0
    assert state.outlook(waits, at + 200)[0] == before  # as of submission: a feature stays
    assert math.expm1(sum(before) + adds) > 600.0 > 200.0 > math.expm1(sum(before))
    # and never below what it has outlived, whatever another model says
    score = math.log1p(1.0)
    assert score + state.beyond(waits, at + 200, score)[1] >= math.log1p(200.0)
    wider = Job("j50", at, 2, user="ann", vc="v")
    assert state.beyond(waits, at + 300, score)[0] == 200.0
    state.change(wider, at + 300)  # as many GPUs more: what it outlived was another job's
    assert state.beyond(wider, at + 300, score) == (0.0, 0.0)


def test_a_job_that_is_tried_out_is_news_for_the_next_one() -> None:
    state = FeatureState({"survival"})
    state.submit(job(0, NOW), NOW)
    before = named(state, job(1, NOW), NOW)["sum"]
    state.try_out("j0", NOW)
    with pytest.raises(FeatureError, match="not running"):
        state.requeue("j0", NOW + 1)
    state.tried_out("j0", NOW + 200)
    after = named(state, job(1, NOW + 200), NOW + 200)["sum"]
    assert after > before  # type: ignore[operator]
    state.start("j0", NOW + 300)
    state.end("j0", NOW + 500, State.COMPLETED, 200.0)  # its stretches counted once
