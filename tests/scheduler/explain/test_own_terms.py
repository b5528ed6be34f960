"""Which fact of a job stands behind a term that its estimator adds to a model's score."""

from __future__ import annotations

import pytest

from scheduler.core.decisions import Action, Decision, Fact, Reason, Score, facts_in_words
from scheduler.core.estimates import Description
from scheduler.explain.belief import (
    COMMAND,
    EXPECTED,
    LIMIT,
    OUTLIVED,
    OWN,
    REPEATS,
    UNRECORDED,
    own_terms,
)
from scheduler.explain.terms import _outside


def test_a_term_is_named_by_its_fact_and_not_by_its_words() -> None:
    score = Score(value=2.0, intercept=1.0, terms=(1.0,), bundle="b", inputs=("4",))
    for fact in Fact:
        score = score.with_term(0.5, fact, "asks for nothing in these words")
    found = [LIMIT, OUTLIVED, REPEATS, EXPECTED, COMMAND, OWN]
    assert own_terms(score, 1) == found
    assert own_terms(score, 6) == found[-1:]
    assert own_terms(score, 7) == []
    assert score.value == pytest.approx(score.intercept + sum(score.terms))
    assert own_terms(score.without_last_term(), 1) == found[:-1]


def test_a_decision_keeps_the_facts_of_its_score() -> None:
    score = Score(value=1.5, intercept=1.0, terms=(), bundle="b", inputs=("4",))
    score = score.with_term(0.5, Fact.PROGRESS, "90 epochs of 480 s")
    decision = Decision(0, 1.0, Action.ENQUEUE, Reason.SUBMITTED, "a", "vc", score=score)
    assert Decision.from_body(decision.body()) == decision


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (("4", "ran for 200 s and did not end"), [OUTLIVED]),
        (("4", "asks for 90 epochs; its last run took 8.0 min an epoch"), [COMMAND]),
        (("4", "stopped after 3600 s", "last run of this command: 5 s to 9 s"), [LIMIT, REPEATS]),
        (("4", "expects a test run: right in 7 of 9", "90 epochs of 480 s"), [EXPECTED, OWN]),
        (("V100", "40 % after 9 s; it may stop early"), [OWN]),
        (("1e+03", "3 s left by its own estimate"), [OWN]),
        ((), [UNRECORDED]),  # as in runs recorded before later predictions kept theirs
    ],
)
def test_one_recorded_before_is_named_by_its_words(
    inputs: tuple[str, ...], found: list[object]
) -> None:
    """Nobody reported progress of a job of which nothing is recorded."""
    terms = (1.5, *[0.5] * len(found))
    body = {"value": 3.0, "intercept": 1.0, "terms": terms, "bundle": "b", "inputs": inputs}
    score = Score.from_body(body)
    assert own_terms(score, 1) == found
    assert own_terms(score, 1 + len(found)) == []


def test_a_feature_of_a_model_is_no_fact() -> None:
    assert facts_in_words(("V100", "7200", "", "asks for 3 epochs; ...", "vc 4 of 9")) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", ""),
        ("8", ""),
        ("8.00001", ""),
        ("0.5", "the model learned from 1 GPUs at least, and takes it as that"),
        ("9", "the model learned from 8 GPUs at most, and takes it as that"),
        ("many", ""),
        ("", ""),
    ],
)
def test_a_value_beyond_what_a_model_learned_from_is_said(value: str, said: str) -> None:
    described: Description = {"units": {"gpus": "GPUs"}, "metadata": {"seen": {"gpus": [1.0, 8.0]}}}
    assert _outside("gpus", {"gpus": value}, described) == said
    assert _outside("nodes", {"nodes": value}, described) == "", "no range is known"
    assert _outside("gpus", {"gpus": value}, {}) == ""
    assert _outside("gpus", {}, described) == ""
