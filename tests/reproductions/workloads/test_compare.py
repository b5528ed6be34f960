"""`pellucid compare --workload`: any policy on any workload that carries what it needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipeline import systems
from pipeline.commands.compare import compare
from pipeline.errors import UserError
from reproductions.allocation.core import UnmetNeeds
from reproductions.workloads import open_workload
from reproductions.workloads.scenario import AllocationScenario

app = typer.Typer()
app.command()(compare)


@pytest.fixture
def small(shared_data: Path, tmp_path: Path) -> Path:
    """The first five jobs of a workload, beside the traces."""
    (tmp_path / "traces").symlink_to(shared_data / "pollux" / "traces")
    (tmp_path / "workloads").mkdir()
    rows = (shared_data / "pollux" / "workloads" / "workload-6.csv").read_text().splitlines()
    path = tmp_path / "workloads" / "small.csv"
    path.write_text("\n".join(rows[:6]) + "\n")
    return path


def test_policies_meet_the_same_jobs_with_their_settings_and_are_recorded(
    small: Path, tmp_path: Path
) -> None:
    def compared(*options: str) -> dict[str, Any]:
        arguments = ["--workload", f"pollux:{small}", "--policies", "drf,optimus", "--json"]
        done = CliRunner().invoke(app, [*arguments, *options])
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    out = tmp_path / "runs"
    found, others = compared("--out", str(out)), compared("--set", "objective=seconds")
    assert found["track"] == "pollux small"
    rows = found["policies"]
    assert [(row["policy"], row["jobs_mean"]) for row in rows] == [("drf", 5), ("optimus", 5)]
    same, other = (a["avg_jct_s_mean"] == b["avg_jct_s_mean"]
                   for a, b in zip(rows, others["policies"], strict=True))  # fmt: skip
    assert same, "drf has no such setting"
    assert not other
    summary = json.loads((out / "drf" / "summary.json").read_text())
    assert summary["cluster"] == {"T4": 16}
    assert summary["gpus_per_node"] == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "compare needs --trace PATH, or --workload KIND:PATH"),
        (["--workload", "nothing"], "use one of gavel:PATH"),
        (["--workload", "pollux:nowhere.csv"], "no such file or folder"),
        (
            ["--workload", "pollux:{}", "--policies", "best"],
            "no policy 'best'; there are: drf",
        ),
        (["--workload", "pollux:{}", "--policies", "drf,drf"], "named twice"),
        (
            ["--workload", "pollux:{}", "--policies", "drf", "--set", "fairness=0"],
            "--set fairness=0: none of drf has such a setting",
        ),
        (
            ["--workload", "pollux:{}", "--policies", "pollux", "--set", "individuals=1"],
            "--set: policy pollux: individuals is 1",
        ),
        (["--workload", "pollux:{}", "--track", "honest"], "--workload brings its own world"),
        (
            ["--workload", "pollux:{}", "--policies", "gavel-las"],
            "gavel-las needs throughputs by GPU type",
        ),
    ],
)
def test_what_cannot_be_run_is_said(small: Path, arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, [argument.format(small) for argument in arguments])
    assert isinstance(done.exception, UserError)
    assert says in str(done.exception)


def test_pollux_cannot_run_without_gradients(shared_data: Path) -> None:
    named = f"tiresias:{shared_data / 'tiresias'}"
    done = CliRunner().invoke(app, ["--workload", named, "--policies", "pollux"])
    assert "gradient statistics; this workload has none" in str(done.exception)
    assert "pollux" not in AllocationScenario(open_workload(named)).runnable()


def test_all_that_can_run_is_the_default(small: Path) -> None:
    names = AllocationScenario(open_workload(f"pollux:{small}")).runnable()
    assert set(names) >= {
        *("drf", "tetris", "shortest-remaining", "tiresias-las"),
        *("optimus", "optimus-oracle", "pollux"),
    }
    assert not any(name.startswith("gavel") for name in names)


def test_policies_that_choose_no_gpu_type_need_a_cluster_of_one(shared_data: Path) -> None:
    workload = open_workload(f"gavel:{shared_data / 'gavel/minimize_makespan.trace'}")
    scenario = AllocationScenario(workload)
    with pytest.raises(UnmetNeeds, match="one type; this workload has k80, p100, v100"):
        scenario.check("tiresias-las")
    names = scenario.runnable()
    assert names
    assert all(name.startswith("gavel-") for name in names)


def test_without_the_package_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, systems.ENTRY, None)
    with pytest.raises(UserError, match=r"pip install 'pellucid\[reproductions\]'"):
        systems.systems()
    assert systems.allocating() == {}
