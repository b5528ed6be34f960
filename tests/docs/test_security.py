"""Every test that SECURITY.md names is there, and every row of its table names one."""

from __future__ import annotations

import ast
import re

from benchmarks.pages import ROOT

TEXT = (ROOT / "SECURITY.md").read_text()
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", TEXT, re.MULTILINE)


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)
    assert len(named) > 25
    missing = [f"{path}::{test}" for path, test in named if test and test not in names_in(path)]
    assert missing == []
    assert [path for path, _ in named if not (ROOT / path).is_file()] == []


def test_every_row_names_a_test() -> None:
    assert len(ROWS) >= 16
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    without = [number for number, row in ROWS if "::test_" not in row and "| open |" not in row]
    assert without == []
