"""`pellucid evaluate bundle`: whether a bundle predicts the same as the libraries that trained it,
its size, and how long scoring takes.

Times are measured in a new process that reads only the bundle and rows, as the scheduler does. It
also reports which training libraries it has loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from features.codec import Json
from features.rows import training_rows
from models.bundle import Bundle
from models.training.duration import fit_duration
from models.training.errors import TrainingError
from models.training.export import as_ebm
from models.training.metrics import duration_metrics
from models.training.packing import fit_packing, fit_pair_speed
from models.training.pairs import read_pairs
from pipeline.traces import ingest, read_dataset

BATCH = 10_000
ONE_BY_ONE = 200
FAMILIES = ("size", "user", "user_gpus", "template", "vc", "burst", "calendar")
LIMITS = {"parity": 1e-9, "load_ms": 20.0, "explain_us": 50.0, "batch_ms": 50.0, "libraries": 0.0}

# Best of several runs: the machine may be busy, the code is not slower for it.
CHILD = """
import json, sys
from time import perf_counter
import numpy as np
from models.bundle import Bundle

def best(function, runs):
    times = []
    for _ in range(runs):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)

folder, rows, few = sys.argv[1], sys.argv[2], int(sys.argv[3])
load = best(lambda: Bundle.load(folder), 10)
model = Bundle.load(folder).duration
held = np.load(rows, allow_pickle=False)
columns = {}
for spec in model.features:
    column = held[spec.name]
    missing = f"{spec.name}?"
    if missing in held:
        column = np.where(held[missing], None, column.astype(object))
    columns[spec.name] = column
each = list(zip(*(columns[s.name][:few].tolist() for s in model.features)))
heavy = ("interpret", "sklearn", "lightgbm", "mlflow", "torch", "pandas")
print(json.dumps({
    "load_ms": 1e3 * load,
    "explain_us": 1e6 * best(lambda: [model.explain(r) for r in each], 10) / few,
    "batch_ms": 1e3 * best(lambda: model.score_batch(columns), 5),
    "terms": len(model.terms),
    "loaded": [name for name in heavy if name in sys.modules],
}))
"""


def run(
    data: Path, *, seed: int = 0, trace: Path | None = None, bundle: Path | None = None
) -> Json:
    """Fit a bundle on Venus and the measured pairs, and return its figures. If a bundle is given,
    return its errors instead.

    Args:
        trace, bundle: folders of a dataset and of an exported bundle, for `errors`; None: fit a
            bundle.

    Raises TrainingError if the data is missing or the new process fails.
    """
    if trace is not None and bundle is not None:
        return errors(trace, bundle)
    source = data / "venus" / "cluster_full_log.csv"
    if not source.is_file():
        raise TrainingError(f"--data {data}: no venus/cluster_full_log.csv there")
    with TemporaryDirectory() as scratch:
        ingest(source, Path(scratch, "trace"))
        rows = training_rows(read_dataset(Path(scratch, "trace")), families=FAMILIES)
        seen = rows.ended_before(float(np.quantile(rows.time, 0.5)))
        fitted = fit_duration(seen.X, seen.y, seen.time, plain(seen.features), seed=seed)
        ahead = rows.X.tail(BATCH).reset_index(drop=True)
        # as interpret has it once terms are bounded and pairs that do not last are dropped
        parity = np.abs(fitted.model.score_batch(ahead) - as_ebm(fitted.model).predict(ahead)).max()
        pairs = read_pairs(data / "packing")
        made = Bundle(
            duration=fitted.model,
            packing=fit_packing(pairs, seed=seed).model,
            pair_speed=fit_pair_speed(pairs).model,
            metadata={"duration": dict(fitted.metadata)},
        )
        folder = made.save(Path(scratch, "bundle"))
        size = sum(path.stat().st_size for path in folder.iterdir())
        np.savez(Path(scratch, "rows.npz"), allow_pickle=False, **_arrays(made, ahead))
        measured = _child(folder, Path(scratch, "rows.npz"))
    loaded = measured.pop("loaded")
    figures = {"parity": float(parity), "size_kb": size / 1e3, **measured, "libraries": len(loaded)}
    return {
        "rows": len(ahead),
        **figures,
        "libraries_loaded": loaded,
        "targets": {
            name: {"value": figures[name], "limit": limit, "met": bool(figures[name] <= limit)}
            for name, limit in LIMITS.items()
        },
    }


def errors(trace: Path, folder: Path) -> Json:
    """Return the errors of an exported bundle's predicted durations, on the jobs of a trace that
    were submitted after those it was trained on.

    Raises TrainingError if none of these has ended.
    """
    bundle = Bundle.load(folder)
    families = sorted({spec.family for spec in bundle.duration.features})
    rows = training_rows(read_dataset(trace), families=families)
    until = datetime.fromisoformat(bundle.metadata["duration"]["window_to"])
    ahead = rows.where((rows.time > until.timestamp()) & np.isfinite(rows.y))
    if not len(ahead):
        raise TrainingError(f"{trace}: no job was submitted after {until:%F %T} UTC, and ended")
    score = bundle.duration.score_batch(ahead.X)
    return {"digest": bundle.digest, "duration": duration_metrics(score, ahead.y, ahead.gpus)}


def plain(specs: Any) -> tuple[Any, ...]:
    """Return the features' specs without monotonicity. Making a model monotone changes its
    predictions, and the comparison with the libraries needs them unchanged."""
    return tuple(replace(spec, monotone=0) for spec in specs)


def _arrays(bundle: Bundle, frame: Any) -> dict[str, np.ndarray]:
    """Return the columns of `frame` that the bundle's duration model uses, as arrays by name. A
    nominal column becomes strings, with a mask `name?` of the missing values."""
    held: dict[str, np.ndarray] = {}
    for spec in bundle.duration.features:
        column = frame[spec.name]
        if spec.kind == "continuous":
            held[spec.name] = column.to_numpy(dtype=np.float64)
        else:
            held[spec.name] = column.fillna("").astype(str).to_numpy(dtype=str)
            held[f"{spec.name}?"] = column.isna().to_numpy()
    return held


def _child(folder: Path, rows: Path) -> Json:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), str(rows), str(ONE_BY_ONE)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TrainingError(f"the fresh process failed: {done.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(done.stdout))
