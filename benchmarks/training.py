"""Training at scale: one process against several, on a trace of the project's own generator.

    python -m benchmarks.training --json [--jobs 1000000] [--where local:2,dask:2]

Each way reads the trace, makes the rows and fits the duration model as `pellucid train` does, in a
process of its own, so that its peak memory is its own. Errors are those of the last seven days.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.calibration import Calibration
from features.rows import training_rows
from features.schema import TIME
from models.training.duration import fit_at
from models.training.metrics import duration_metrics
from models.training.simulated import simulated_pairs
from pipeline.commands.train import FAMILIES
from pipeline.sharded import Fit, train_sharded
from pipeline.stages.common import test_from
from pipeline.traces import read_dataset
from pipeline.traces.dataset import read_months
from pipeline.traces.synthetic.generate import default_config, write

SINGLE = "single"
TEST_DAYS = 7.0
BUDGET = Path(__file__).with_name("training_budget.json")


def child(how: str, trace: Path, scratch: Path, preset: str) -> dict[str, float]:
    """One way in this process: errors, seconds, CPU seconds of rows and fits, own peak memory."""
    started, cpu = time.perf_counter(), time.process_time()
    if how == SINGLE:
        table = read_dataset(trace)
        cut = test_from(table.column("submit_time"), TEST_DAYS)
        rows = training_rows(table, families=FAMILIES)
        test = rows.where((rows.time >= cut) & np.isfinite(rows.y))
        fitted = fit_at(rows, cut, seed=0, preset=preset)
        cpu_s = time.process_time() - cpu
        errors = duration_metrics(fitted.model.score_batch(test.X), test.y, test.gpus)
    else:
        errors, cpu_s = _sharded(how, trace, scratch, preset)
    return {
        "spearman": errors["spearman"],
        "mae_log10": errors["mae_log10"],
        "wall_s": time.perf_counter() - started,
        "cpu_s": cpu_s,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _sharded(where: str, trace: Path, scratch: Path, preset: str) -> tuple[dict[str, float], float]:
    chunks = [c for month in read_months(trace) for c in month.column("submit_time").chunks]
    submitted = pa.chunked_array(chunks, TIME)
    fit = Fit(cut=test_from(submitted, TEST_DAYS), families=FAMILIES, preset=preset, seed=0)
    seconds = submitted.cast("int64").to_numpy() / 1000
    _, figures = train_sharded(trace, scratch, seconds, simulated_pairs(0), fit, where=where)
    return figures["test"], figures["cpu_s"] + figures["features_cpu_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000, help="of the trace")
    parser.add_argument("--where", default="local:2,dask:2", help="as of pellucid train, by commas")
    parser.add_argument("--preset", default="full")
    parser.add_argument("--seed", type=int, default=7, help="of the trace")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 when over budget")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.child:
        with TemporaryDirectory(dir=wanted.folder) as scratch:
            one = child(wanted.child, wanted.folder / "trace", Path(scratch), wanted.preset)
        print(json.dumps(one))
        return
    calibration = Calibration()
    ways = [SINGLE, *wanted.where.split(",")]
    found: dict[str, Any] = {}
    with TemporaryDirectory() as scratch:
        config = default_config("large", wanted.seed)
        days = config.days * wanted.jobs // config.jobs  # as busy
        write(replace(config, jobs=wanted.jobs, days=days), Path(scratch, "trace"))
        for how in ways:
            load = os.getloadavg()[0]
            print(f"training: {how}, load {load:.1f}", file=sys.stderr)
            command = [sys.executable, "-m", "benchmarks.training", "--child", how]
            command += ["--folder", scratch, "--preset", wanted.preset]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[how] = json.loads(done.stdout.splitlines()[-1]) | {"load_before": load}
            print(found[how], file=sys.stderr)
    single = found[SINGLE]
    figures = {f"{how}_{name}": value for how in ways for name, value in found[how].items()}
    for how in ways[1:]:
        figures[f"{how}_wall_over_single"] = found[how]["wall_s"] / single["wall_s"]
        figures[f"{how}_spearman_lost"] = single["spearman"] - found[how]["spearman"]
    result = {"jobs": wanted.jobs, "preset": wanted.preset, **found}
    result["budget"] = calibration.judge(figures, BUDGET)
    over = result["budget"]["exceeded"]
    print(json.dumps(result, indent=None if wanted.json else 2))
    if wanted.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


if __name__ == "__main__":
    main()
