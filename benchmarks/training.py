"""Training at scale: one fit against shards, on rows made by a stated rule.

    python -m benchmarks.training --json [--rows 1000000] [--dask 2]

Every fit runs in a process of its own, so that its peak memory is its own. The rows are drawn, not
replayed: 20 features, a target with main effects, three interactions and noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from benchmarks.calibration import Calibration
from features.rows import DAY_S, Rows
from features.spec import FeatureSpec

FEATURES, INTERACTIONS = 20, 10
SAMPLED = 0.1  # share of the rows in the fit on a sample
SPECS = tuple(
    FeatureSpec(f"x{i:02d}", "nominal" if i >= 17 else "continuous", "bench")
    for i in range(FEATURES)
)
BUDGET = Path(__file__).with_name("training_budget.json")


def drawn(n: int, seed: int) -> Rows:
    """Rows by a stated rule; a twentieth of the numbers is missing."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 17))
    labels = [rng.zipf(1.6, n).clip(max=200) for _ in range(3)]
    score = 5.0 + np.sin(2 * numbers[:, 0]) + 0.7 * np.abs(numbers[:, 1]) + 0.5 * numbers[:, 2]
    score += 0.6 * numbers[:, 3] * numbers[:, 4] + 0.5 * (numbers[:, 5] > 0) * numbers[:, 6]
    score += 0.4 * np.tanh(numbers[:, 7] * numbers[:, 8]) + 0.8 * np.sin(labels[0] % 17)
    score += 0.3 * (labels[1] % 3) + rng.normal(0, 1.0, n)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    columns: dict[str, Any] = {f"x{i:02d}": numbers[:, i] for i in range(17)}
    columns |= {f"x{17 + i}": np.char.add("k", labels[i].astype(str)).astype(object)
                for i in range(3)}  # fmt: skip
    time = np.sort(rng.uniform(0, 60 * DAY_S, n))
    y = np.expm1(np.clip(score, 0.0, 14.0))
    return Rows(
        features=SPECS,
        X=pd.DataFrame(columns),
        y=y,
        job_id=np.arange(n).astype(str).astype(object),
        moment=np.full(n, "submit", dtype=object),
        time=time,
        submit_time=time,
        start_time=time,
        end_time=time + y,
        gpus=np.ones(n, dtype=np.int64),
        block=(time // DAY_S).astype(np.int64),
    )


def child(how: str, folder: Path, dask: int) -> dict[str, float]:
    """One fit in this process: error on the rows held out, CPU seconds, peak memory."""
    from dataclasses import replace

    from models.training.duration import PRESETS, fit_duration
    from models.training.sharded import fit_sharded

    preset = replace(PRESETS["fast"], interactions=INTERACTIONS)
    files = sorted(folder.glob("shard-*.parquet"))
    if how in ("single", "sampled"):
        import pyarrow as pa

        table = pa.concat_tables([pq.read_table(file) for file in files])
        if how == "sampled":
            kept = np.random.default_rng(0).random(len(table)) < SAMPLED
            table = table.filter(pa.array(kept))
        rows = Rows.from_table(table)
        model = fit_duration(rows.X, rows.y, rows.time, rows.features, seed=0, preset=preset).model
        cpu = 0.0
    elif how == "sharded":
        model, told = fit_sharded(files, seed=0, preset=preset)
        cpu = 0.0
    else:
        from pipeline.cluster import mapped

        with mapped(f"dask:{dask}") as map_shards:
            model, told = fit_sharded(files, seed=0, preset=preset, map_shards=map_shards)
            cpu = told["cpu_s"]  # of the workers, as they told it
    usage = resource.getrusage(resource.RUSAGE_SELF)
    test = Rows.from_table(pq.read_table(folder / "test.parquet"))
    missed = model.score_batch(test.X) - np.log1p(test.y)
    return {
        "rmse": float(np.sqrt(np.mean(missed**2))),
        "cpu_s": cpu or usage.ru_utime + usage.ru_stime,
        "peak_rss_mib": usage.ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--dask", type=int, default=2, help="workers of the Dask run; 0: none")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit 1 when over budget")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.child:
        print(json.dumps(child(wanted.child, wanted.folder, wanted.dask)))
        return
    calibration = Calibration()
    kinds = ["single", "sampled", "sharded", *(["dask"] if wanted.dask else [])]
    with TemporaryDirectory() as scratch:
        per_shard = wanted.rows // wanted.shards
        for i in range(wanted.shards):
            table = drawn(per_shard, i).table()
            pq.write_table(table, f"{scratch}/shard-{i:03d}.parquet", row_group_size=50_000)
        pq.write_table(drawn(50_000, 10_000).table(), f"{scratch}/test.parquet")
        found = {}
        for how in kinds:
            print(f"fitting: {how}", file=sys.stderr)
            command = [sys.executable, "-m", "benchmarks.training", "--child", how]
            command += ["--folder", scratch, "--dask", str(wanted.dask)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[how] = json.loads(done.stdout.splitlines()[-1])
    result = {
        "rows": per_shard * wanted.shards,
        "features": FEATURES,
        "interactions": INTERACTIONS,
        "noise_rmse": 1.0,
        **found,
        "ratios": {
            f"{how}_rmse_over_single": found[how]["rmse"] / found["single"]["rmse"]
            for how in kinds[1:]
        },
    }
    figures = {f"single_{name}": value for name, value in found["single"].items()}
    result["budget"] = calibration.judge({**figures, **result["ratios"]}, BUDGET)
    over = result["budget"]["exceeded"]
    print(json.dumps(result, indent=None if wanted.json else 2))
    if wanted.check and over:
        sys.exit(f"over budget: {', '.join(over)}")


if __name__ == "__main__":
    main()
