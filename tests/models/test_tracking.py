"""One pass through MLflow: candidates, a champion, another, and back."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import mlflow
import numpy as np
import pytest
from interpret.glassbox import merge_ebms

from models.bundle import AdditiveModel, Bundle, BundleError
from models.training.tracking import (
    MODEL_NAME,
    Registry,
    TrainedOn,
    bundle_of,
    champion,
    former_champion,
    log_serving,
    log_training,
    promote,
    registered,
    versions,
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A database of MLflow's, whose tables take it seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def fresh(empty, tmp_path):
    """A folder with such a database."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    shutil.copy(empty, folder)
    return folder


def candidate(bundle: Bundle, folder: Path, registry: Registry, intercept: float, **given):
    """A registered bundle that differs from others by its intercept."""
    model = AdditiveModel(bundle.duration.axes, bundle.duration.terms, intercept)
    told = {
        "params": {},
        "metrics": {},
        "data": TrainedOn(digest="abc"),
        "registry": registry,
        **given,
    }
    return log_training(Bundle(duration=model, metadata=bundle.metadata).save(folder), **told)


def test_a_training_registers_a_candidate_and_a_promotion_moves_the_alias(
    fresh, bundle, tmp_path, make_frame
):
    uri = f"sqlite:///{fresh / 'mlflow.db'}"
    registry = Registry(tracking_uri=uri, artifact_root=tmp_path / "artifacts")
    before = mlflow.get_tracking_uri()
    assert champion(registry) is None
    assert versions(registry) == []
    one, two, three = (
        candidate(
            bundle, tmp_path / "bundle", registry, intercept,
            params={"preset": "fast"},
            metrics={"tail AUC": 0.80, "spearman": 0.5, "auc_6h": float("nan"), "x": float("inf")},
            columns=["tail AUC", "spearman"],
            data=TrainedOn(digest="abc", source=tmp_path / "trace"),
            by_week={2900: {"spearman": 0.4}, 2901: {"spearman": 0.6}},
        )
        for intercept in (1.0, 2.0, 3.0)
    )  # fmt: skip
    assert champion(registry) is None, "nobody said so"
    assert versions(registry) == [three, two, one]
    assert registered(two.digest, registry) == two
    assert registered("0" * 64, registry) is None
    promote(one, "first version", {"reason": "first version"}, registry)
    assert (champion(registry), former_champion(registry)) == (one, None)
    promote(three, "better", {"gain": 0.01}, registry)
    assert (champion(registry), former_champion(registry)) == (three, one)
    promote(one, "back", {}, registry)
    assert (champion(registry), former_champion(registry)) == (one, three)
    promote(three, "better", {"gain": 0.01}, registry)
    for version, intercept in ((one, 1.0), (three, 3.0)):
        kept = bundle_of(version, registry, tmp_path / f"copy{version.number}")
        assert (kept.digest, kept.duration.intercept) == (version.digest, intercept)
    assert mlflow.get_tracking_uri() == before

    client = mlflow.MlflowClient(uri, uri)
    run = client.get_run(two.run_id)
    assert run.data.params == {"preset": "fast"}
    assert run.data.metrics == {"spearman": 0.5, "tail AUC": 0.80, "by week/spearman": 0.6}
    assert run.data.tags["input_digest"] == "abc"
    assert run.info.run_name.startswith("bundle ")
    assert run.data.tags["mlflow.note.content"].startswith("A candidate: it decides nothing")
    assert "On days it never saw: tail AUC: 0.8000." in run.data.tags["mlflow.note.content"]
    assert ".explain_global().data(0)" in run.data.tags["mlflow.note.content"], "without IPython"
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.digest, given.dataset.name[:4]) == ("abc", "jobs")
    assert json.loads(given.dataset.source)["uri"] == str(tmp_path / "trace")
    counts = json.loads(given.dataset.profile)
    made = bundle.metadata["duration"]
    assert counts["ended_jobs"] + counts["running_jobs"] == made["rows"] > 0
    history = client.get_metric_history(two.run_id, "by week/spearman")
    assert [(one.step, one.value) for one in history] == [(2900, 0.4), (2901, 0.6)]
    assert all(client.get_model_version(MODEL_NAME, n).description for n in "123")
    assert [a.path for a in client.list_artifacts(two.run_id)] == [
        "card.html",
        "effects.json",
        "shapes.png",
    ]
    evidence = mlflow.artifacts.load_dict(
        f"{client.get_run(three.run_id).info.artifact_uri}/promotion-of-3.json"
    )
    assert evidence == {"gain": 0.01}
    for told in (
        client.get_model_version(MODEL_NAME, "3").description,
        client.get_run(three.run_id).data.tags["mlflow.note.content"],
    ):
        assert told.startswith("Promoted: better.\n\nDuration GA2M of ")
    experiment = client.get_experiment(run.info.experiment_id)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    view = json.loads(experiment.tags["mlflow.sharedViewState.errors"])
    assert view["selectedColumns"] == ["metrics.`tail AUC`", "metrics.`spearman`"]
    table = f"#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=errors"
    assert table in experiment.tags["mlflow.note.content"]
    assert not [p for p in (tmp_path / "artifacts").rglob("*") if p.suffix in (".pkl", ".pickle")]
    with sqlite3.connect(fresh / "mlflow.db") as db:
        assert db.execute("select count(*) from model_versions").fetchone() == (3,)

    mlflow.set_registry_uri(uri)
    mlflow.set_tracking_uri(uri)
    try:
        served = mlflow.pyfunc.load_model(f"models:/{MODEL_NAME}@champion")
        ebm = mlflow.sklearn.load_model(f"runs:/{three.run_id}/ebm")
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_registry_uri(before)
    X, model = make_frame(20, 11), kept.duration
    expected = model.seconds(model.score_batch(X))
    assert np.allclose(served.predict(X), expected, rtol=1e-12)
    assert np.abs(ebm.predict(X) - model.score_batch(X)).max() < 1e-6
    shown = ebm.explain_global()
    assert shown.feature_names == list(model.term_names)
    assert np.allclose(shown.data(0)["scores"], model.terms[0].scores[1:])
    both = merge_ebms([ebm, ebm])  # and interpret's own tools work on it
    assert np.allclose(both.predict(X), ebm.predict(X))
    example = served.input_example
    assert list(example.columns) == [spec.name for spec in model.features]
    assert served.predict(example) > 0


