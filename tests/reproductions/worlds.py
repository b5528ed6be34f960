"""Small, awkward worlds for the contract of allocation policies."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from features.job import Job
from reproductions.allocation.allocation import Node
from reproductions.allocation.nature import GroundTruth
from reproductions.allocation.policy import AllocationPolicy
from reproductions.allocation.statistics import Statistic
from reproductions.allocation.throughputs import (
    THROUGHPUTS,
    Kind,
    StepWork,
    TableGroundTruth,
    Terms,
    ThroughputTable,
)
from reproductions.workloads.pollux.applications import Application
from reproductions.workloads.pollux.nature import TrainingGroundTruth

BATCHES = {"large": (64, 128, 256), "small": (8, 16, 32)}
MODELS = ("a", "b")
TYPES = ("fast", "slow")


@dataclass(frozen=True)
class World:
    """A cluster and jobs: (job, what it trains, batch size or thousands of steps)."""

    nodes: tuple[Node, ...]
    jobs: tuple[tuple[Job, str, int], ...]

    def until(self, when: float) -> World:
        """The same world without the jobs that are submitted later."""
        return World(self.nodes, tuple(row for row in self.jobs if row[0].submit_time <= when))

    def ground_truth(self, policy: AllocationPolicy) -> GroundTruth:
        if THROUGHPUTS in policy.needs:
            work = {
                job.job_id: StepWork(Kind(what, job.gpus), steps, Terms())
                for job, what, steps in self.jobs
            }
            lease_s: float | None = getattr(policy, "lease_s", None)
            return TableGroundTruth(work, table(), self.nodes, lease_s=lease_s)
        trains = {job.job_id: (what, batch) for job, what, batch in self.jobs}
        return TrainingGroundTruth(applications(), trains, whole_seconds=False)


@st.composite
def worlds(draw: st.DrawFn, needs: tuple[Statistic[object], ...]) -> World:
    """At most four nodes and six jobs, of which some can never run."""
    by_table = THROUGHPUTS in needs
    sizes = draw(st.lists(st.sampled_from((1, 2, 4)), min_size=2, max_size=4))
    types = TYPES if by_table else ("",)
    nodes = tuple(Node(i, size, types[i % len(types)]) for i, size in enumerate(sizes))
    jobs = []
    now = 0.0
    for i in range(draw(st.integers(1, 6))):
        now += draw(st.sampled_from((0.0, 7.5, 60.0, 400.0)))
        gpus = draw(st.sampled_from((1, 1, 2, 4)))
        if by_table:
            what = draw(st.sampled_from((*MODELS, *MODELS, "nobody knows")))
            size = draw(st.sampled_from((50, 400, 3000)))
        else:
            what = draw(st.sampled_from(("large", "small", "small", "nobody knows")))
            size = draw(st.sampled_from(BATCHES.get(what, (8,))))
        jobs.append((Job(f"job-{i}", now, gpus, user=f"user-{i % 2}", vc="vc"), what, size))
    return World(nodes, tuple(jobs))


@cache
def table() -> ThroughputTable:
    """Two models, the second of which gains little on the fast type; neither of four slow GPUs."""
    rate = {"fast": {"a": 4.0, "b": 2.0}, "slow": {"a": 1.0, "b": 1.5}}
    alone = {t: {Kind(m, s): rate[t][m] * s**0.9 for m in MODELS for s in (1, 2, 4)} for t in TYPES}
    alone["slow"][Kind("a", 4)] = 0.0
    pairs = {
        t: {
            (Kind(a, s), Kind(b, s)): (0.7 * alone[t][Kind(a, s)], 0.6 * alone[t][Kind(b, s)])
            for a, b in product(MODELS, MODELS)
            for s in (1, 2, 4)
        }
        for t in TYPES
    }
    return ThroughputTable(alone, pairs)


@cache
def applications() -> dict[str, Application]:
    """Two applications made up by a formula, as files of the adapter's format."""
    with TemporaryDirectory() as folder:
        made = {}
        for name, batches in BATCHES.items():
            path = Path(folder) / name
            path.mkdir()
            _write(path, batches)
            made[name] = Application(path)
        return made


def _write(folder: Path, batches: tuple[int, ...]) -> None:
    per_gpu = (batches[0] // 8, batches[0] // 2, batches[0])
    _csv(folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time"), (
        ("".join(map(str, gpus)), m, *_times(len(gpus), sum(gpus), m / batches[0]))
        for count in range(1, 5)
        for gpus in product(range(1, 5), repeat=count)
        if gpus == min(gpus[i:] + gpus[:i] for i in range(count))
        for m in per_gpu
    ))  # fmt: skip
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    _csv(folder / "scalability.csv", columns, (
        (n, n * k, m, *_times(n, n * k, m / batches[0]))
        for n in (6, 16) for k in (1, 4) for m in per_gpu
    ))  # fmt: skip
    for batch in batches:
        scale = batch / batches[0]
        _csv(
            folder / f"validation-{batch}.csv",
            ("progress", "iteration", "metric", "grad_sqr", "grad_var"),
            ((100 * e, int(100 * e / scale), 0.9 - 0.5 / e, 1.0 / e, 2.0) for e in (1, 2, 3)),
        )


def _times(nodes: int, gpus: int, load: float) -> tuple[float, float]:
    """Seconds of a step and of synchronising in it."""
    sync = 0.0 if gpus == 1 else (0.05 if nodes == 1 else 0.15) + 0.005 * gpus
    return 0.1 + 0.5 * load + sync, sync


def _csv(path: Path, columns: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
