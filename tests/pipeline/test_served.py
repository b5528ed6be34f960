"""What models did in a service, week by week: printed, and logged with their versions."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest
import yaml
from typer.testing import CliRunner

from features.codec import encode
from models.training.tracking import Registry, TrainedOn, log_training
from pipeline.app import app
from pipeline.commands.served import figures
from scheduler.service.log.served import FOLDER, Served, Week
from tests.scheduler.service.pages.bundle import small_bundle

ROOT = Path(__file__).resolve().parents[2]
OTHER = "f" * 64


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with a week that is over, and one that runs."""
    mine = Served(
        digest=small_bundle().digest,
        decided=120,
        ended=100,
        users=8,
        error=0.5,
        ratio=1.25,
        twice=0.75,
        long=9,
        warned=7,
        found=3,
    )
    weeks = (
        Week(number=2946, whole=True, bundles=(mine, Served(digest=OTHER, decided=3))),
        Week(number=2947, bundles=(mine,)),
    )
    folder = tmp_path / FOLDER
    folder.mkdir()
    for week in weeks:
        (folder / f"{week.number}.json").write_text(json.dumps(encode(week)))
    return tmp_path


def test_weeks_are_printed_the_latest_first(state: Path) -> None:
    done = CliRunner().invoke(app, ["served", "--state-dir", str(state)])
    assert done.exit_code == 0, done.output
    head, now, before, other, note = (" ".join(line.split()) for line in done.output.splitlines())
    short = small_bundle().digest[:12]
    assert (
        head == "WEEK OF BUNDLE DECIDED ENDED ERROR TRUE/PREDICTED HALF TO TWICE OVER 6 H ANNOUNCED"
    )
    assert now == f"2026-06-25 * {short} 120 100 0.500 1.25 75% 3 of 9, 4 wrongly"
    assert before == f"2026-06-18 {short} 120 100 0.500 1.25 75% 3 of 9, 4 wrongly"
    assert other == f"2026-06-18 {OTHER[:12]} 3 0 - - - -"
    assert note == "* until now"
    asked = CliRunner().invoke(app, ["served", "--json", "--state-dir", str(state)])
    both = json.loads(asked.output)["weeks"]
    assert [(week["number"], len(week["bundles"])) for week in both] == [(2947, 1), (2946, 2)]
    assert both[1]["bundles"][0]["decided"] == 120
    empty = CliRunner().invoke(app, ["served", "--state-dir", str(state / "none")])
    assert "No week was counted yet" in empty.output


def test_a_week_that_is_over_and_not_settled_does_not_go_on_until_now(state: Path) -> None:
    later = Week(number=2948, bundles=(Served(digest=OTHER, decided=1),))
    over = Week(number=2947, over=True, bundles=(Served(digest=OTHER, decided=2),))
    for week in (later, over):
        (state / FOLDER / f"{week.number}.json").write_text(json.dumps(encode(week)))
    done = CliRunner().invoke(app, ["served", "--state-dir", str(state)])
    _, *rows, now, settling = (" ".join(line.split()) for line in done.output.splitlines())
    days = [row.partition(f" {OTHER[:12]}")[0] for row in rows if OTHER[:12] in row]
    assert days == ["2026-07-02 *", "2026-06-25 **", "2026-06-18"]
    assert [now, settling] == ["* until now", "** not settled yet"]


def test_where_no_chance_was_recorded_no_job_over_six_hours_is_counted() -> None:
    of_a_slurm = Served(digest=OTHER, decided=9, ended=9, error=0.5, ratio=1.0, twice=0.5)
    assert not [name for name in figures(of_a_slurm) if "6 h" in name]


def test_weeks_that_are_over_are_logged_with_the_version_that_decided(
    state: Path, tmp_path: Path
) -> None:
    registry = Registry(
        tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}", artifact_root=tmp_path / "mlartifacts"
    )
    given = yaml.safe_load((ROOT / "params.yaml").read_text())
    given["mlflow"] |= {
        "uri": registry.tracking_uri,
        "artifacts": str(registry.artifact_root),
    }
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump(given))
    folder = small_bundle().save(tmp_path / "bundle")
    version = log_training(
        folder, params={}, metrics={}, data=TrainedOn(digest="x"), registry=registry
    )
    for _ in range(2):
        asked = ["served", "--log", "--state-dir", str(state), "--params", str(params)]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"2026-06-18 {version.digest[:12]} version 1: 120 jobs decided",
        f"2026-06-18 {OTHER[:12]} is no registered version: 3 jobs decided",
    ]
    client = mlflow.MlflowClient(registry.tracking_uri, registry.tracking_uri)
    names = {
        "jobs decided": 120.0,
        "jobs ended": 100.0,
        "error": 0.5,
        "median of true over predicted": 1.25,
        "share within half to twice": 0.75,
        "over 6 h": 9.0,
        "over 6 h announced": 3.0,
        "over 6 h announced wrongly": 4.0,
    }
    for name, value in names.items():
        [kept] = client.get_metric_history(version.run_id, f"serving/{name}")
        assert (kept.step, kept.value) == (2946, value)
