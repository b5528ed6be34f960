"""How many GPUs are free, kept, lent or closed, and decisions, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.answer import Analysis
from scheduler.explain.explanation import DecisionValues
from scheduler.explain.remarks import recorded
from scheduler.explain.render import _counts, decision_words
from scheduler.explain.words import phrase

FOUND = Analysis(reason=Reason.GPUS_BUSY, need=4, free=2, limit=16)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (FOUND, "2 of 16 are free now"),
        (replace(FOUND, free=1), "1 of 16 is free now"),
        (replace(FOUND, kept=2), "2 of 16 are free now, all of them kept for another job"),
        (
            replace(FOUND, free=3, kept=2),
            "3 of 16 are free now, 2 of them kept for another job",
        ),
        (replace(FOUND, free=1, kept=1), "1 of 16 is free now, but kept for another job"),
        (replace(FOUND, lent=1), "2 of 16 are free now, 1 more is lent to profile new jobs"),
    ],
)
def test_free_gpus_are_counted_with_what_becomes_of_them(found: Analysis, words: str) -> None:
    assert _counts(found) == words


def test_counts_of_before_are_of_then() -> None:
    assert _counts(FOUND, recorded=True) == "2 of 16 were free then"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            DecisionValues(reason=Reason.NOT_YET_EVALUATED.value),
            "in the queue, no reason recorded yet",
        ),
        (DecisionValues(reason="A_REASON_OF_A_LATER_VERSION"), "a reason of a later version"),
        (
            DecisionValues(reason="A_REASON_OF_A_LATER_VERSION", action="wait"),
            "a reason of a later version",
        ),
    ],
)
def test_a_decision_without_a_known_reason_has_a_sentence(one: DecisionValues, words: str) -> None:
    assert decision_words(one, "j") == words


def test_a_decision_that_was_taken_is_not_said_to_have_no_reason() -> None:
    busy = DecisionValues(reason=Reason.GPUS_BUSY.value, action="wait", need=4, free=2, limit=16)
    for one in (busy, replace(busy, action="")):
        assert "no reason recorded" not in decision_words(one, "j")


def test_what_is_recorded_of_a_decision_names_its_order_value_where_it_has_one() -> None:
    without = Decision(
        0, 0.0, Action.WAIT, Reason.GPUS_BUSY, "j", "vc", evidence=(("free", 2), ("limit", 16))
    )
    assert recorded(without) == "free 2, limit 16"
    assert recorded(replace(without, priority=12.5)) == "order value 12.50, free 2, limit 16"
    assert phrase(Reason.GPUS_BUSY.value) not in recorded(without)
