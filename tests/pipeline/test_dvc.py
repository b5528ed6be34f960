"""What `dvc.yaml` hashes is what its stages read: all of it, and nothing else."""

from __future__ import annotations

import configparser
import re
from functools import cache
from pathlib import Path

import grimp
import pytest
import yaml
from dvc_render.html import HTML
from dvc_render.vega import VegaRenderer

from scheduler.policies import OURS

ROOT = Path(__file__).resolve().parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline")
IGNORED = [
    line.strip("/")
    for line in (ROOT / ".dvcignore").read_text().splitlines()
    if line.startswith("/") and line.endswith("/")
]
# Imported by every stage, and no input of what it writes: the console, and how datasets are read
# (what changes there changes data/trace, which is hashed).
NEUTRAL = {"pipeline", "pipeline/stages", "pipeline/traces"}


@cache
def rooms(stage: str) -> frozenset[str]:
    """Folders of the modules that a stage imports, however far down."""
    graph = grimp.build_graph(*PACKAGES)
    found = graph.find_upstream_modules(f"pipeline.stages.{stage}")
    if "scheduler.policies" in found:  # which loads each policy when it is asked for by its name
        for policy in OURS.values():
            found |= {policy.__module__} | graph.find_upstream_modules(policy.__module__)
    return frozenset(_room(module) for module in found)


def _room(module: str) -> str:
    path = ROOT / module.replace(".", "/")
    return str((path if path.is_dir() else path.parent).relative_to(ROOT))


def code(stage: str) -> list[str]:
    """What of our code a stage is said to depend on."""
    deps = STAGES[stage]["deps"]
    return [d for d in deps if d.split("/")[0] in PACKAGES and not d.endswith(".yaml")]


@pytest.mark.parametrize("stage", STAGES)
def test_no_folder_is_hashed_that_the_stage_does_not_read(stage: str) -> None:
    for dep in code(stage):
        assert (ROOT / dep).exists(), dep
        held = {
            str(file.parent.relative_to(ROOT))
            for file in (ROOT / dep).rglob("*.py")
            if not any(str(file.relative_to(ROOT)).startswith(f"{name}/") for name in IGNORED)
        }
        assert held <= rooms(stage), dep


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"export", "report"}))
def test_what_a_stage_imports_is_hashed(stage: str) -> None:
    """Of all but those that compute nothing: one copies a bundle, one writes a page."""
    deps = code(stage)
    seen = {
        room
        for room in rooms(stage)
        if any(
            room == dep or room.startswith(f"{dep}/") or dep.startswith(f"{room}/") for dep in deps
        )
    }
    assert rooms(stage) - seen <= NEUTRAL


def test_no_module_of_training_is_hashed_that_no_stage_reads() -> None:
    graph = grimp.build_graph(*PACKAGES)
    read = frozenset[str]().union(
        *(graph.find_upstream_modules(f"pipeline.stages.{stage}") for stage in STAGES)
    )
    lines = (ROOT / ".dvcignore").read_text().splitlines()
    names = {file.stem for file in (ROOT / "models/training").glob("[!_]*.py")}
    hashed = {name for name in names if f"/models/training/{name}.py" not in lines}
    assert {name for name in hashed if f"models.training.{name}" not in read} == set()


def test_ignored_rooms_exist_and_bytecode_is_none() -> None:
    assert [name for name in IGNORED if not (ROOT / name).is_dir()] == []
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().splitlines()


def test_what_the_parameters_name_is_hashed() -> None:
    for stage in STAGES.values():
        for dep in stage["deps"]:
            if dep.startswith("${"):
                named = PARAMS
                for key in dep[2:-1].split("."):
                    named = named[key]
                assert (ROOT / str(named)).is_file()
    assert "${train.edits}" in STAGES["train"]["deps"]
    assert "${cluster}" in STAGES["simulate"]["deps"]


def test_the_page_of_plots_needs_no_network() -> None:
    said = configparser.ConfigParser()
    said.read_string(re.sub(r"^ +", "", (ROOT / ".dvc" / "config").read_text(), flags=re.M))
    template = (ROOT / ".dvc" / said["plots"]["html_template"]).read_text()
    page = HTML(template).with_scripts(VegaRenderer.SCRIPTS).with_element("<p>drawn</p>").embed()
    assert "<p>drawn</p>" in page
    assert re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(?:https?:)?//""", page) == []
    for library in re.findall(r"npm/([\w-]+)@([\d.]+)", VegaRenderer.SCRIPTS):
        assert "/* {} {}\n".format(*library) in page


def test_no_stage_is_always_run_again() -> None:
    assert not [name for name, stage in STAGES.items() if stage.get("always_changed")]
