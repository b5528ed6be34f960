"""The whole pipeline, stage by stage, on a small synthetic trace in an empty folder."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from models.bundle import AdditiveModel, Bundle
from models.training.tracking import champion, versions
from pipeline.console import _left
from pipeline.errors import UserError
from pipeline.explain import RunFolder, counterfactuals, read_story
from pipeline.stages import common, evaluate, export, features, ingest, learn, simulate, train
from pipeline.stages.__main__ import STAGES, main
from scheduler.explain.render import in_the_way

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every stage up to `simulate` has run once."""
    path = tmp_path_factory.mktemp("project")
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["ingest"]["scale"] = "small"
    params["cluster"] = str(ROOT / "pipeline/worlds/clusters/small.yaml")
    params["simulate"] |= {"policies": ["fifo", "qssf", "pellucid"], "draws": 2}
    params["train"] |= {
        "test_days": 2,
        "preset": "fast",
        "edits": str(path / "edits.yaml"),
    }
    (path / "params.yaml").write_text(yaml.safe_dump(params))
    edit = {"feature": "user_submitted_1h", "drop": True, "why": "bursts say nothing"}
    edits = {"version": 1, "model": "duration", "edits": [edit]}
    (path / "edits.yaml").write_text(yaml.safe_dump(edits))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        wanted = common.read_params()
        for stage in (ingest, features, train, evaluate, export, simulate, learn):
            assert stage.run(wanted)
    return path


def test_the_exported_bundle_is_the_champion(folder: Path) -> None:
    exported = Bundle.load(folder / "data/bundle")
    assert exported.digest == Bundle.load(folder / "data/candidate").digest
    assert exported.parts[:3] == ("duration", "packing", "pair_speed")
    assert exported.metadata["packing"]["origin"] == "simulated"
    assert "user_submitted_1h" not in exported.duration.term_names
    (edit,) = exported.metadata["duration"]["edits"]["edits"]
    assert edit["why"] == "bursts say nothing"
    files = {one.name.partition("-")[0] for one in (folder / "data/bundle").iterdir()}
    assert files == {"bundle.json", "arrays"}, "else the lock changes with who is first"


def test_a_run_of_the_pipeline_can_be_asked_what_would_have_helped(folder: Path) -> None:
    run = RunFolder(folder / "data/runs/pellucid")
    rows = run.table("jobs.parquet", ["job_id", "queue_s"]).to_pylist()
    longest = max(rows, key=lambda row: row["queue_s"] or 0.0)["job_id"]
    found = counterfactuals.counterfactuals(run, read_story(run, longest), most=1)
    said = in_the_way(found.wait, recorded=True)
    assert re.match(r"It needs \d+ GPUs?; \d+ of \d+ (was|were) free then\.", said)


def test_models_are_measured_beside_yardsticks_on_days_they_never_saw(folder: Path) -> None:
    found = json.loads((folder / "data/metrics/evaluate.json").read_text())
    assert {"ga2m", "lightgbm_l2", "constant_median"} <= found["duration"].keys()
    assert found["duration"]["ga2m"]["n"] == found["test_jobs"] > 50
    bundle = Bundle.load(folder / "data/bundle")
    assert bundle.metadata["duration"]["rows"] < 600 - found["test_jobs"] + 1
    assert found["duration"]["ga2m"]["spearman"] > found["duration"]["constant_median"]["spearman"]


def test_errors_are_told_by_slice_and_drift_is_watched(folder: Path) -> None:
    found = json.loads((folder / "data/metrics/evaluate.json").read_text())
    for cut in ("GPUs", "virtual cluster", "user"):
        sizes = [row["n"] for row in found["slices"][cut].values()]
        assert sizes == sorted(sizes, reverse=True)
        assert 0 < sum(sizes) <= found["test_jobs"]
    assert {foil["kind"] for foil in found["foils"]} == {"typical", "ran longer", "ran shorter"}
    assert all(len(foil["alike"]) == 5 for foil in found["foils"])
    drift = found["drift"]
    if drift is None:  # fewer rows than can say anything
        assert found["test_jobs"] < 200
    else:
        assert drift["features"]
        assert all(value >= 0 for value in drift["features"].values())


def test_the_worth_of_history_is_measured_from_none_to_all(folder: Path) -> None:
    points = json.loads((folder / "data/metrics/learning.json").read_text())["points"]
    jobs = [point["jobs"] for point in points]
    assert jobs[0] == 0
    assert jobs == sorted(set(jobs))
    assert all(point["avg_jct_s"] > 0 for point in points)
    assert {point["n"] for point in points} == {points[0]["n"]}  # the same days throughout


def test_policies_run_on_the_test_days_with_the_exported_bundle(folder: Path) -> None:
    digest = Bundle.load(folder / "data/bundle").digest
    table = pq.read_table(folder / "data/runs/qssf/decisions.parquet").to_pydict()
    used = {bundle for bundle in table["bundle"] if bundle is not None}
    assert used == {digest}
    trained_to = Bundle.load(folder / "data/bundle").metadata["duration"]["window_to"]
    assert min(table["time"]).isoformat() >= trained_to[:10]


