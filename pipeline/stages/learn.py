"""Stage `learn`: measures how much history helps. It gives the models more and more history, and
compares the resulting schedules.

For each amount of history, all older jobs are cut off the trace, so that models, features and the
estimator do not know them. The duration model is trained on the rest, and the same policy schedules
the same days with it. That is done for several draws, because draws differ by more than amounts of
history do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.codec import Json
from features.files import write_json, write_whole
from features.rows import training_rows
from models.bundle import Bundle
from models.training.duration import LIKE, MIN_ROWS, fit_at, knows_histories
from models.training.metrics import duration_metrics
from pipeline.cluster import mapped
from pipeline.stages.common import (
    BUNDLE,
    DRAWS,
    METRICS,
    PLOTS,
    TRACE,
    Params,
    Shown,
    agreed,
    drawn,
    test_from,
    unseen,
    workers,
)
from pipeline.traces import read_dataset
from pipeline.worlds import plain
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.playing import Playing
from scheduler.assembly import CoreSpec
from scheduler.simulation.results import summarise

HISTORY = (1_000,)  # jobs, between none and all of them
POLICY = "pellucid"
EVERYTHING = -1
DRAWN = 5  # draws replayed with each amount: a model is trained for every one


@dataclass(frozen=True)
class Known:
    """A task of the stage: a draw of the trace (`seed`), and the number of last submissions
    before the test days that the model may learn from (`jobs`; `EVERYTHING`: all)."""

    jobs: int
    seed: int


@dataclass(frozen=True)
class Learner:
    """A callable that computes errors and average JCT for a draw with an amount of history. It can
    be sent to another process."""

    params: Params
    trace: Path
    draws: Path
    bundle: Path

    def read(self, seed: int) -> tuple[pa.Table, float, int]:
        """Return (trace of a draw, start of its test days in seconds since the epoch, number of
        jobs submitted before)."""
        trace = read_dataset(drawn(self.trace, self.draws, seed, self.params.simulate.seed))
        cut = test_from(trace.column("submit_time"), self.params.train.test_days)
        before = pc.less(trace.column("submit_time").cast(pa.int64()), int(cut * 1000))
        return trace, cut, pc.sum(before).as_py()

    def __call__(self, known: Known) -> dict[str, float]:
        trace, cut, submitted = self.read(known.seed)
        jobs = submitted if known.jobs == EVERYTHING else known.jobs
        with TemporaryDirectory() as scratch:
            return point(
                self.params,
                trace.slice(submitted - jobs),
                cut,
                known.seed,
                exported=Bundle.load(self.bundle),
                folder=Path(scratch),
            ) | {"jobs": jobs}


def run(params: Params, shown: Shown = unseen) -> str:
    learner = Learner(params, TRACE, DRAWS, BUNDLE)
    seeds = params.simulate.seeds[:DRAWN]
    amounts_ = amounts(min(learner.read(seed)[2] for seed in seeds))
    tasks = [Known(jobs, seed) for jobs in amounts_ for seed in seeds]
    shown(0, len(tasks))
    found = []
    with mapped(workers()) as over:
        for figures in over(learner, tasks):
            found.append(figures)
            shown(len(found), len(tasks))
    each = len(seeds)
    points = [together(found[i : i + each]) for i in range(0, len(found), each)]
    write_json(METRICS / "learning.json", agreed({"policy": POLICY, "points": points}))
    rows = [f"{point['jobs']},{point['avg_jct_s']:.6g}" for point in points]
    write_whole(PLOTS / "learning.csv", "\n".join(["jobs,avg_jct_s", *rows, ""]))
    first, last = points[0], points[-1]
    return (
        f"{first['jobs']:,} to {last['jobs']:,} jobs seen: average JCT "
        f"{first['avg_jct_s']:,.0f} s to {last['avg_jct_s']:,.0f} s"
    )


def amounts(submitted: int) -> list[int]:
    """Return the amounts of history to try, as numbers of jobs, ascending from 0. The last is
    `EVERYTHING`, which stands for all `submitted` jobs."""
    return [0, *(n for n in HISTORY if n < submitted), EVERYTHING]


def together(draws: Sequence[dict[str, float]]) -> Json:
    """Return the means over the draws of the figures that all draws have, and the average JCT of
    each draw."""
    common = [name for name in draws[0] if all(name in one for one in draws)]
    found = {name: float(np.mean([one[name] for one in draws])) for name in common}
    return found | {
        "jobs": round(found["jobs"]),
        "draws": len(draws),
        "avg_jct_each_s": [one["avg_jct_s"] for one in draws],
    }


def point(
    params: Params, known: pa.Table, cut: float, seed: int, *, exported: Bundle, folder: Path
) -> dict[str, float]:
    """Return errors and average JCT if only the jobs `known`, up to the time `cut`, are known.

    If they are too few to fit a model on, durations are predicted by histories of similar jobs
    alone.
    """
    rows = training_rows(known, families=params.features.families)
    seen, test = rows.ended_before(cut), rows.where((rows.time >= cut) & np.isfinite(rows.y))
    found: dict[str, float] = {"ended": len(seen)}
    bundle: Path | None = None
    if len(seen) >= MIN_ROWS:
        model = fit_at(rows, cut, seed=params.train.seed, preset="fast").model
        found |= duration_metrics(model.score_batch(test.X), test.y, test.gpus)
        bundle = Bundle(
            duration=model, packing=exported.packing, pair_speed=exported.pair_speed
        ).save(folder)
    elif knows_histories(test.X):
        estimates = test.X[list(LIKE)].to_numpy().sum(axis=1)
        found |= duration_metrics(estimates, test.y, test.gpus)
    spec = read_cluster(Path(params.cluster))
    return found | _replayed(known, spec, bundle, since=cut, seed=seed)


def _replayed(
    known: pa.Table, spec: CoreSpec, bundle: Path | None, since: float, seed: int
) -> dict[str, float]:
    world = plain.scenario(
        table=known,
        name="learn",
        cluster=spec.cluster,
        profiling=spec.profiling,
        playing=Playing(bundle=bundle, seed=seed, since=since),
    )
    outcome, _ = world.simulate(POLICY)
    summary = summarise(outcome, spec.cluster.gpus)
    return {"avg_jct_s": summary["avg_jct_s"], "avg_queue_s": summary["avg_queue_s"]}
