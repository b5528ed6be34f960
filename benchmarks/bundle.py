"""The bundle beside the libraries it came from: load, explain one row, score many.

    python -m benchmarks.bundle [--json] [--rows 20000]

Every figure is the best of several passes in one process. `bundle_budget.json` holds what may
not be exceeded; the exit status is 1 when something is.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.calibration import program
from features.spec import FeatureSpec
from models.bundle import Bundle
from models.training.baselines import fit_lightgbm
from models.training.duration import fit_duration
from models.training.packing import fit_packing, fit_pair_speed
from models.training.simulated import simulated_pairs

BUDGET = Path(__file__).with_name("bundle_budget.json")
CONTINUOUS, NOMINAL = 22, 2
BATCH = 10_000


def workload(n: int, seed: int = 0) -> tuple[tuple[FeatureSpec, ...], pd.DataFrame, np.ndarray]:
    """Specs, rows and durations: 22 numbers (a tenth missing), 2 labels, interactions."""
    rng = np.random.default_rng(seed)
    numbers = rng.lognormal(3, 2, (n, CONTINUOUS))
    log = np.log(numbers[:, :6]) @ np.array([0.6, 0.4, -0.3, 0.2, 0.2, 0.1])
    log += 0.1 * np.log(numbers[:, 6]) * np.log(numbers[:, 7])
    numbers[rng.random(numbers.shape) < 0.1] = np.nan
    columns: dict[str, Any] = {f"x{i}": numbers[:, i] for i in range(CONTINUOUS)}
    for i in range(NOMINAL):
        label = rng.integers(0, 7, n)
        columns[f"label{i}"] = pd.Series([f"type {k}" for k in label], dtype=object)
        log += 0.2 * (label == 3)
    specs = tuple(
        FeatureSpec(name, "nominal" if name.startswith("label") else "continuous", "synthetic")
        for name in columns
    )
    duration = np.expm1(np.clip(3 + log + rng.normal(0, 1, n), 0, 15))
    return specs, pd.DataFrame(columns), duration


def best(function: Callable[[], Any], passes: int = 15) -> float:
    """Shortest of several runs, seconds."""
    times = []
    for _ in range(passes):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def measure(asked: argparse.Namespace) -> dict[str, float]:
    """All figures; see the module."""
    rows = asked.rows
    specs, X, duration = workload(rows)
    start = process_time()
    fitted = fit_duration(X, duration, np.arange(rows, dtype=float), specs, seed=0)
    fit_cpu_s = process_time() - start
    start = process_time()
    forest = fit_lightgbm(X, duration, specs, seed=0)
    lightgbm_fit_cpu_s = process_time() - start
    pairs = simulated_pairs(0)
    whole = Bundle(
        duration=fitted.model,
        packing=fit_packing(pairs).model,
        pair_speed=fit_pair_speed(pairs).model,
        metadata=fitted.metadata,
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = whole.save(Path(scratch) / "bundle")
        size = sum(path.stat().st_size for path in folder.iterdir())
        load = best(lambda: Bundle.load(folder))
        model = Bundle.load(folder).duration
    batch = workload(BATCH, seed=1)[1]
    one, row = batch.head(1), next(batch.itertuples(index=False, name=None))
    few = list(batch.head(200).itertuples(index=False, name=None))
    explain = best(lambda: [model.explain(r) for r in few]) / len(few)
    scored = best(lambda: model.score_batch(batch))
    worst = np.abs(model.score_batch(batch) - fitted.ebm.predict(batch)).max()
    told = model.explain(row)
    return {
        "load_ms": 1e3 * load,
        "explain_us": 1e6 * explain,
        "batch_10000_ms": 1e3 * scored,
        "size_kb": size / 1e3,
        "fit_cpu_s": fit_cpu_s,
        "parity": float(worst),
        "terms": float(len(told.terms)),
        "interpret_one_ratio": best(lambda: fitted.ebm.eval_terms(one)) / explain,
        "interpret_batch_ratio": best(lambda: fitted.ebm.predict(batch)) / scored,
        "interpret_terms_batch_ratio": best(lambda: fitted.ebm.eval_terms(batch))
        / best(lambda: model.terms_batch(batch)),
        "lightgbm_one_ratio": best(lambda: forest(one)) / explain,
        "lightgbm_batch_ratio": best(lambda: forest(batch), 5) / scored,
        "lightgbm_fit_ratio": lightgbm_fit_cpu_s / fit_cpu_s,
    }


if __name__ == "__main__":
    program(
        __doc__, BUDGET, measure, rows={"type": int, "default": 20_000, "help": "training rows"}
    )
