"""Stage `simulate`: simulates every policy on the days that the exported bundle was not trained on,
for each draw."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path

from features.codec import Json
from features.files import write_json, write_whole
from pipeline import runs
from pipeline.stages.common import (
    BUNDLE,
    DRAWS,
    METRICS,
    PLOTS,
    RUNS,
    TRACE,
    Params,
    Shown,
    drawn,
    test_from,
    unseen,
    workers,
)
from pipeline.traces import read_dataset
from pipeline.worlds import Scenario, open_scenario

KEPT = ("avg_jct_s", "avg_queue_s", "p99_queue_s", "gpu_utilisation", "packed_jobs", "preemptions")
HEADLINE = ("fifo", "lucid", "pellucid")  # of these `dvc metrics show` tells; plots, of all


@dataclass(frozen=True)
class Draws:
    """A callable that returns the scenario (a cluster with its jobs) of a seed: the test days
    of the trace that was generated for the seed; if none was, those of the first trace, with
    submit times that every seed but 0 moves slightly."""

    trace: Path
    draws: Path
    first: int
    test_days: float
    cluster: Path
    durations: str | None
    bundle: Path

    def __call__(self, seed: int) -> Scenario:
        trace = drawn(self.trace, self.draws, seed, self.first)
        return open_scenario(
            trace,
            cluster=self.cluster,
            durations=self.durations,
            bundle=self.bundle,
            since=self.since(trace),
            seed=seed,
        )

    def since(self, trace: Path) -> float:
        return test_from(read_dataset(trace).column("submit_time"), self.test_days)

    def describe(self, out: Path) -> Json:
        """Return the options with which the world of the first draw can be opened again, to be
        stored with runs in folders of `out`. Paths are relative to these folders, so that the
        record does not depend on where the project is."""
        return {
            "cluster": relpath(self.cluster, out / "policy"),
            "durations": self.durations,
            "bundle": relpath(self.bundle, out / "policy"),
            "since": self.since(self.trace),
            "trace": relpath(self.trace, out / "policy"),
        }


def compared(
    params: Params, *, trace: Path, draws: Path, bundle: Path, out: Path, shown: Shown
) -> runs.Comparison:
    """Run every policy on every draw. Return the comparison of `pipeline.runs.compare`."""
    wanted = params.simulate
    days = params.train.test_days
    worlds = Draws(
        trace=trace,
        draws=draws,
        first=wanted.seed,
        test_days=days,
        cluster=params.cluster,
        durations=wanted.durations,
        bundle=bundle,
    )
    done, of = 0, len(wanted.seeds) * len(wanted.policies)
    shown(0, of)

    def one(_: runs.Task) -> None:
        nonlocal done
        done += 1
        shown(done, of)

    return runs.compare(
        worlds,
        wanted.policies,
        wanted.seeds,
        out=out,
        where=workers(),
        progress=one,
        world=worlds.describe(out),
    )


def run(params: Params, shown: Shown = unseen) -> str:
    result = compared(params, trace=TRACE, draws=DRAWS, bundle=BUNDLE, out=RUNS, shown=shown)
    figures = {
        row["policy"]: {key: row[f"{key}_mean"] for key in KEPT} for row in result["policies"]
    }
    jct_s = {name: round(float(row["avg_jct_s"])) for name, row in figures.items()}
    names = [name for name in HEADLINE if name in jct_s] or list(jct_s)
    write_json(METRICS / "policies.json", {"jct_s": {name: jct_s[name] for name in names}})
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["policy", *KEPT])
    for name, row in figures.items():
        writer.writerow([name, *(f"{row[key]:.6g}" for key in KEPT)])
    write_whole(PLOTS / "policies.csv", out.getvalue())
    best = min(figures, key=lambda name: float(figures[name]["avg_jct_s"]))
    seeds = len(params.simulate.seeds)
    return f"{len(figures)} policies, {seeds} draws each; lowest average JCT: {best}"
