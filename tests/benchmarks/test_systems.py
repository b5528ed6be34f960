"""The table of figures: how each kind is held, and how it is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.systems.__main__ import families, markdown, sentence
from benchmarks.systems.figure import (
    CpuClock,
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


def test_the_order_found_is_shown() -> None:
    figure = ordered("s", "f", ["a", "b", "c"], {"a": 2.0, "b": 1.0, "c": 3.0}, 0.0)
    assert (figure.reference, figure.measured) == ("a < b < c", "b < a < c")


def test_the_table_has_a_row_per_figure() -> None:
    rows = [("x", exact("s", "f", 1.0, 1.0, 0.04)), ("x", exact("s", "g", 0.0, 12345.678, 2.0))]
    lines = markdown(rows).splitlines()
    assert lines[2:] == [
        "| s | f | 1 | 1 | exact | yes | 0.0 |",
        "| s | g | 0 | 12345.68 | exact | **no** | 2.0 |",
    ]


def test_a_clock_counts_cpu_seconds_since_the_last_lap() -> None:
    clock = CpuClock()
    sum(range(200_000))
    assert 0 < clock.lap() < 5
    assert clock.lap() < 1


def test_the_program_names_families_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    assert "gavel" in families()
    program = [sys.executable, "-m", "benchmarks.systems"]
    for wrong, says in (
        (["--only", "nobody"], "invalid choice"),
        (["--data", str(tmp_path / "none")], "no such folder"),
    ):
        done = subprocess.run(
            [*program, *wrong], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert says in done.stderr
