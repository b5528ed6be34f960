"""Measures training at scale: one process against several, on a generated trace.

    python -m benchmarks.training --json [--jobs 1000000] [--where local:2,dask:2]

Each way of training (one process, local workers, dask) reads the trace, makes the rows and fits the
duration model as `pellucid train` does. It runs in a process of its own, so that peak memory is
measured for it alone. Errors are those of the last seven days.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.calibration import program
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


def train(how: str, trace: Path, scratch: Path, preset: str) -> dict[str, float]:
    """Train in this process, in the way that `how` names. Return prediction errors, wall seconds,
    CPU seconds of making rows and of fitting, and this process's peak memory.
    """
    load, started, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
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
        "load_before": load,
    }


def _sharded(where: str, trace: Path, scratch: Path, preset: str) -> tuple[dict[str, float], float]:
    chunks = [c for month in read_months(trace) for c in month.column("submit_time").chunks]
    submitted = pa.chunked_array(chunks, TIME)
    fit = Fit(cut=test_from(submitted, TEST_DAYS), families=FAMILIES, preset=preset, seed=0)
    seconds = submitted.cast("int64").to_numpy() / 1000
    _, figures = train_sharded(trace, scratch, seconds, simulated_pairs(0), fit, where=where)
    return figures["test"], figures["cpu_s"] + figures["features_cpu_s"]


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of every way of training, and the ratios of each to the single process."""
    ways = [SINGLE, *asked.where.split(",")]
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        trace, config = Path(folder, "trace"), default_config("large", asked.seed)
        days = config.days * asked.jobs // config.jobs  # as busy
        write(replace(config, jobs=asked.jobs, days=days), trace)
        for number, how in enumerate(ways):
            scratch = Path(folder, str(number))
            scratch.mkdir()
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                found[how] = alone.submit(train, how, trace, scratch, asked.preset).result()
    figures = {f"{how}_{name}": value for how in ways for name, value in found[how].items()}
    for how in ways[1:]:
        figures[f"{how}_wall_over_single"] = found[how]["wall_s"] / found[SINGLE]["wall_s"]
        figures[f"{how}_spearman_lost"] = found[SINGLE]["spearman"] - found[how]["spearman"]
    return {"jobs": asked.jobs, "preset": asked.preset, **figures}


if __name__ == "__main__":
    program(
        __doc__,
        BUDGET,
        measure,
        jobs={"type": int, "default": 1_000_000, "help": "of the trace"},
        where={"default": "local:2,dask:2", "help": "as of pellucid train, by commas"},
        preset={"default": "full"},
        seed={"type": int, "default": 7, "help": "of the trace"},
    )
