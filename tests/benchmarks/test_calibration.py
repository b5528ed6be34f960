"""Budgets are in units of this machine's speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import calibration

BUDGETS = sorted(Path(calibration.__file__).parent.glob("*_budget.json"))


@pytest.mark.parametrize("file", BUDGETS, ids=lambda file: file.stem)
def test_every_limit_in_units_has_a_scale(file: Path) -> None:
    """That of sizes had some without: the benchmark ended in an error after it had measured."""
    for name in json.loads(file.read_text()).get("units_at_most", {}):
        assert calibration._scale(name) >= 1.0, name
