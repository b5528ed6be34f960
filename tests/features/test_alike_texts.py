"""How alike two texts are: with rapidfuzz and without, the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz

from features.alike_texts import most_alike, most_alike_here, ratio

NAMES = st.text("ab-_1", max_size=12)


@pytest.mark.parametrize(("one", "other"), [("train-a", "train-b"), ("", ""), ("abcd", "bcda")])
def test_texts_are_as_alike_as_in_rapidfuzz(one: str, other: str) -> None:
    assert ratio(one, other) == pytest.approx(fuzz.ratio(one, other))


@given(NAMES, st.lists(NAMES, max_size=6), st.sampled_from((0.0, 50.0, 90.0, 100.0)))
def test_the_same_text_is_found_without_rapidfuzz(
    name: str, known: list[str], at_least: float
) -> None:
    assert most_alike_here(name, known, at_least) == most_alike(name, known, at_least)