def test_a_version_whose_artifacts_are_gone_is_an_error_in_one_line(fresh, bundle, tmp_path):
    registry = Registry(
        tracking_uri=f"sqlite:///{fresh / 'mlflow.db'}", artifact_root=tmp_path / "artifacts"
    )
    version = candidate(bundle, tmp_path / "bundle", registry, 0.8)
    shutil.rmtree(tmp_path / "artifacts" / "models")
    with pytest.raises(BundleError, match=r"^(artifacts of|no bundle among).+version 1"):
        bundle_of(version, registry, tmp_path / "copy")


def test_the_folder_can_be_moved_and_goes_back_a_version(fresh, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(fresh)
    registry = Registry()
    for intercept in (1.0, 2.0):
        version = candidate(bundle, fresh / "bundle", registry, intercept)
        promote(version, "as asked", {}, registry)
    moved = fresh.rename(tmp_path / "moved")
    monkeypatch.chdir(moved)
    assert bundle_of(version, registry, "again").duration.intercept == 2.0
    uri = f"sqlite:///{moved / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri, uri)
    about = client.get_run(version.run_id).data.tags["mlflow.note.content"]
    shown = re.search(r"!\[.+\]\(get-artifact\?path=(.+)&run_uuid=(.+)\)", about)
    assert shown[2] == version.run_id
    picture = mlflow.artifacts.download_artifacts(
        run_id=version.run_id, artifact_path=shown[1], tracking_uri=uri
    )
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    client.set_registered_model_alias(MODEL_NAME, "champion", "1")  # as its page does
    assert bundle_of(champion(registry), registry, "back").duration.intercept == 1.0


def test_a_promotion_stopped_between_its_two_aliases_is_completed_by_the_next_start(
    fresh, bundle, tmp_path, monkeypatch
):
    registry = Registry(
        tracking_uri=f"sqlite:///{fresh / 'mlflow.db'}", artifact_root=tmp_path / "artifacts"
    )
    one, two, three = (
        candidate(bundle, tmp_path / str(i), registry, intercept)
        for i, intercept in enumerate((5.0, 5.5, 6.0))
    )
    promote(one, "the first", {}, registry)
    promote(two, "the second", {}, registry)
    assert former_champion(registry) == one
    moves = mlflow.MlflowClient.set_registered_model_alias

    def stopped(self, name, alias, version):
        if alias == "former-champion":
            raise KeyboardInterrupt
        moves(self, name, alias, version)

    with monkeypatch.context() as during:
        during.setattr(mlflow.MlflowClient, "set_registered_model_alias", stopped)
        with pytest.raises(KeyboardInterrupt):
            promote(three, "the third", {}, registry)
    client = mlflow.MlflowClient(registry.tracking_uri, registry.tracking_uri)
    held = client.get_model_version_by_alias(MODEL_NAME, "former-champion")
    assert str(held.version) == one.number, "as the stop left it"
    assert champion(registry) == three
    assert former_champion(registry) == two
    promote(two, "back", {}, registry)
    assert (champion(registry), former_champion(registry)) == (two, three)
    client.set_registered_model_alias(MODEL_NAME, "champion", one.number)  # by hand, in the UI
    assert (champion(registry), former_champion(registry)) == (one, three)


def test_what_a_version_served_is_a_step_each_week_and_is_kept_once(fresh, bundle, tmp_path):
    registry = Registry(
        tracking_uri=f"sqlite:///{fresh / 'mlflow.db'}", artifact_root=tmp_path / "artifacts"
    )
    version = candidate(bundle, tmp_path / "one", registry, 5.0)
    for week, jobs in ((2900, 12.0), (2901, 30.0), (2900, 12.0)):
        log_serving(version, week, {"jobs decided": jobs, "error": 0.5}, registry)
    client = mlflow.MlflowClient(registry.tracking_uri, registry.tracking_uri)
    held = client.get_metric_history(version.run_id, "serving/jobs decided")
    assert sorted((one.step, one.value) for one in held) == [(2900, 12.0), (2901, 30.0)]
