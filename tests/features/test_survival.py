"""What running jobs already tell, and how the estimate comes apart by level."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job import Job
from features.schema import State
from features.spec import Value
from features.state import FeatureError, FeatureState
from features.survival import (
    BINS,
    EDGES_S,
    LEVELS,
    OUTLOOK_TERMS,
    Hazard,
    Lives,
    hazards,
    outlook,
    values,
)

NOW = 1_600_000_000.0


def named(state: FeatureState, job: Job, now: float) -> dict[str, Value]:
    names = (spec.name for spec in state.features)
    return dict(zip(names, state.row(job, now), strict=True))


def job(number: int, at: float, user: str = "ann", **asked: object) -> Job:
    return Job(f"j{number}", at, 1, user=user, vc="v", **asked)  # type: ignore[arg-type]


def test_a_job_still_running_is_news_for_the_next() -> None:
    state = FeatureState({"survival"})
    for number in range(3):
        state.submit(job(number, NOW), NOW)
        state.start(f"j{number}", NOW)
    soon, later = (named(state, job(9, at), at) for at in (NOW + 60, NOW + 5 * 3600))
    assert later["like_over_1h"] > soon["like_over_1h"] + 1
    assert later["like_log_s"] > soon["like_log_s"] + 1
    other = named(state, job(9, NOW + 5 * 3600, user="bob"), NOW + 5 * 3600)
    assert soon["like_over_1h"] < other["like_over_1h"] < later["like_over_1h"]


def test_a_job_that_stops_and_starts_again_is_counted_once() -> None:
    rows = []
    for stops in (False, True):
        state = FeatureState({"survival"})
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


def test_no_job_outlasts_its_limit() -> None:
    state = FeatureState({"survival"})
    short, free = (named(state, job(0, NOW, time_limit_s=t), NOW) for t in (300.0, None))
    assert short["like_log_s"] <= math.log1p(300.0)
    assert short["like_over_5m"] == short["like_over_1d"] < free["like_over_1d"]
    assert short["like_over_2m"] == free["like_over_2m"]


LIVES = st.lists(
    st.tuples(st.integers(0, len(LEVELS) - 1), st.floats(0, 1e6), st.booleans()), max_size=30
)


@given(LIVES, st.one_of(st.none(), st.floats(1, 1e6)))
def test_the_levels_add_up(lives: list[tuple[int, float, bool]], limit: float | None) -> None:
    groups = [Hazard(5.0) for _ in LEVELS]
    book = Lives()
    for number, (level, lasted, ended) in enumerate(lives):
        book.submit(str(number), (groups[0], groups[level]) if level else (groups[0],))
        book.start(str(number), float(number))
        if ended:
            book.end(str(number), lasted)
    book.advance(1e5)
    levels = hazards([*groups[:-1], None])
    assert all(0 < share < 1 for level in levels for share in level)
    assert len(levels[0]) == BINS == len(EDGES_S) + 1
    first, terms = outlook(levels, limit)
    assert len(terms) == len(OUTLOOK_TERMS)
    row = values(levels, limit)
    assert first + sum(terms) == pytest.approx(row[0], abs=1e-9)
    assert terms[-1] <= 1e-12
    odds = row[2:11]
    assert list(odds) == sorted(odds, reverse=True)


def test_the_outlook_is_the_feature_and_needs_its_family() -> None:
    state = FeatureState({"survival"})
    state.submit(job(0, NOW), NOW)
    state.start("j0", NOW)
    state.end("j0", NOW + 50, State.COMPLETED, 50.0)
    first, terms = state.outlook(job(1, NOW + 90), NOW + 90)
    assert first + sum(terms) == pytest.approx(
        named(state, job(1, NOW + 90), NOW + 90)["like_log_s"]
    )
    with pytest.raises(FeatureError, match="survival"):
        FeatureState({"size"}).outlook(job(1, NOW), NOW)
