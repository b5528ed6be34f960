"""The odds that a job runs long, and what each reason moves, are those of what decides."""

from __future__ import annotations

from math import expm1, fsum, log1p

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.decisions import Score
from scheduler.core.durations import DurationDistribution
from scheduler.explain.odds import odds

NAMES = ("like_all_log_s", "like_user", "like_template", "gpus")
HOUR = 3600.0


def believed(seen: list[tuple[float, float]]) -> DurationDistribution:
    found = DurationDistribution()
    for predicted_s, ran_s in seen:
        found.learn(predicted_s, ran_s)
    return found


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(1.0, 1e5), st.floats(0.0, 1e6)), max_size=60),
    st.floats(0.0, 9.0),
    st.lists(st.floats(-3.0, 3.0), min_size=4, max_size=4),
)
def test_points_sum_to_the_odds_of_what_decides(
    seen: list[tuple[float, float]], intercept: float, terms: list[float]
) -> None:
    decides = believed(seen)
    value = intercept
    for term in terms:
        value += term
    predicted_s = max(0.0, expm1(value))
    told = odds(decides, predicted_s, None, Score(value, intercept, tuple(terms), "d"), NAMES)
    assert told is not None
    points = fsum(one.points for one in told.reasons)
    assert told.starts + points / 100 == pytest.approx(told.share, abs=1e-12)
    # the share of jobs beyond is what the quantiles that decide say
    over = sum(decides.quantile_s(predicted_s, (i + 0.5) / 40) > told.over_s for i in range(40))
    assert told.share == pytest.approx(over / 40, abs=1 / 40)
    assert {one.text for one in told.reasons} <= {
        "how long jobs like this one last", "how long this user's jobs last", "what it asks for"
    }  # fmt: skip


def test_it_is_a_sentence() -> None:
    decides = believed([(HOUR, HOUR / 4), (HOUR, 4 * HOUR)] * 300 + [(60.0, 60.0)] * 300)
    intercept = log1p(60.0)
    term = log1p(HOUR) - intercept
    score = Score(intercept + term, intercept, (term,), "d")
    told = odds(decides, HOUR, None, score, ("like_template",))
    assert told is not None
    assert told.text == (
        "50 % over 1 h: every job starts at 0 %; 50 points more for how long jobs like this one "
        "last."
    )
    unnamed = odds(decides, HOUR, None, score, ())
    assert unnamed is not None
    assert unnamed.text == "50 % over 1 h."
    assert unnamed.reasons == ()
    short = odds(decides, 60.0, None, None, ())
    assert short is not None
    assert short.text == "unlikely to run so long: 0 % over 1 h."


def test_terms_that_are_not_what_is_believed_are_no_reasons() -> None:
    told = odds(believed([]), 2 * HOUR, None, Score(3.0, 2.0, (1.0,), "d"), ("like_user",))
    assert told is not None
    assert told.reasons == ()


def test_a_job_that_may_not_run_for_so_long_has_no_odds() -> None:
    assert odds(believed([]), 600.0, HOUR, None, ()) is None
