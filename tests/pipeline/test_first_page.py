"""The first page of `make demo`, and that what is prebuilt is what the pipeline makes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from features.rows import training_rows
from models.bundle import Bundle
from models.training.duration import data_digest, imputed_s
from pipeline.demo import first, installing
from pipeline.stages import common
from pipeline.traces.synthetic import generate as synthetic

ROOT = Path(__file__).resolve().parents[2]
PREBUILT = ROOT / first.PREBUILT


def _locked(stage: str, out: str) -> str:
    outs = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"][stage]["outs"]
    return next(entry["md5"] for entry in outs if entry["path"] == out)


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_the_prebuilt_is_what_the_pipeline_last_made() -> None:
    """By the hashes of `dvc.lock`. Where this fails: python -m pipeline.demo.first --keep."""
    files = sorted((PREBUILT / "bundle").iterdir())
    listed = [{"md5": _md5(file.read_bytes()), "relpath": file.name} for file in files]
    folder = _md5(json.dumps(listed, sort_keys=True).encode())
    assert f"{folder}.dir" == _locked("export", "data/bundle")
    errors = _md5((PREBUILT / first.ERRORS).read_bytes())
    assert errors == _locked("evaluate", "data/metrics/evaluate.json")


def test_the_prebuilt_models_were_trained_on_the_rows_that_the_code_makes_now() -> None:
    params = common.read_params(ROOT / "params.yaml")
    trace = synthetic.generate(synthetic.default_config(params.ingest.scale, params.ingest.seed))
    cut = common.test_from(trace.column("submit_time"), params.train.test_days)
    known = training_rows(trace, families=params.features.families).known_by(cut)
    running = np.isnan(known.y)
    lasts = known.y.copy()
    lasts[running] = imputed_s(known.X[running], cut - known.start_time[running])
    made = Bundle.load(PREBUILT / "bundle").metadata["duration"]
    assert made["rows"] == len(known)
    assert made["running"] == running.sum() > 0
    assert made["data_digest"] == data_digest(known.X, np.log1p(lasts))


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
