"""The first page of `make demo`, and that what is prebuilt is what the pipeline makes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from features.job import Profile
from features.rows import Rows, training_rows
from models.bundle import Bundle
from models.training.evaluation import tail_auc
from pipeline.demo import first, installing
from pipeline.stages import common, train
from pipeline.traces.synthetic import generate as synthetic

ROOT = Path(__file__).resolve().parents[2]
PREBUILT = ROOT / first.PREBUILT


TOLERANCE = 1e-3  # of ln(1 + seconds): a thousandth of a duration


@pytest.fixture(scope="module")
def made() -> tuple[Rows, float, Bundle]:
    """The rows of the embedded trace, where its test days begin, and what is trained on it now."""
    params = common.read_params(ROOT / "params.yaml")
    trace = synthetic.generate(synthetic.default_config(params.ingest.scale, params.ingest.seed))
    cut = common.test_from(trace.column("submit_time"), params.train.test_days)
    rows = training_rows(trace, families=params.features.families).agreed()
    wanted = params.train
    pairs = train.read_measured(wanted.pairs, wanted.seed, wanted.sharing)
    return rows, cut, train.fit(rows, cut, pairs, preset=wanted.preset, seed=wanted.seed)


def test_the_prebuilt_predict_what_is_trained_now(made: tuple[Rows, float, Bundle]) -> None:
    """Whatever the processor. Where this fails: dvc repro; python -m pipeline.demo.first --keep."""
    rows, _, now = made
    before = Bundle.load(PREBUILT / "bundle")
    assert before.parts == now.parts
    assert before.duration.term_names == now.duration.term_names
    scores = [bundle.duration.score_batch(rows.X) for bundle in (before, now)]
    assert np.abs(scores[0] - scores[1]).max() < TOLERANCE
    for util in (5.0, 40.0, 75.0, 95.0):
        own, other = Profile(util, util / 2, 4000.0, True), Profile(60.0, 30.0, 9000.0, False)
        assert before.packing.classify(own)[0] == now.packing.classify(own)[0]
        speeds = [bundle.pair_speed(own, other) for bundle in (before, now)]
        assert speeds[0] == pytest.approx(speeds[1], abs=TOLERANCE)


def test_the_prebuilt_models_were_trained_on_the_rows_that_the_code_makes_now(
    made: tuple[Rows, float, Bundle],
) -> None:
    said, now = (
        bundle.metadata["duration"] for bundle in (Bundle.load(PREBUILT / "bundle"), made[2])
    )
    assert now["running"] > 0
    for name in ("rows", "running", "window_from", "window_to", "settings", "seed"):
        assert said[name] == now[name]


def test_the_prebuilt_errors_are_of_the_prebuilt_models(made: tuple[Rows, float, Bundle]) -> None:
    rows, cut, _ = made
    said = json.loads((PREBUILT / first.ERRORS).read_text())
    test = rows.where((rows.time >= cut) & np.isfinite(rows.y))
    model = Bundle.load(PREBUILT / "bundle").duration
    assert said["test_jobs"] == len(test)
    assert said["candidate_tail_auc"] == pytest.approx(tail_auc(test)(model), abs=TOLERANCE)
    assert {foil["job_id"] for foil in said["foils"]} <= set(test.job_id)


def test_a_first_page_is_made_of_the_prebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = common.read_params(ROOT / "params.yaml")
    params.ingest.scale = "small"
    params.cluster = ROOT / "pipeline/worlds/clusters/small.yaml"
    params.train.test_days = 2
    params.simulate.policies = ["fifo", "pellucid"]
    seen: list[tuple[int, int]] = []
    page = first.run(params, PREBUILT, tmp_path, lambda done, of: seen.append((done, of)))
    html = page.read_text()
    assert "1 draw" in html
    assert Bundle.load(PREBUILT / "bundle").digest[:12] in html
    assert seen[-1] == (2, 2)
    assert (tmp_path / "runs/pellucid/decisions.parquet").is_file()


def test_it_loads_no_training_library() -> None:
    heavy = ["interpret", "sklearn", "lightgbm", "mlflow", "torch", "matplotlib", "dvc", "pandas"]
    said = subprocess.run(
        [sys.executable, "-c",
         f"import sys, pipeline.demo.first; print([m for m in {heavy} if m in sys.modules])"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert said.strip() == "[]"


def test_an_installer_that_is_silent_is_spoken_for(capfd: pytest.CaptureFixture[str]) -> None:
    asked = [sys.executable, "-c", "import time; time.sleep(0.5); raise SystemExit(3)"]
    assert installing.run(asked, every_s=0.1) == 3
    assert "packages installed" in capfd.readouterr().out
