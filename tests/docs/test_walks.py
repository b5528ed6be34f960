"""The walk-throughs: every command as written, and what is said to be printed is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from benchmarks.pages import ROOT, blocks
from benchmarks.sites import SITES, BatchSystem, tasks, written
from benchmarks.sites import settings as printed
from tests.docs.walk import DOCS, shell, walk, walked

EXAMPLES = DOCS / "examples"


def squeezed(text: str) -> str:
    """Without the breaks of a terminal."""
    return " ".join(text.split())


def said(page: str) -> list[list[str]]:
    """The lines that a page shows as printed, by block."""
    return [block.splitlines() for block in blocks(DOCS / page, "text")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("sacct.txt", "site.txt"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path


def test_the_published_dump_is_the_made_up_sites() -> None:
    site = SITES["mixed"]
    todo = tasks(site, 0)
    BatchSystem(site).play(todo)
    assert (EXAMPLES / "sacct.txt").read_text() == written(site, todo)
    assert (EXAMPLES / "site.txt").read_text() == printed(site)


@walked
def test_from_a_dump_to_a_decision(folder: Path) -> None:
    page = "sacct-to-a-decision.md"
    for told, shown in zip(walk(page, folder), said(page), strict=True):
        assert [line for line in shown if line not in squeezed(told)] == []
    text = " ".join((folder / "savings.html").read_text().split("<body", 1)[1].split())
    assert "open after these replays: between 5 min 50 s less and 58 s more" in text
    assert "8 of 12 users would have waited less" in text
    assert "Borrowing: 28 &plusmn; 2 job-hours of waiting less" in text
    assert re.search(r"user07</th>.{0,400}?>6 min 30 s<small>more, worse", text)
    assert re.search(r"small</th>.{0,300}?>9.04 s<", text)


@walked
def test_for_researchers(folder: Path) -> None:
    page = "for-researchers.md"
    _, systems, mine = said(page)
    for told, shown in zip(walk(page, folder), (systems, mine), strict=True):
        assert [line for line in shown if line not in squeezed(told)] == []
    assert (folder / "systems.html").stat().st_size < 2 << 20


def test_a_systems_figure_is_reproduced(shared_data: Path) -> None:
    page = "for-researchers.md"
    (command,) = re.findall(r"^```sh checkout\n(.*?)^```$", (DOCS / page).read_text(), re.S | re.M)
    told = shell(command, ROOT)
    assert [line for line in said(page)[0] if line not in squeezed(told)] == []