def test_the_same_run_made_elsewhere_leaves_the_same_bytes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    shutil.rmtree(other / "data/runs")
    monkeypatch.chdir(other)
    simulate.run(common.read_params())
    made = [path for path in (folder / "data/runs").rglob("*") if path.is_file()]
    assert len(made) > 10
    for path in made:
        assert (other / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_metrics_and_plots_are_what_dvc_reads(folder: Path) -> None:
    said = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    pipeline = said["stages"]
    for plot in said["plots"]:
        (options,) = plot.values()
        for path, columns in options["y"].items():
            with (folder / path).open() as file:
                header, *rows = csv.reader(file)
            assert {options["x"], *columns} <= set(header)
            of = {name: [float(row[header.index(name)]) for row in rows] for name in columns}
            assert all(shares == sorted(shares) for shares in of.values())
            assert all(0 <= share <= 1 for shares in of.values() for share in shares)
    for name in ("train", "evaluate", "simulate"):
        for kind in ("metrics", "plots"):
            for entry in pipeline[name].get(kind, []):
                ((path, options),) = entry.items()
                assert (folder / path).is_file(), path
                if kind == "plots":
                    with (folder / path).open() as file:
                        header = next(csv.reader(file))
                    assert {options["x"], options["y"]} <= set(header)


def test_every_stage_of_dvc_yaml_exists_and_names_parameters_that_exist() -> None:
    pipeline = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert tuple(pipeline) == STAGES
    for name, stage in pipeline.items():
        assert stage["cmd"] == f"python -m pipeline.stages {name}"
        assert (ROOT / f"pipeline/stages/{name}.py").is_file()
        for path in stage.get("params", []):
            node = params
            for key in path.split("."):
                assert key in node, path
                node = node[key]


def test_a_stage_says_at_once_which_it_is_and_what_its_python_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pipeline.stages.common", None)  # as if it did not import
    assert main("learn") == 2
    printed = capsys.readouterr()
    assert printed.out == "Stage 8 of 9; then report\n"
    assert printed.err.startswith(f"learn: {sys.executable}: import of pipeline.stages.common")
    assert printed.err.endswith("first: source .venv/bin/activate\n")
    loaded = "import sys, pipeline.stages.__main__; print({'numpy', 'pandas'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, check=True, cwd=ROOT)
    assert done.stdout == b"set()\n"


def test_what_is_left_is_not_guessed_from_the_first_part() -> None:
    assert [_left(spent, n, 10, since_s=0.0) for spent, n in ((0.0, 0), (7.0, 1))] == ["", ""]
    assert _left(12.0, 2, 10, since_s=0.0) == ", about 60 s left"


def test_what_is_left_falls_between_two_parts_and_is_not_given_once_it_is_over() -> None:
    assert _left(20.0, 4, 2, since_s=4.0) == ", about 6 s left"
    assert _left(20.0, 4, 2, since_s=60.0) == "", "what takes so long is no part of these"


def test_retraining_on_the_same_data_gives_the_same_bundle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = Bundle.load(folder / "data/candidate").digest
    train.run(common.read_params())
    assert Bundle.load(folder / "data/candidate").digest == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"train": {"test_days": -1}}, "train.test_days"),
        ({"simulate": {"policies": []}}, "simulate.policies"),
        ({"ingest": {"sauce": "x"}}, "ingest.sauce"),
    ],
)
def test_bad_parameters_are_named(
    tmp_path: Path, change: dict[str, dict[str, object]], named: str
) -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    for key, value in change.items():
        params[key] |= value
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(params))
    with pytest.raises(UserError, match=named):
        common.read_params(path)


def test_what_cannot_be_trained_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    params = common.read_params()
    params.train.edits = tmp_path / "edits.yaml"
    params.train.edits.write_text("version: 1\nmodel: duration\nedits: [{feature: nothing}]\n")
    with pytest.raises(ValueError, match="edits"):
        train.run(params)
    params.train.test_days = 365
    with pytest.raises(UserError, match="test_days"):
        train.run(params)


def test_an_experiment_registers_a_candidate_and_moves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It became the production model, in silence and by chance."""
    monkeypatch.chdir(folder)
    params = common.read_params()
    params.mlflow.promote = "beyond-chance"
    registry = evaluate.registry_of(params)
    before, exported = champion(registry), Bundle.load(common.BUNDLE)
    known = len(versions(registry))
    model = exported.duration
    other = Bundle(
        duration=AdditiveModel(model.axes, model.terms, model.intercept + 2.0, model.link),
        metadata=exported.metadata,
    )
    try:
        other.save(common.CANDIDATE)
        monkeypatch.setenv("DVC_EXP_BASELINE_REV", "abc")
        assert "pellucid promote 2" in export.run(params)
        monkeypatch.delenv("DVC_EXP_BASELINE_REV")
        assert "worse by" in export.run(params)
        params.mlflow.promote = "ask"
        assert "pellucid promote 2" in export.run(params)
        assert len(versions(registry)) == known + 1, "registered once"
        assert champion(registry) == before
        assert Bundle.load(common.BUNDLE).digest == exported.digest
        params.mlflow.uri = "sqlite:///another.db"
        monkeypatch.setenv("DVC_EXP_BASELINE_REV", "abc")
        assert "an experiment makes no champion" in export.run(params)
        assert champion(evaluate.registry_of(params)) is None
    finally:
        exported.save(common.CANDIDATE)
        exported.save(common.BUNDLE)
