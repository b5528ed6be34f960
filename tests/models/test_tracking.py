"""One pass through MLflow: first champion, a worse and a better challenger."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from urllib.error import URLError
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pytest
from interpret.glassbox import merge_ebms

from models.bundle import AdditiveModel, Bundle, BundleError
from models.training.errors import TrainingError
from models.training.tracking import MODEL_NAME, Contest, Registry, champion_bundle, log_training
from tests.waiting import until


def test_a_challenger_becomes_champion_only_if_it_is_better(bundle, tmp_path, make_frame):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
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
            registry=Registry(tracking_uri=uri, artifact_root=tmp_path / "artifacts"),
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
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
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


def test_a_champion_that_cannot_score_is_judged_by_what_was_recorded_of_the_same_rows(
    bundle, tmp_path
):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"

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
    assert not challenge(0.1, "a week")[0]
    promoted, _, reason = challenge(0.9, "a week")
    assert promoted
    assert "0.9000 is the champion's, which cannot score them now: no bundle" in reason


def test_as_good_a_challenger_that_holds_more_models_is_champion(bundle, tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    before = mlflow.get_registry_uri(), mlflow.get_tracking_uri()
    told = []
    for made in (Bundle(duration=bundle.duration), bundle, Bundle(duration=bundle.duration)):
        run = log_training(
            made.save(tmp_path / "bundle"),
            Contest(evaluate=lambda model: 0.8),
            registry=Registry(tracking_uri=uri, artifact_root=tmp_path / "artifacts"),
            params={},
            metrics={},
            input_digest="abc",
        )
        told.append((run.promoted, run.reason))
    assert [promoted for promoted, _ in told] == [True, True, False]
    assert "which has no packing model" in told[1][1]
    mlflow.set_registry_uri(before[0])
    mlflow.set_tracking_uri(before[1])


@contextmanager
def ui(folder):
    """The server of the UI in a folder, as `make mlflow` starts it: a function that asks it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    words = ["server", "--backend-store-uri", "sqlite:///mlflow.db", "--workers", "1"]
    words += ["--default-artifact-root", "mlartifacts", "--port", address.rpartition(":")[2]]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words],
        cwd=folder,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def ask(path, said=None):
        body = None if said is None else json.dumps(said).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{address}/{path}", body, headers)) as answer:
            return answer.read()

    try:
        until(lambda: ask("health"), "MLflow to listen", not_yet=(URLError,))
        yield ask
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_the_folder_can_be_moved_and_the_ui_goes_back_a_version(bundle, tmp_path, monkeypatch):
    before = tmp_path / "before"
    before.mkdir()
    monkeypatch.chdir(before)
    for intercept in (1.0, 2.0):  # the better, the later
        model = AdditiveModel(bundle.duration.axes, bundle.duration.terms, intercept)
        run = log_training(
            Bundle(duration=model).save(before / "bundle"),
            Contest(evaluate=lambda model: model.intercept),
            params={},
            metrics={},
            input_digest="abc",
        )
        assert run.promoted
    assert Bundle.load(champion_bundle(into="copy")).duration.intercept == 2.0
    moved = before.rename(tmp_path / "moved")
    monkeypatch.chdir(moved)
    assert Bundle.load(champion_bundle(into="again")).duration.intercept == 2.0
    with ui(moved) as ask:
        card = ask(f"get-artifact?path=card.html&run_uuid={run.run_id}")
        assert b"<html" in card
        kept = mlflow.MlflowClient(f"sqlite:///{moved / 'mlflow.db'}").get_run(run.run_id)
        about = kept.data.tags["mlflow.note.content"]
        assert ask(re.search(r"!\[.+\]\((.+)\)", about)[1]).startswith(b"\x89PNG")
        shown = ask(f"ajax-api/2.0/mlflow/registered-models/get?name={MODEL_NAME}")
        assert json.loads(shown)["registered_model"]["aliases"] == [
            {"alias": "champion", "version": "2"}
        ]
        alias = {"name": MODEL_NAME, "alias": "champion", "version": "1"}
        ask("ajax-api/2.0/mlflow/registered-models/alias", alias)
    assert Bundle.load(champion_bundle(into="back")).duration.intercept == 1.0
