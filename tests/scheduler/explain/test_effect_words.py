"""What a change does is said the right way round: later or earlier, at once, and until when."""

from __future__ import annotations

import time

import pytest

from scheduler.explain.effect import Effect, ExpectedTimes, Moved, OthersMoved, WhatIfAnswer
from scheduler.explain.effect_words import (
    change_lines,
    effect_lines,
    forecast_words,
    place_words,
    preview_lines,
    runs_there_words,
    task_words,
)
from scheduler.explain.words import ForecastKind

HOUR = 3600.0
KNOWN = ExpectedTimes(start_p50=HOUR, start_p90=2 * HOUR, end_p50=3 * HOUR)


@pytest.mark.parametrize(
    ("forecast", "words"),
    [
        (None, "estimate unavailable: none was made yet"),
        (ExpectedTimes(), "estimate unavailable: the service gives no reason"),
        (ExpectedTimes(why_not="it is held"), "estimate unavailable: it is held"),
        (
            ExpectedTimes(0.0, 0.0, why_not="no node is large", estimate=ForecastKind.IMPOSSIBLE),
            "no node is large",
        ),
        (ExpectedTimes(start_p50=HOUR), "starts within 1 h in half of such cases"),
        (
            KNOWN,
            "starts within 1 h in half of such cases, within 2 h nine times in ten; "
            "ends within 3 h in half of them",
        ),
        (
            ExpectedTimes(start_p50=-9.0, start_p90=-9.0, end_p50=-9.0),  # these times are past
            "starts within 0 s in half of such cases, within 0 s nine times in ten; "
            "ends within 0 s in half of them",
        ),
    ],
)
def test_a_forecast_is_told_from_now_on(forecast: ExpectedTimes | None, words: str) -> None:
    assert forecast_words(forecast, 0.0) == words


def of(**told: object) -> list[str]:
    """Return what an answer adds to the two forecasts that begin it."""
    answer = WhatIfAnswer("a", {}, now=KNOWN, then=KNOWN, **told)  # type: ignore[arg-type]
    return effect_lines(answer, 0.0)[2:]


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ({}, []),
        ({"starts_now": True}, ["It would start at once."]),
        ({"moved": [Moved("b", 300.0)]}, ["Your job b would start 5 min later."]),
        ({"moved": [Moved("b", -300.0)]}, ["Your job b would start 5 min earlier."]),
        (
            {"others_moved": OthersMoved(later=2)},
            ["Jobs of others: 2 would start later, 0 earlier."],
        ),
        (
            {"others_moved": OthersMoved(earlier=3)},
            ["Jobs of others: 0 would start later, 3 earlier."],
        ),
        ({"others_moved": OthersMoved()}, []),
        ({"assumed": ["n1 stays open"]}, ["This holds if n1 stays open."]),
        ({"command": "do"}, ["Do it: do"]),
        (
            {"command": "do", "gain_s": 300.0, "earlier": 9, "futures": 9},
            [
                "Its median start is 5 min earlier (earlier in 9 of 9 simulated futures).",
                "Do it: do",
            ],
        ),
        (
            {"command": "do", "gain_s": -300.0, "earlier": 0, "futures": 9},
            [
                "Its median start is 5 min later (earlier in 0 of 9 simulated futures).",
                "Do it all the same: do",
            ],
        ),
        ({"gain_s": 0.5, "earlier": 5, "futures": 9}, []),  # not a second
    ],
)
def test_an_effect_is_said_the_right_way_round(told: dict[str, object], lines: list[str]) -> None:
    assert of(**told) == lines


def test_the_two_forecasts_stand_under_their_names() -> None:
    late = ExpectedTimes(start_p50=2 * HOUR)
    answer = WhatIfAnswer("a", {}, now=ExpectedTimes(start_p50=HOUR), then=late)
    assert effect_lines(answer, 0.0) == [
        "unchanged:  starts within 1 h in half of such cases",
        "changed:    starts within 2 h in half of such cases",
    ]
    none = WhatIfAnswer("a", {}, unavailable="it is over")
    assert effect_lines(none, 0.0) == ["estimate unavailable: it is over"]


@pytest.mark.parametrize(
    ("needed", "applied", "effect", "lines"),
    [
        (False, True, None, ["a is so already"]),
        (True, True, None, ["a is held"]),
        (True, False, None, ["a would be so; no estimate: it is being profiled"]),
        (
            True,
            False,
            WhatIfAnswer("a", {}, unavailable="it is over"),
            ["a, if changed:", "  estimate unavailable: it is over"],
        ),
    ],
)
def test_a_change_is_told_as_made_or_as_previewed(
    needed: bool, applied: bool, effect: WhatIfAnswer | None, lines: list[str]
) -> None:
    told = change_lines("a", "is held", effect, 0.0, needed=needed, applied=applied)
    assert told == lines


@pytest.mark.parametrize(
    ("effect", "lines"),
    [
        (Effect({"b": 300.0, "c": -600.0}, 2, 2, 9), ["  c 10 min earlier", "  b 5 min later"]),
        (Effect({}, 2, 2, 9, stuck=["d"]), ["  d would not start within the forecast"]),
        (Effect({}, 2, 2, 9), ["  no job starts a minute or more earlier or later"]),
    ],
)
def test_a_preview_names_who_moves_and_who_no_longer_starts(
    effect: Effect, lines: list[str]
) -> None:
    first, *others = preview_lines(effect)
    assert first == (
        "Nothing is changed. Of 2 waiting jobs, 2 were forecast in 9 simulated futures. "
        "What the change would do:"
    )
    assert others == lines


def test_a_preview_that_there_is_not_says_why() -> None:
    assert preview_lines(Effect({}, 0, 0, 0, why_not="it took too long")) == [
        "Nothing is changed. No preview: it took too long"
    ]


def test_a_place_in_line_is_told_with_what_makes_it() -> None:
    assert place_words("7", None, None, None, []) == "7: no place is known."
    assert place_words("7", 2, 9, None, []) == "7: 2 of 9 who wait."
    told = place_words("7", 2, 9, 30.0, [("age", 10.0), ("fair share", 20.5)])
    assert told == "7: 2 of 9 who wait. Priority 30.0, age 10, fair share 20.5."


def test_who_runs_on_a_node_is_told_with_its_end_where_that_is_known() -> None:
    assert runs_there_words("7", "ada", None) == "Runs there: 7 of ada, until when is not known"
    at = time.mktime((2026, 3, 5, 16, 40, 0, 0, 0, -1))
    assert runs_there_words("7", "ada", at) == "Runs there: 7 of ada, until about 2026-03-05 16:40"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("7", "7", 0, "queued"), ""),
        (("7", "7_1", 0, "queued"), "7 is an array; 7_1 is its first task that waits."),
        (("7", "7_1", 0, "running"), "7 is an array; 7_1 is its first task that runs."),
        (("7", "7", 3, "running"), "7 is a heterogeneous job of 3 components."),
    ],
)
def test_an_array_is_told_from_a_job_of_several_parts(
    asked: tuple[str, str, int, str], words: str
) -> None:
    assert task_words(*asked) == words
