"""Modules of a user's own that cannot be loaded: one line that says what and where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from features.plugins import load, load_class


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Mine(", "'(' was never closed (broken.py, line 1)"),
        ("import no_such", "No module named 'no_such' (broken.py, line 1)"),
        ("x = 1\ny = z", "NameError: name 'z' is not defined (broken.py, line 2)"),
        ("raise RuntimeError('one\\ntwo')", "RuntimeError: one two (broken.py, line 1)"),
        ("Yours = 1", "module 'broken' has no attribute 'Mine'"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(ValueError, match="cannot be loaded") as raised:
        load("broken:Mine")
    assert str(raised.value) == f"'broken:Mine' cannot be loaded: {said}"


def test_a_class_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="is no subclass of pathlib"):
        load_class("json:JSONDecoder", Path)
