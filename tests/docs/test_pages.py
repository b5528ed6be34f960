"""Links lead somewhere, and every command that a page shows exists with its options."""

from __future__ import annotations

import ast
import re
import runpy
from fnmatch import fnmatch
from pathlib import Path

import pytest

from benchmarks.pages import ROOT, broken_links, commands, mistake, pages

PAGES = [str(page.relative_to(ROOT)) for page in pages()]
SECURITY = (ROOT / "SECURITY.md").read_text()
ROWS = re.findall(r"^\| (\d+) \|(.*)\|$", SECURITY, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken_links(ROOT / page) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_exists_with_its_options(page: str) -> None:
    found = [(" ".join(words), mistake(words)) for words in commands(ROOT / page)]
    assert [one for one in found if one[1]] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_file_that_a_contributor_is_sent_to_exists(page: str) -> None:
    quoted = " ".join(re.findall(r"`([^`\n]+)`", (ROOT / page).read_text())).split()
    paths = {word for word in quoted if re.fullmatch(r"[a-z][\w-]*/[\w./-]*", word)}
    assert paths
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_pages_link_only_pages_of_the_site() -> None:
    """Sphinx, which CI runs late, refuses a link to a page that it does not build."""
    built = runpy.run_path(str(ROOT / "docs" / "conf.py"))["include_patterns"]
    outside = [
        (page, link)
        for page in PAGES
        if any(fnmatch(page, one) for one in built)
        for link in re.findall(r"\]\(([^)#:\s]+\.md)[)#]", (ROOT / page).read_text())
        if not any(
            fnmatch(str((ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT)), one)
            for one in built
        )
    ]
    assert outside == []


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(name for name in names if f"({name})" not in index) == []


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    text = tmp_path / "page.md"
    text.write_text("[a](nowhere.md) [b](#not-here)\n\n# Here\n[c](#here)\n")
    assert broken_links(text) == ["nowhere.md", "#not-here"]
    assert mistake(["pellucid", "whyy"]) == "no command whyy"
    assert mistake(["pellucid", "ps", "--nothing"]) == "ps has no --nothing"
    assert mistake(["pellucid", "submit", "--gpus", "1", "--", "x", "--nothing"]) is None
    assert mistake(["make", "nothing"]) == "no target nothing"
    assert mistake(["python", "-m", "benchmarks.nothing"]) == "no benchmarks.nothing"


# --- SECURITY.md names tests ---------------------------------------------------------------------


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", SECURITY)
    assert len(named) > 25
    missing = [f"{path}::{test}" for path, test in named if test and test not in names_in(path)]
    assert missing == []
    assert [path for path, _ in named if not (ROOT / path).is_file()] == []


def test_every_row_names_a_test() -> None:
    assert len(ROWS) >= 16
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    without = [number for number, row in ROWS if "::test_" not in row and "| open |" not in row]
    assert without == []
