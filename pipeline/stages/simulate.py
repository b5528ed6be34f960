"""Stage `simulate`: every policy on the days the exported bundle was not trained on."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from features.files import write_json, write_whole
from pipeline import runs
from pipeline.stages.common import (
    BUNDLE,
    METRICS,
    PLOTS,
    RUNS,
    TRACE,
    Params,
    stage,
    test_from,
)
from pipeline.traces import read_dataset
from pipeline.worlds import open_scenario

KEPT = ("avg_jct_s", "avg_queue_s", "p99_queue_s", "gpu_utilisation", "packed_jobs", "preemptions")
HEADLINE = ("fifo", "lucid", "pellucid")  # of these `dvc metrics show` tells; plots, of all


def run(params: Params) -> str:
    cut = test_from(read_dataset(TRACE).column("submit_time"), params.train.test_days)
    asked: dict[str, Any] = {
        "cluster": params.cluster,
        "durations": params.simulate.durations,
        "bundle": BUNDLE,
        "since": cut,
    }
    told = {k: str(v.resolve()) if isinstance(v, Path) else v for k, v in asked.items()}
    result = runs.compare(
        lambda seed: open_scenario(TRACE, **asked, seed=seed),
        params.simulate.policies,
        [params.simulate.seed],
        out=RUNS,
        progress=lambda task: print(f"simulate: {task.policy} done", flush=True),
        world={"trace": str(TRACE.resolve()), **told},
    )
    policies: list[dict[str, Any]] = result["policies"]
    figures = {row["policy"]: {key: row[f"{key}_mean"] for key in KEPT} for row in policies}
    jct_s = {name: round(float(row["avg_jct_s"])) for name, row in figures.items()}
    shown = [name for name in HEADLINE if name in jct_s] or list(jct_s)
    write_json(METRICS / "policies.json", {"jct_s": {name: jct_s[name] for name in shown}})
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["policy", *KEPT])
    for name, row in figures.items():
        writer.writerow([name, *(f"{row[key]:.6g}" for key in KEPT)])
    write_whole(PLOTS / "policies.csv", out.getvalue())
    best = min(figures, key=lambda name: float(figures[name]["avg_jct_s"]))
    return f"{len(figures)} policies; lowest average JCT: {best}"


if __name__ == "__main__":
    stage("simulate", run)
