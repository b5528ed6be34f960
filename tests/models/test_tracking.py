"""One pass through MLflow: first champion, a worse and a better challenger."""

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
from models.training.errors import TrainingError
from models.training.tracking import MODEL_NAME, Contest, Registry, champion_bundle, log_training


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


def test_a_challenger_becomes_champion_only_if_it_is_better(fresh, bundle, tmp_path, make_frame):
    uri = f"sqlite:///{fresh / 'mlflow.db'}"
    registry = Registry(tracking_uri=uri, artifact_root=tmp_path / "artifacts")
    before = mlflow.get_tracking_uri()
    with pytest.raises(TrainingError, match="has no champion"):
        champion_bundle(uri)
    figures = {1.0: 0.80, 2.0: 0.80, 3.0: 0.81}  # what each is worth, by its intercept
    runs = {}
    for number, (intercept, champion) in enumerate({1.0: 1.0, 2.0: 1.0, 3.0: 3.0}.items(), 1):
        model = AdditiveModel(bundle.duration.axes, bundle.duration.terms, intercept)
        runs[number] = log_training(
            Bundle(duration=model).save(tmp_path / "bundle"),
            Contest(evaluate=lambda model: figures[model.intercept]),
            registry=registry,
            params={"preset": "fast"},
            metrics={"spearman": 0.5, "auc_6h": float("nan"), "huge": float("inf")},
            input_digest="abc",
            columns=["spearman"],
        )
        kept = Bundle.load(champion_bundle(uri, into=tmp_path / f"copy{number}"))
        assert kept.duration.intercept == champion
    assert [runs[n].promoted for n in (1, 2, 3)] == [True, False, True]
    assert [runs[n].champion_value for n in (1, 2, 3)] == [None, 0.80, 0.80]
    assert runs[1].reason == "first version"
    assert "0.8000 is not above the champion's 0.8000" in runs[2].reason
    assert mlflow.get_tracking_uri() == before

    client = mlflow.MlflowClient(uri, uri)
    run = client.get_run(runs[2].run_id)
    assert run.data.params == {"preset": "fast"}
    assert run.data.metrics == {"spearman": 0.5, "tail AUC": 0.80}
    assert run.data.tags["input_digest"] == "abc"
    assert run.info.run_name.startswith("bundle ")
    assert "did not become champion: tail AUC 0.8000" in run.data.tags["mlflow.note.content"]
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.digest, given.dataset.name[:4]) == ("abc", "jobs")
    assert all(client.get_model_version(MODEL_NAME, n).description for n in "123")
    assert [a.path for a in client.list_artifacts(runs[2].run_id)] == [
        "card.html",
        "effects.json",
        "shapes.png",
    ]
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
        ebm = mlflow.sklearn.load_model(f"runs:/{runs[3].run_id}/ebm")
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_registry_uri(before)
    X = make_frame(20, 11)
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

    more = log_training(  # as good, and more is in it
        bundle.save(tmp_path / "bundle"),
        Contest(evaluate=lambda model: 0.81),
        registry=registry,
        params={},
        metrics={},
        input_digest="abc",
    )
    assert more.promoted
    assert "which has no packing model" in more.reason


def test_a_champion_that_cannot_score_is_judged_by_what_was_recorded_of_the_same_rows(
    fresh, bundle, tmp_path
):
    uri = f"sqlite:///{fresh / 'mlflow.db'}"

    def challenge(value, rows):
        def evaluate(model):
            if model.intercept != value:
                raise BundleError("feature 'like_all_log_s' is not among the columns")
            return value

        model = AdditiveModel(bundle.duration.axes, bundle.duration.terms, value)
        run = log_training(
            Bundle(duration=model).save(tmp_path / "bundle"),
            Contest(evaluate=evaluate, rows=rows),
            registry=Registry(tracking_uri=uri, artifact_root=tmp_path / "artifacts"),
            params={},
            metrics={},
            input_digest="abc",
        )
        return run.promoted, run.champion_value, run.reason

    assert challenge(0.8, "a week")[0]
    promoted, former, reason = challenge(0.1, "a week")
    assert (promoted, former) == (False, 0.8)
    assert "0.1000 is not above the champion's 0.8000, which cannot score them now: fe" in reason
    promoted, former, reason = challenge(0.9, "another")
    assert (promoted, former) == (False, None)
    assert "to promote it all the same, see docs/pipeline.md" in reason
    assert challenge(0.9, "a week")[:2] == (True, 0.8)
    shutil.rmtree(tmp_path / "artifacts" / "models")
    promoted, _, reason = challenge(0.9, "a week")
    assert promoted
    assert "0.9000 is the champion's, which cannot score them now: no bundle" in reason


def test_the_folder_can_be_moved_and_goes_back_a_version(fresh, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(fresh)
    for intercept in (1.0, 2.0):  # the better, the later
        model = AdditiveModel(bundle.duration.axes, bundle.duration.terms, intercept)
        run = log_training(
            Bundle(duration=model).save(fresh / "bundle"),
            Contest(evaluate=lambda model: model.intercept),
            params={},
            metrics={},
            input_digest="abc",
        )
        assert run.promoted
    moved = fresh.rename(tmp_path / "moved")
    monkeypatch.chdir(moved)
    assert Bundle.load(champion_bundle(into="again")).duration.intercept == 2.0
    uri = f"sqlite:///{moved / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri, uri)
    about = client.get_run(run.run_id).data.tags["mlflow.note.content"]
    shown = re.search(r"!\[.+\]\(get-artifact\?path=(.+)&run_uuid=(.+)\)", about)
    assert shown[2] == run.run_id
    picture = mlflow.artifacts.download_artifacts(
        run_id=run.run_id, artifact_path=shown[1], tracking_uri=uri
    )
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    client.set_registered_model_alias(MODEL_NAME, "champion", "1")  # as its page does
    assert Bundle.load(champion_bundle(into="back")).duration.intercept == 1.0
