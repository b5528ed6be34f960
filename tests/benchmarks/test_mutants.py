"""The list of bugs to plant follows the code: each applies, and names tests that are there."""

from __future__ import annotations

import ast
import re

import pytest

from benchmarks.mutants import ROOT, Mutant, mutants, planted


def test_bugs_are_planted_in_every_part() -> None:
    found = mutants()
    assert len(found) >= 25
    assert len({(m.file, m.old, m.new) for m in found}) == len(found)
    areas = {"features", "models", "scheduler/core", "scheduler/policies", "scheduler/backends"}
    assert areas | {"scheduler/service", "pipeline"} <= {m.area for m in found}


@pytest.mark.parametrize("mutant", mutants(), ids=lambda one: one.what)
def test_a_bug_can_be_planted_and_its_tests_are_there(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    changed = ast.dump(ast.parse(planted(text, mutant)))
    assert changed != ast.dump(ast.parse(text))
    for test in mutant.tests:
        path, *names = test.split("::")
        assert (ROOT / path).exists(), test
        if names:
            told = (ROOT / path).read_text()
            assert all(re.search(rf"(def|class) {name}\b", told) for name in names), test
