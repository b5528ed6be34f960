"""The page of every system."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pipeline.cli as cli
from benchmarks.systems.figure import exact, told
from pipeline.report.systems import World, build, read_figures, standing
from pipeline.report.systems_known import KNOWN
from scheduler.peers.registry import ALLOCATING
from scheduler.policies import POLICIES


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    rows = [
        exact("tiresias dlas-gpu", "average JCT on x10, s", 2130.0, 2130.0, 0.1),
        exact("optimus paa", "requests, <ResNet>", 157, 158, 0.1),
        told("horus-like", "average JCT, s", 13568.7, 0.1, note="ours"),
    ]
    path = tmp_path / "figures.json"
    path.write_text(json.dumps([row.to_json() for row in rows]))
    return path


def compared(folder: Path, **jct: float) -> Path:
    rows: list[dict[str, Any]] = [
        {"policy": name, "avg_jct_s_mean": value, "makespan_s_mean": 5000.0}
        for name, value in jct.items()
    ]
    folder.mkdir()
    (folder / "compare.json").write_text(json.dumps({"track": "a world", "policies": rows}))
    return folder


def run(*arguments: str) -> tuple[int, str]:
    runner = CliRunner()
    if not cli.app.registered_commands:
        cli._load()
    result = runner.invoke(cli.app, ["systems", *arguments])
    return result.exit_code, result.output + str(result.exception or "")


def test_the_page_has_a_section_per_system_and_needs_no_network(
    figures: Path, tmp_path: Path
) -> None:
    html = build(figures, [compared(tmp_path / "cmp", tiresias=100.0, optimus=150.0, drf=120.0)])
    for system in KNOWN:
        assert f'id="{system.anchor}"' in html
        assert system.about.split("'")[0][:40] in html
    assert not re.search(r"(src|href)=\"(?!#)|https?://", html)
    assert "2,130" in html
    assert "requests, &lt;ResNet&gt;" in html
    assert "2 figures held against a reference: 1 agree, 1 do not" in html
    assert "Wins: average JCT, 20% from drf" in html
    assert "Loses: average JCT, number 3 of 3, 50% from tiresias" in html


def test_every_policy_belongs_to_a_system_or_is_plain() -> None:
    plain = {"fifo", "fifo-skip", "sjf", "easy", "srtf"}
    for name in [*POLICIES, *ALLOCATING]:
        mine = [s for s in KNOWN if name in s.policies or name.startswith(s.prefixes)]
        assert len(mine) == 1 or name in plain, name


def test_without_a_comparison_the_page_says_so(figures: Path) -> None:
    html = build(figures, [])
    assert "No comparison was given" in html
    assert "Where it wins" not in html


def test_level_figures_are_no_win_over_anybody() -> None:
    world = World("w", {"a": {"avg_jct_s": 100.0}, "b": {"avg_jct_s": 101.0}})
    assert standing(world, "a").wins == ["average JCT, level with b"]
    assert standing(world, "b").wins == ["average JCT, as good as a"]
    assert standing(world, "b").loses == []


def test_higher_utilisation_is_better() -> None:
    world = World("w", {"a": {"gpu_utilisation": 0.9}, "b": {"gpu_utilisation": 0.3}})
    assert standing(world, "a").wins == ["GPU utilisation, a factor of 3.0 from b"]
    assert standing(world, "b").loses == ["GPU utilisation, number 2 of 2, a factor of 3.0 from a"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "is missing; make it: python -m benchmarks.systems --json"),
        ("[", "is not JSON"),
        ("{}", "holds no list of figures"),
        ('[{"system": "x"}]', "figure 1 does not follow the format"),
    ],
)
def test_wrong_figures_are_one_line(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "figures.json"
    if text is not None:
        path.write_text(text)
    code, output = run("--figures", str(path))
    assert code != 0
    assert says in output


def test_a_wrong_comparison_is_named(figures: Path, tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text('{"policies": [1]}')
    code, output = run("--figures", str(figures), "--compare", str(tmp_path))
    assert code != 0
    assert "is no comparison" in output


def test_the_command_writes_the_page(figures: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "systems.html"
    code, output = run("--figures", str(figures), "--out", str(out))
    assert code == 0, output
    assert out.read_text().startswith("<!doctype html>")
    assert read_figures(figures)["horus-like"][0].holds is None
