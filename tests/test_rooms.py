"""The rooms: no import circle, and each is described in docs/architecture.md."""

from __future__ import annotations

import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from scheduler.policies import OURS

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


WITHOUT = """
import sys
sys.modules["reproductions"] = None
from scheduler.core.settings import UnknownPolicy
from scheduler.policies import POLICIES, policy_named
print(*POLICIES)
try:
    policy_named("lucid")
except UnknownPolicy as error:
    print(error)
"""


def test_without_the_reproductions_a_policy_of_theirs_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    named, error = done.stdout.splitlines()
    assert named.split() == list(OURS)
    assert error.endswith("pip install 'pellucid[reproductions]'")


PARSERS = ("bars", "counter", "formats", "reader", "tail", "news", "process")
SERVICE = """
import sys
import scheduler.service.app, scheduler.service.decide.supervisor
import scheduler.backends.local.backend, scheduler.slurm.follow.follower
import scheduler.service.analyst.process
print(*sys.modules)
"""


def test_no_process_of_the_service_loads_what_reads_tenants_files() -> None:
    done = subprocess.run([sys.executable, "-c", SERVICE], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "profiler.progress.apart" in loaded
    parsers = {f"profiler.progress.{name}" for name in PARSERS}
    assert loaded & (parsers | {"profiler.ends", "features.asked"}) == set()
