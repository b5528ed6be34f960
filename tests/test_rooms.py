"""The rooms: no import circle, and each is described in docs/architecture.md."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline", "reproductions")


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports that only the type checker follows count, and such within functions."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 300
    TopologicalSorter(imports).prepare()  # CycleError names the circle


def test_every_folder_has_its_paragraph() -> None:
    root = Path(__file__).parents[1]
    folders = {
        path.parent.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("__init__.py")
    }
    text = (root / "docs" / "architecture.md").read_text("utf-8")
    told = re.findall(r"\*\*`([^`]+)/`\*\*", text)
    assert sorted(told) == sorted(folders)
