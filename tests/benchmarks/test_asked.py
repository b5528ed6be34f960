"""Commands in the shapes that people submit, and the share of them that is read rightly."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from benchmarks.asked import COMMANDS, Answer, found, judged
from features.amounts import Amount


def test_of_the_commands_that_people_submit_nearly_all_are_read_rightly_and_none_wrongly() -> None:
    assert len({one.command for one in COMMANDS}) == len(COMMANDS) >= 125
    counts = Counter(judged(found(one), one.amount) for one in COMMANDS)
    assert counts["right"] >= 0.95 * len(COMMANDS)
    assert not counts["wrong"]


@pytest.mark.parametrize(
    ("amount", "right", "answer"),
    [
        (Amount(3), Amount(3, patience=2), "right"),
        (Amount(), Amount(3), "unknown"),
        (Amount(3), Amount(3, runs=2), "unknown"),
        (Amount(3, runs=inf), Amount(3, runs=2), "wrong"),
        (Amount(3), Amount(), "wrong"),
        (Amount(None, 3), Amount(3), "wrong"),
    ],
)
def test_another_number_is_wrong_and_none_is_unknown(
    amount: Amount, right: Amount, answer: Answer
) -> None:
    assert judged(amount, right) == answer
