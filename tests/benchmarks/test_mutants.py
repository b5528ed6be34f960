"""The list of bugs to plant follows the code: each applies, and names tests that are there."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.mutants import ROOT, Mutant, mutants, planted, survivors, try_one
from benchmarks.mutations import covering, mutations, near


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


@pytest.mark.parametrize("mutant", [m for m in mutants() if m.chaos], ids=lambda one: one.what)
def test_no_bug_is_found_by_the_number_of_a_moment(mutant: Mutant) -> None:
    """With any change of the code, the 617th moment of a run is another one."""
    assert not {"--at", "--enumerate"} & set(shlex.split(mutant.chaos))


@pytest.mark.parametrize(("file", "row", "change"), survivors())
def test_a_bug_that_may_survive_can_still_be_drawn(file: str, row: str, change: str) -> None:
    text = (ROOT / file).read_text()
    lines = {n for n, one in enumerate(text.splitlines(), 1) if one.strip() == row}
    assert change in {f"{before} -> {after}" for _, before, after, _ in mutations(text, lines)}


CODE = '''
LIMIT = 3

def wait(left: int | None = 7) -> str:
    """Said once: 5 < 6."""
    if left is None or left > LIMIT and not LIMIT:
        note(left)
        return f"{left + 1}"
    return "é" if left == 2 else "b"
'''


def test_what_a_slip_could_change_is_changed_where_it_stands() -> None:
    every = mutations(CODE, set(range(1, 20)))
    assert {(line, after) for line, _, after, _ in every} == {
        (6, "(left is None and (left > LIMIT and (not LIMIT)))"),
        (6, "(left is not None)"),
        (6, "(left > LIMIT or not LIMIT)"),
        (6, "(left >= LIMIT)"),
        (6, "(LIMIT)"),
        (7, "pass"),
        (8, "return None"),
        (9, "return None"),
        (9, "('b' if left == 2 else 'é')"),
        (9, "(left != 2)"),
        (9, "3"),
    }
    for _, before, after, text in every:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(CODE))
        assert len(text) - len(CODE) == len(after) - len(before)
    assert {line for line, *_ in mutations(CODE, {7})} == {7}


class Covered:
    """Coverage of one module, as `coverage.CoverageData` answers."""

    def measured_files(self) -> set[str]:
        return {"/copy/features/job.py", "/copy/features/jobs.py"}

    def contexts_by_lineno(self, name: str) -> dict[int, list[str]]:
        assert name.endswith("/job.py")
        large, small = "tests/a/test_all.py::test_it[x y]|run", "tests/a/test_some.py::test_it|run"
        own, far = (
            "tests/features/test_job.py::test_it|setup",
            "tests/browser/test_job.py::test|run",
        )
        return {1: [large], 2: [large], 3: [large, small, own, far, ""], 20: [""]}


@pytest.mark.parametrize(("returned", "fate"), [("None", "found"), ("1.0", "survived")])
def test_a_drawn_bug_that_no_test_finds_is_shown_to_the_type_checker(
    returned: str, fate: str, tmp_path: Path
) -> None:
    (tmp_path / "mypy.ini").write_text("[mypy]\nfiles = module.py\n")
    (tmp_path / "module.py").write_text("def half(of: float) -> float:\n    return of / 2\n")
    drawn = Mutant("module.py", "of / 2", returned, "line 2", cpu_s=60)
    told = try_one(drawn, tmp_path)
    assert (told["fate"], told["by"]) == (fate, "mypy" if fate == "found" else "")


def test_its_tests_are_those_that_run_its_line() -> None:
    own, small, large = (
        f"tests/{one}.py::test_it" for one in ("features/test_job", "a/test_some", "a/test_all")
    )
    for line in (3, 7):  # the second in a statement that begins at 3
        assert covering(Covered(), "features/job.py", line) == (own, small, large)  # type: ignore[arg-type]
    assert covering(Covered(), "features/job.py", 20) == ()  # type: ignore[arg-type]


def test_where_nobody_measured_it_they_are_those_of_its_name_and_those_that_import_it() -> None:
    texts = {
        "tests/a/test_all.py": "from features.job import Job  # and many more",
        "tests/a/test_some.py": "from features import files, job",
        "tests/a/test_others.py": "from features.jobs import Jobs",
        "tests/browser/test_walk.py": "import features.job",
        "tests/features/test_job.py": "from features import files",
        "tests/a/test_door.py": "from scheduler import door",
        "scheduler/door.py": "from features.hinges import Hinge",
        "features/job.py": "def older():\n    return 1\nclass Job:\n    gpus = 1",
    }
    own, small, large = (
        f"tests/{one}.py" for one in ("features/test_job", "a/test_some", "a/test_all")
    )
    assert near("features/job.py", 2, texts) == (own, small, large)
    assert near("features/job.py", 4, texts) == (own, large, small), "by what the line is in"
    assert near("features/hinges.py", 1, texts) == ("tests/a/test_door.py",), "by who imports it"
    texts["tests/test_hinges.py"] = "# of another kind"
    both = "tests/test_hinges.py", "tests/a/test_door.py"
    assert near("features/hinges.py", 1, texts) == both, "a name may be another's"
    texts["tests/test_growth.py"] = texts["tests/a/test_some.py"]
    assert near("features/job.py", 2, texts) == (own, small, large), "it is of no line"
    texts["features/job.py"] += "\n    sign_out_address = gpus"
    texts["tests/a/test_away.py"] = "asked.sign_out_address"
    away = "tests/a/test_away.py"
    assert near("features/job.py", 5, texts) == (own, away, large, small), "by a rare word"
