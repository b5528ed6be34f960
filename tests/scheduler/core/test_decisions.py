"""Every reason can be put into words, with the numbers of its decision."""

from __future__ import annotations

import re

import pytest

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.plural import count
from scheduler.explain.reasons import next_step, sentence


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_has_a_name_in_camel_case_and_a_sentence_of_one_gpu(reason: Reason) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", reason.value)
    d = Decision(0, 0.0, Action.WAIT, reason, "a", "vc", partner="p", need=1, free=1, limit=8,
                 position=3, blocker="b")  # fmt: skip
    assert sentence(d)
    for wrong in ("1 GPU of its own were", "1 GPU are", "1 GPU were", "1 GPUs", "1 of 8 are"):
        assert wrong not in sentence(d)
    for gap in ("None", "{", "pending", "Pending"):
        assert gap not in sentence(d) + next_step(reason) + reason.value


@pytest.mark.parametrize(
    ("noun", "one", "three"),
    [
        ("job", "1 job", "3 jobs"),
        ("running job of yours", "1 running job of yours", "3 running jobs of yours"),
        ("job that GPUs are kept for", "1 job that GPUs are kept for",
         "3 jobs that GPUs are kept for"),
        ("GPU of type a100", "1 GPU of type a100", "3 GPUs of type a100"),
    ],
)  # fmt: skip
def test_what_is_counted_is_in_the_plural_and_nothing_else(noun: str, one: str, three: str) -> None:
    assert [count(1, noun), count(3, noun)] == [one, three]
    assert count(1000, "job") == "1,000 jobs"
