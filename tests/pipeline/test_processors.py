"""What the pipeline writes is the same on every processor: `dvc.lock` changes where results do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from numpy._core import _multiarray_umath as numpy_core

ROOT = Path(__file__).resolve().parents[2]
STAGES = "ingest", "features", "train", "evaluate", "export", "simulate", "learn", "report"

# As a processor of 2006: no AVX in BLAS, in NumPy, in the C library.
PLAIN = {
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": ",".join(
        name for name in numpy_core.__cpu_dispatch__ if numpy_core.__cpu_features__[name]
    ),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-AVX512F",
}


def made(folder: Path, **environment: str) -> dict[str, str]:
    """Digests of all that the stages write in an empty folder, beside MLflow's."""
    folder.mkdir()
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["ingest"]["scale"] = "small"
    params["train"] |= {"test_days": 2, "edits": str(ROOT / "models/edits.yaml")}
    params["simulate"]["draws"] = 1
    params["cluster"] = str(ROOT / "pipeline/worlds/clusters/small.yaml")
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    subprocess.run(
        [sys.executable, "-c", f"from pipeline.stages.__main__ import main\n"
         f"import sys; sys.exit(max(main(name) for name in {STAGES}))"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=True, capture_output=True,
    )  # fmt: skip
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


@pytest.mark.skipif(sys.platform != "linux", reason="tunables of the GNU C library")
def test_a_plain_processor_writes_the_same_as_this_one(tmp_path: Path) -> None:
    here, plain = made(tmp_path / "here"), made(tmp_path / "plain", **PLAIN)
    assert len(here) >= 10
    assert plain == here
