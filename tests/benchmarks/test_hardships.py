"""What `benchmarks.hardships` and `benchmarks.moves` make of what came of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hardships import Impossible, carry_out

FINE = {"wrong": {}, "ready_while_nobody_decides": 0}


def exits(monkeypatch: pytest.MonkeyPatch, *found: dict[str, Any] | None) -> object:
    def one(come: dict[str, Any] | None) -> Any:
        def happen(folder: Path, _: argparse.Namespace) -> dict[str, Any]:
            assert folder.is_dir()
            if come is None:
                raise Impossible("not here")
            return come

        return happen

    monkeypatch.setattr(sys, "argv", ["them"])
    with pytest.raises(SystemExit) as ended:
        carry_out({str(i): one(come) for i, come in enumerate(found)}, argparse.ArgumentParser())
    return ended.value.code


def test_one_that_went_wrong_or_was_green_while_nobody_decided_fails_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not exits(monkeypatch, FINE, None, FINE)
    assert exits(monkeypatch, FINE, {**FINE, "wrong": {"lost": ["job0001"]}})
    assert exits(monkeypatch, {**FINE, "ready_while_nobody_decides": 1}, FINE)
