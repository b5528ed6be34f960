"""What the stages of `dvc.yaml` depend on is what they read: all of it, and nothing else; of code
what it says, not how it is commented.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp
import pytest
import yaml
from dvc_render.html import HTML
from dvc_render.vega import VegaRenderer

from pipeline.stages import code as stage_code
from pipeline.stages.code import READS, _between, not_read, tokens_of
from pipeline.stages.common import read_params
from scheduler.policies import OURS

ROOT = Path(__file__).resolve().parents[2]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline")
IGNORED = [name for name in not_read((ROOT / ".dvcignore").read_text()) if not name.endswith(".py")]
OTHERS = sorted(STAGES.keys() - {"code"})
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
    read = f"pipeline/stages/{stage}.py", *READS[stage]
    return [place for place in read if place.split("/")[0] in PACKAGES]


def test_each_stage_depends_on_its_code_and_that_on_all_that_any_reads() -> None:
    assert sorted(READS) == OTHERS
    hashed = STAGES["code"]["deps"]
    for stage in OTHERS:
        assert STAGES[stage]["deps"][0] == f"data/code/{stage}.txt"
        assert not [dep for dep in STAGES[stage]["deps"] if dep.split("/")[0] in PACKAGES]
        for place in READS[stage]:
            assert (ROOT / place).exists(), place
            assert [dep for dep in hashed if place == dep or place.startswith(f"{dep}/")], place


@pytest.mark.parametrize("stage", OTHERS)
def test_no_folder_is_hashed_that_the_stage_does_not_read(stage: str) -> None:
    for dep in code(stage):
        assert (ROOT / dep).exists(), dep
        held = {
            str(file.parent.relative_to(ROOT))
            for file in (ROOT / dep).rglob("*.py")
            if not any(str(file.relative_to(ROOT)).startswith(f"{name}/") for name in IGNORED)
        }
        assert held <= rooms(stage), dep


@pytest.mark.parametrize("stage", sorted(set(OTHERS) - {"export", "report"}))
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


CODE = '''"""About it."""

import os  # as ever


class One:
    """What it is."""

    limit = 3
    "why it is three"

    def two(self, x: int = 1) -> str:
        """Return two.

        In words.
        """
        # a comment
        text = """kept
        # no comment"""

        return f"{x:#x} # {text}"
'''
FREE = '''import os
class One:
        limit = 3
        def two(self,
                x: int = 1) -> str:  # another
                text = """kept
        # no comment"""
                return f"{x:#x} # {text}"'''


def test_code_says_the_same_with_other_comments_and_nothing_else_goes_unseen() -> None:
    assert tokens_of(CODE) == tokens_of(FREE)
    assert tokens_of(FREE)[:4] == ["import", "os", "\n", "class"]
    assert 'f"{x:#x} # {text}"' in tokens_of(CODE), "one token, on every version of Python"
    changes = (
        ("limit = 3", "limit = 4"), ("kept", "left"), ("# no comment", "# none"), ("#x", "#o"),
        ("import os", "import os as os"), ("two", "three"), ("{text}", "{text!r}"),
        ("limit = 3\n", "limit = 3\n        f(x)\n"), ("                return", "        return"),
    )  # fmt: skip
    for old, new in changes:
        assert old in FREE
        assert tokens_of(FREE.replace(old, new)) != tokens_of(FREE), (old, new)
    assert tokens_of("def (") == ["def ("], "no Python"


def test_a_formatted_text_of_several_lines_is_one_token_as_it_stands() -> None:
    """By its place, as from Python 3.12 on, where its parts are tokens of their own."""
    text = 'text = f"""{a}\nb\n{c} d\n{e}"""  # of four lines\n'
    assert tokens_of(text) == ["text", "=", 'f"""{a}\nb\n{c} d\n{e}"""', "\n"]
    lines = text.splitlines(keepends=True)
    assert _between(lines, (1, 7), (4, 6)) == 'f"""{a}\nb\n{c} d\n{e}"""'
    assert _between(lines, (1, 0), (1, 6)) == "text ="


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the code, in which every stage is up to date: nothing ran, and DVC was told so."""
    for name in (".dvcignore", "dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    for dep in STAGES["code"]["deps"]:
        if (ROOT / dep).is_dir():
            hidden = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / dep, tmp_path / dep, ignore=hidden)
    monkeypatch.chdir(tmp_path)
    dvc("init", "--no-scm", "--quiet")
    stage_code.run(read_params())
    for stage in OTHERS:
        made = STAGES[stage].get("outs", []) + STAGES[stage].get("metrics", [])
        for out in made + STAGES[stage].get("plots", []):
            path = Path(out if isinstance(out, str) else next(iter(out)))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    dvc("commit", "--force", "--quiet")
    return tmp_path


def dvc(*words: str) -> str:
    asked = [sys.executable, "-m", "dvc", *words]
    env = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def planned() -> set[str]:
    """Stages that would run."""
    return set(re.findall("Running stage '(.+)'", dvc("repro", "--dry")))


def test_a_comment_reruns_nothing_and_a_change_what_reads_it(written: Path) -> None:
    commented = (
        "features/rows.py", "features/schema.py", "models/bundle/additive.py",
        "models/training/duration.py", "models/interference.py", "pipeline/worlds/cluster_file.py",
        "pipeline/stages/train.py", "reproductions/baselines/qssf.py", "scheduler/core/curves.py",
        "scheduler/policies/pellucid/policy.py", "pipeline/report/page.py",
    )  # fmt: skip
    for name in commented:
        path = written / name
        path.write_text(f"# of another year\n{path.read_text()}\n\n# the end\n")
    stage_code.run(read_params())
    assert planned() == {"code"}, "it looks at what the code says, and runs for a second"
    policy = written / "scheduler/policies/pellucid/policy.py"
    policy.write_text(f"{policy.read_text()}\nADDED = 1\n")
    stage_code.run(read_params())
    assert planned() == {"code", "simulate", "learn", "report"}


def test_no_stage_is_always_run_again() -> None:
    assert not [name for name, stage in STAGES.items() if stage.get("always_changed")]
