"""How long a job should run: what decides says it, cut at the limit, with what it rests on."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.belief import (
    COMMAND,
    Alike,
    Runs,
    alike_words,
    are_open,
    belief,
    belief_words,
    guessed_words,
)
from scheduler.explain.explanation import PredictionReason
from scheduler.explain.words import duration

SPREAD = (("p50_s", 26.0), ("p90_s", 76.0))


def predicted(seconds: float, evidence: tuple[tuple[str, float], ...] = SPREAD) -> Decision:
    return Decision(
        0, 0.0, Action.ENQUEUE, Reason.SUBMITTED, "j", "vc", estimate_s=seconds, evidence=evidence
    )


def test_the_distribution_is_said_and_not_the_score() -> None:
    found = belief([predicted(368.0)], 300.0, [40.0, 18.0], base_s=780.0)
    assert found is not None
    assert (found.p50_s, found.p90_s) == (26.0, 76.0)
    assert found.alike == Alike(2, 18.0, 40.0)
    assert (found.base_s, found.model_s) == (780.0, 368.0)
    made_of = [PredictionReason("how long this user's jobs last", 0.47, ["user"])]
    assert belief_words(found, {}, made_of) == (
        "It should run about 26 s; at most 76 s nine times in ten. Its owner's last 2 jobs of "
        "this name ran 18 s to 40 s. The model predicts 6 min 8 s: 13 min as for every job, "
        "then \u00d70.47 (how long this user's jobs last). Half of the jobs that it predicts so "
        "run at most 26 s."
    )


def test_what_the_progress_of_an_ended_job_said_is_past() -> None:
    """An ended job "should" still run by its own progress."""
    found = belief([predicted(368.0)], None, stated_s=480.0, over=True)
    assert found is not None
    assert belief_words(found) == "It was to run about 8 min, by its own progress."


def test_nothing_is_said_beyond_the_limit() -> None:
    found = belief([predicted(368.0)], 50.0)
    assert found is not None
    assert (found.p50_s, found.p90_s) == (26.0, 50.0)
    assert belief_words(found) == (
        "It should run about 26 s; at most 50 s nine times in ten (its time limit)."
    )
    alone = belief([predicted(368.0, ())], 50.0, over=True)
    assert alone is not None
    assert (alone.p50_s, alone.p90_s) == (50.0, None)
    assert belief_words(alone) == "It was to run about 50 s (its time limit)."


def test_its_own_progress_is_named_where_it_says_something_else() -> None:
    for stated_s, words in (
        (
            369.0,
            "It should run about 26 s; at most 76 s nine times in ten. Its command asks for 9 "
            "epochs.",
        ),
        (480.0, "It should run about 8 min, by its own progress."),
    ):
        found = belief([predicted(368.0)], None, stated_s=stated_s)
        assert found is not None
        assert found.stated is (stated_s == 480.0)
        assert belief_words(found, {COMMAND.name: "asks for 9 epochs"}) == words


def test_the_last_prediction_counts_and_without_one_nothing_is_said() -> None:
    anew = predicted(20.0, (("p50_s", 5.0), ("p90_s", 9.0)))
    found = belief([predicted(368.0), anew], None)
    assert found is not None
    assert (found.p50_s, found.p90_s) == (5.0, 9.0)
    assert belief([], None) is None
    assert alike_words(Alike(1, 7.0, 7.0)) == "Its owner's last job of this name ran 7 s"


def test_an_owner_is_asked_where_it_is_open_whether_the_job_runs_for_hours() -> None:
    def asked(over_1h: float, limit_s: float | None = None, **of: Any) -> tuple[str, bool]:
        told = predicted(368.0, (*SPREAD, ("over_1h", over_1h)))
        found = belief([told], limit_s, asks="pellucid change j --expect 6h", **of)
        assert found is not None
        return found.asks, found.asks in belief_words(found) and found.asks != ""

    assert asked(0.3) == ("pellucid change j --expect 6h", True)
    runs = Runs(ran_s=9.0, odds={"over_1h": 0.3})
    for known in (asked(0.01), asked(0.9), asked(0.3, 600.0), asked(0.3, over=True)):
        assert known == ("", False)
    assert asked(0.3, runs=runs) == ("", False), "what runs is asked no more"


@pytest.mark.parametrize("limit_s", [None, 100.0, 4000.0])
@pytest.mark.parametrize("ran_s", [0.0, 5.0, 25.0, 27.0, 62.0, 75.0, 77.0, 99.0, 3000.0])
def test_what_is_said_of_a_run_is_so_at_its_age(ran_s: float, limit_s: float | None) -> None:
    if limit_s is not None and ran_s > limit_s:
        return
    for ends_in_s in (None, (-3.0, -1.0), (0.2, 40.0), (30.0, None), (30.0, 500.0)):
        likely_s, latest_s = ends_in_s or (None, None)
        runs = Runs(ran_s=ran_s, likely_s=likely_s, latest_s=latest_s)
        found = belief([predicted(368.0)], limit_s, runs=runs)
        assert found is not None
        assert belief_words(found).startswith(f"It has run {duration(ran_s)}")
        if ends_in_s is not None:
            assert found.p50_s >= ran_s
            assert found.p90_s is None or found.p90_s >= ran_s
            assert limit_s is None or max(found.p50_s, found.p90_s or 0.0) <= max(limit_s, ran_s)
        elif ran_s > 76.0 and limit_s is None:
            assert "longer than nine of ten such jobs should (76 s)" in belief_words(found)
        elif 26.0 < ran_s < 76.0:
            most = "; nine of ten should end within 76 s."
            assert f"longer than half of such jobs should (26 s){most}" in belief_words(found)
        assert "It should run" not in belief_words(found)


def test_when_a_run_should_end_is_said_from_now_on() -> None:
    def told(likely_s: float, latest_s: float | None, limit_s: float | None = None) -> str:
        runs = Runs(ran_s=62.0, likely_s=likely_s, latest_s=latest_s)
        found = belief([predicted(13.0)], limit_s, runs=runs)
        assert found is not None
        return belief_words(found).split(". The model")[0].rstrip(".")

    assert (
        told(60.0, 600.0)
        == "It has run 62 s; it should end in 1 min, within 10 min nine times in ten"
    )
    assert told(60.0, 600.0, limit_s=182.0) == (
        "It has run 62 s; it should end in 1 min, within 2 min nine times in ten"
    )
    assert (
        told(-5.0, 30.0)
        == "It has run 62 s; it may end at any moment, within 30 s nine times in ten"
    )
    assert told(-5.0, -1.0) == "It has run 62 s; it may end at any moment"
    assert told(60.0, None) == "It has run 62 s; it should end in 1 min"


def test_a_guess_is_called_one_in_the_short_answer_too_until_it_rests_on_more() -> None:
    """A prediction that was made again said nothing of how little the first rested on."""
    first = predicted(894.0, (*SPREAD, ("ended_here", 0.0)))
    again = predicted(528.0, (*SPREAD, ("predicted_before_s", 894.0)))
    guess = belief([first], None)
    assert guess is not None
    said = "It should run about 26 s, a guess: no job here had ended."
    assert guessed_words(guess) == said
    renewed = belief([first, again], None)
    assert renewed is not None
    assert renewed.renewed
    assert guessed_words(renewed).endswith("no job here had ended, predicted again since.")
    words = "When it was submitted, no job here had ended; it was predicted again since."
    assert words in belief_words(renewed)
    known = belief([first, again], None, [40.0])
    assert known is not None
    assert not guessed_words(known)
    sure = belief([predicted(368.0)], None)
    assert sure is not None
    assert not guessed_words(sure)
    stated = belief([first], None, stated_s=480.0)
    assert stated is not None
    assert not guessed_words(stated)


@pytest.mark.parametrize(
    ("odds", "open_"),
    [
        ({"over_1h": 0.3, "over_6h": 0.05, "over_1d": 0.0}, True),
        ({"over_1h": 0.9, "over_6h": 0.3, "over_1d": 0.0}, True),
        ({"over_1h": 0.9, "over_6h": 0.7, "over_1d": 0.3}, False),  # six hours are sure already
        ({"over_1h": 0.05, "over_6h": 0.0, "over_1d": 0.0}, False),
        ({}, False),
    ],
)
def test_an_owner_is_asked_where_an_hour_or_six_are_open(
    odds: dict[str, float], open_: bool
) -> None:
    assert are_open(odds) is open_
