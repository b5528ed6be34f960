from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from features.plain import first_line, plain, plain_all

OBEYED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text())
def test_no_terminal_obeys_what_is_left(text: str) -> None:
    left = plain(text)
    assert not {unicodedata.category(c) for c in left if c not in "\n\t"} & OBEYED
    assert plain(left) == left


@given(st.text(st.characters(categories=("L", "N", "P", "S"))))
def test_words_of_any_language_stay(text: str) -> None:
    assert plain(text) == text


def test_what_a_job_prints_changes_no_window() -> None:
    answer = {"stderr": ["\x1b]0;owned\x07 bye\n", "\u202etxt.exe", "\x9b2J"], "gpus": 1}
    assert plain_all(answer) == {
        "stderr": ["\\x1b]0;owned\\x07 bye\n", "\\u202etxt.exe", "\\x9b2J"],
        "gpus": 1,
    }


def test_an_error_is_told_in_one_line_whatever_it_says() -> None:
    assert first_line(ValueError("no such table\n[SQL: select ...]")) == "no such table"
    assert first_line(ValueError("\n  no such table")) == "no such table"
    for silent in (ValueError(), OSError(""), ValueError(" \n")):
        assert first_line(silent) == type(silent).__name__
    assert len(first_line(ValueError("x" * 10_000))) == 500
