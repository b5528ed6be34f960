"""Every reason can be put into words, with the numbers of its decision."""

from __future__ import annotations

import re

import pytest

from scheduler.core.decisions import Action, Decision, Reason

A_DECISION = Decision(
    7,
    1.0,
    Action.WAIT,
    Reason.GPUS_BUSY,
    "mine",
    "vc",
    partner="theirs",
    blocker="other",
    need=4,
    free=3,
    limit=16,
    position=5,
)


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_has_a_sentence_without_gaps(reason: Reason) -> None:
    sentence = reason.summary(A_DECISION)
    assert sentence
    assert "None" not in sentence
    assert "{" not in sentence
    assert "pending" not in sentence.lower()


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_is_written_in_camel_case_and_is_not_pending(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason.value)
    assert reason.value != "Pending"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Reason.GPUS_BUSY, "needs 4 GPUs, 3 of 16 are free"),
        (Reason.BEHIND_HIGHER_PRIORITY, "number 5 in line, behind job other"),
        (Reason.PARTNER_FOUND, "shares the GPUs of job theirs"),
        (Reason.INVALID_REQUEST, "asks for 4 GPUs; this virtual cluster has 16"),
    ],
)
def test_sentences(reason: Reason, sentence: str) -> None:
    assert reason.summary(A_DECISION) == sentence


def test_precedence_is_the_job_itself_then_capacity_then_order() -> None:
    order = list(Reason)
    precedence = [
        Reason.INVALID_REQUEST,
        Reason.NO_MATCHING_GPU_TYPE,
        Reason.AWAITING_PROFILE,
        Reason.GPUS_BUSY,
        Reason.GPUS_FRAGMENTED,
        Reason.MEMORY_GUARD,
        Reason.INTERFERENCE_GUARD,
        Reason.BEHIND_HIGHER_PRIORITY,
        Reason.NOT_YET_EVALUATED,
    ]
    assert [order.index(reason) for reason in precedence] == sorted(map(order.index, precedence))


@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.INVALID_REQUEST])
def test_the_next_step_has_no_gaps(reason: Reason) -> None:
    assert "{" not in reason.next_step()


def test_the_next_step_of_a_refused_job_names_the_limit() -> None:
    assert "{" not in Reason.INVALID_REQUEST.next_step()


def test_a_decision_speaks_for_itself() -> None:
    assert A_DECISION.sentence() == "needs 4 GPUs, 3 of 16 are free"
