"""The table of figures: how each kind is held, and how it is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reproductions.figures.__main__ import families, sentence
from reproductions.figures.figure import (
    Figure,
    at_least,
    at_most,
    exact,
    ordered,
    within,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (within(0.05)("s", "f", 100.0, 105.0, 0.0), True),
        (within(0.05)("s", "f", -100.0, -106.0, 0.0), False),
        (exact("s", "f", 3469.69, 3469.69, 0.0), True),
        (exact("s", "f", 3469.69, 3469.690001, 0.0), False),
        (at_most("s", "f", 60.0, 60.0, 0.0), True),
        (at_most("s", "f", 60.0, float("nan"), 0.0), False),
        (at_least("s", "f", 0.97, 0.96, 0.0), False),
        (ordered("s", "f", ["a", "b"], {"a": 1.0, "b": 2.0}, 0.0), True),
        (ordered("s", "f", ["a", "b"], {"a": 1.0, "b": 1.0}, 0.0), False),
    ],
)
def test_a_figure_holds_or_not(figure: Figure, holds: bool) -> None:
    assert figure.holds is holds
    assert json.loads(json.dumps(figure.to_json()))["holds"] is holds
    assert ("holds" if holds else "DOES NOT") in sentence(figure)


def test_the_program_names_families_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    assert "gavel" in families()
    program = [sys.executable, "-m", "reproductions.figures"]
    for wrong, says in (
        (["--only", "nobody"], "invalid choice"),
        (["--data", str(tmp_path / "none")], "no such folder"),
    ):
        done = subprocess.run(
            [*program, *wrong], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert says in done.stderr
