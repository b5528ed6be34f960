"""Which fact of a job stands behind a term that its estimator adds to a model's score."""

from __future__ import annotations

import pytest

from scheduler.core.decisions import Score
from scheduler.explain.belief import COMMAND, OUTLIVED, OWN, UNRECORDED, own_terms


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (("4", "ran for 200 s and did not end"), OUTLIVED),
        (("4", "asks for 90 epochs"), COMMAND),
        (("4", "90 epochs of 480 s"), OWN),
        ((), UNRECORDED),  # as in runs recorded before later predictions kept theirs
    ],
)
def test_a_term_is_named_by_what_was_recorded(inputs: tuple[str, ...], found: object) -> None:
    """Nobody reported progress of a job of which nothing is recorded."""
    score = Score(value=3.0, intercept=1.0, terms=(1.5, 0.5), bundle="b", inputs=inputs)
    assert own_terms(score, 1) == [found]
    assert own_terms(score, 2) == []
