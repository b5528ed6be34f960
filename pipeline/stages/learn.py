"""Stage `learn`: what history is worth. More and more of it, and the schedules it makes.

For each amount everything older is cut off the trace: models, features and the running estimator
know nothing of it. What is left trains the duration model, and the same policy schedules the same
days with it, in several jittered replays: one differs from the next by more than history does.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.files import write_json, write_whole
from features.rows import training_rows
from models.bundle import Bundle
from models.training.duration import LIKE, MIN_ROWS, fit_duration, knows_histories
from models.training.metrics import duration_metrics
from pipeline.stages.common import BUNDLE, METRICS, PLOTS, TRACE, Params, stage, test_from
from pipeline.traces import read_dataset
from pipeline.worlds import plain
from pipeline.worlds.cluster_file import read_cluster
from scheduler.assembly import CoreSpec
from scheduler.simulation.results import summarise

HISTORY = (300, 1_000, 10_000)
REPLAYS = 4
POLICY = "pellucid"


def run(params: Params) -> str:
    trace = read_dataset(TRACE)
    cut = test_from(trace.column("submit_time"), params.train.test_days)
    exported = Bundle.load(BUNDLE)
    before = pc.less(trace.column("submit_time").cast(pa.int64()), int(cut * 1000))
    with TemporaryDirectory() as scratch:
        points = [
            point(params, trace, cut, jobs, exported, Path(scratch, str(jobs)))
            for jobs in amounts(pc.sum(before).as_py())
        ]
    write_json(METRICS / "learning.json", {"policy": POLICY, "points": points})
    rows = [f"{point['jobs']},{point['avg_jct_s']:.6g}" for point in points]
    write_whole(PLOTS / "learning.csv", "\n".join(["jobs,avg_jct_s", *rows, ""]))
    first, last = points[0], points[-1]
    return (
        f"{first['jobs']:,} to {last['jobs']:,} jobs seen: average JCT "
        f"{first['avg_jct_s']:,.0f} s to {last['avg_jct_s']:,.0f} s"
    )


def amounts(submitted: int) -> list[int]:
    """Jobs of history to try, none first, everything last."""
    return [0, *(n for n in HISTORY if n < submitted), submitted]


def point(
    params: Params, trace: pa.Table, cut: float, jobs: int, exported: Bundle, folder: Path
) -> dict[str, Any]:
    """Errors and average JCT when only the last `jobs` submissions before `cut` are known.

    With too few to fit a model on, durations are what the histories alone say.
    """
    submitted = trace.column("submit_time").cast(pa.int64()).to_numpy() / 1000
    start = int(np.searchsorted(submitted, cut)) - jobs  # a dataset is in order of submission
    known = trace.slice(start)
    rows = training_rows(known, families=params.features.families)
    seen, test = rows.ended_before(cut), rows.where((rows.time >= cut) & np.isfinite(rows.y))
    found: dict[str, Any] = {"jobs": jobs, "ended": len(seen)}
    bundle: Path | None = None
    if len(seen) >= MIN_ROWS:
        model = fit_duration(
            seen.X, seen.y, seen.time, seen.features, seed=params.train.seed, preset="fast"
        ).model
        found |= duration_metrics(model.score_batch(test.X), test.y, test.gpus)
        bundle = Bundle(
            duration=model, packing=exported.packing, pair_speed=exported.pair_speed
        ).save(folder)
    elif knows_histories(test.X):
        said = test.X[list(LIKE)].to_numpy().sum(axis=1)
        found |= duration_metrics(said, test.y, test.gpus)
    spec = read_cluster(Path(params.cluster))
    replays = [
        _replayed(known, spec, bundle, cut, params.simulate.seed + i) for i in range(REPLAYS)
    ]
    return {
        **found,
        **{name: float(np.mean([one[name] for one in replays])) for name in replays[0]},
        "avg_jct_each_s": [one["avg_jct_s"] for one in replays],
    }


def _replayed(
    known: pa.Table, spec: CoreSpec, bundle: Path | None, since: float, seed: int
) -> dict[str, float]:
    world = plain.scenario(
        known, "learn", spec.cluster, spec.profiling, bundle=bundle, seed=seed, since=since
    )
    outcome, _ = world.simulate(POLICY)
    summary = summarise(outcome, spec.cluster.gpus)
    return {name: summary[name] for name in ("avg_jct_s", "avg_queue_s")}


if __name__ == "__main__":
    stage("learn", run)
