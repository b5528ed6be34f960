"""Runs a policy in a scenario and writes the results; compares policies over seeds.

A run folder holds decisions.parquet, jobs.parquet, bundles.json and summary.json. summary.json is
written last: a folder without it belongs to a run that did not finish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Protocol, TypedDict

import numpy as np

from features.files import leftovers, only_writer, write_json, write_table
from models.training.metrics import TAILS_S, auc
from pipeline.cluster import HERE, Keep, mapped
from pipeline.worlds.scenario import Cost, Meter, Progress, Scenario, Sink
from scheduler.core.estimates import Description, Estimator
from scheduler.explain.terms import describe
from scheduler.simulation.loop import JobResult, Outcome
from scheduler.simulation.recorder import Recorder
from scheduler.simulation.results import jct_by_vc, job_table, summarise

Figures = dict[str, Any]


class Spent(TypedDict):
    """The time and memory that this process used for a run or a comparison."""

    wall_s: float
    cpu_s: float
    peak_rss_mib: float


class Pair(TypedDict):
    """The mean difference in mean JCT between two policies on the same seeds, with its standard
    error."""

    policy: str
    against: str
    avg_jct_s_difference_mean: float
    avg_jct_s_difference_se: float | None


class Comparison(Spent):
    """The figures of policies on the same seeds.

    Attributes:
        policies: figures of each policy: mean and standard deviation over seeds.
        paired: difference between every policy and every later one in the list.
    """

    track: str
    seeds: list[int]
    loop: str
    notes: list[str]
    policies: list[Figures]
    paired: list[Pair]


class World(Protocol):
    """The interface of what policies are compared in: a `Scenario` (a cluster with its jobs), or a
    `Workload` of allocation policies (such as Gavel)."""

    @property
    def name(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def loop(self) -> str: ...

    @property
    def workload(self) -> Shown: ...

    def cluster_gpus(self) -> int: ...

    def notes_on(self, policy: str) -> list[str]: ...

    def layout(self) -> Figures: ...

    def traits(self, policy: str) -> dict[str, bool]: ...

    def simulate(
        self, name: str, *, sink: Sink | None = None, progress: Progress | None = None
    ) -> tuple[Outcome, Estimator]: ...


class Shown(Protocol):
    """The fields of a workload that the summary of every run shows."""

    @property
    def left_out(self) -> int: ...


def run(
    scenario: World,
    policy: str,
    out: Path | None = None,
    *,
    progress: Progress | None = None,
    world: Figures | None = None,
    jobs: Path | None = None,
) -> Figures:
    """Simulate one policy. With `out`, record every decision in that folder. Return the figures
    of the run, and the time and memory that it took.

    Args:
        jobs: file to write with one row per job, in addition to `out` or without it.
        world: the options with which the same world can be opened again, stored with the record;
            relative paths are relative to `out`.

    Raises FolderBusy if another process is recording a run in `out`.
    """
    with only_writer(out) if out is not None else nullcontext():
        return _run(scenario, policy, out, progress, world=world, jobs=jobs)


def _run(
    scenario: World,
    policy: str,
    out: Path | None,
    progress: Progress | None,
    world: Figures | None,
    jobs: Path | None,
) -> Figures:
    meter = Meter()
    if out is not None:
        (out / "summary.json").unlink(missing_ok=True)
        for stale in leftovers(out):  # of a run that was killed
            stale.unlink(missing_ok=True)
    with Recorder(out / "decisions.parquet") if out is not None else nullcontext() as sink:
        outcome, estimator = scenario.simulate(policy, sink=sink, progress=progress)
    figures: Figures = {
        "policy": policy,
        "scenario": scenario.name,
        "seed": scenario.seed,
        "loop": scenario.loop,
        "durations": estimator.name,
        **summarise(outcome, scenario.cluster_gpus()),
        **prediction_figures(outcome.jobs),
        "late_share": _late(outcome.jobs, scenario, policy),
        "left_out": scenario.workload.left_out,
        "notes": scenario.notes_on(policy),
    }
    if jobs is not None:
        write_table(jobs, job_table(outcome.jobs))
    if out is not None:
        write_table(out / "jobs.parquet", job_table(outcome.jobs))
        write_json(out / "bundles.json", described(estimator))
    if out is not None:  # without what it took, which differs each time
        write_json(
            out / "summary.json",
            {
                **figures,
                "jct_by_vc_s": jct_by_vc(outcome.jobs),
                **scenario.layout(),
                "traits": scenario.traits(policy),
                **({"world": world} if world is not None else {}),
            },
        )
    return figures | _rounded(meter.read())


def prediction_figures(jobs: Sequence[JobResult]) -> dict[str, float | None]:
    """Return how well the durations predicted in a run separate long jobs from others.

    The figures are the AUC of the predicted duration for "longer than 1 h" and for "longer than 6
    h", over the jobs that ended and had a prediction; None where it is not defined.
    """
    ended = [r for r in jobs if r.estimate_s is not None and r.end_time is not None]
    estimates = np.array([r.estimate_s for r in ended], dtype=np.float64)
    ran_s = np.array([r.duration_s for r in ended])
    found = {name: auc(estimates, ran_s > limit) for name, limit in TAILS_S.items()}
    return {name: value if isfinite(value) else None for name, value in found.items()}


def _late(jobs: Sequence[JobResult], scenario: World, policy: str) -> float | None:
    """Return the share of the jobs that waited for longer than the policy's starvation bound
    (`max_wait_s`); None if the policy has none, or if the world is no `Scenario`."""
    if not isinstance(scenario, Scenario):
        return None
    bound_s: float | None = getattr(scenario.spec(policy).settings, "max_wait_s", None)
    if bound_s is None:
        return None
    return sum(result.queue_s > bound_s for result in jobs) / len(jobs)


def _rounded(cost: Cost) -> Spent:
    return {
        "wall_s": round(cost.wall_s, 3),
        "cpu_s": round(cost.cpu_s, 3),
        "peak_rss_mib": round(cost.peak_rss_mib, 1),
    }


def described(estimator: Estimator) -> dict[str, Description]:
    """Return the descriptions of features and terms that are needed to read the decisions of a run:
    {digest of the bundle: description}."""
    return {digest: describe(bundle) for digest, bundle in estimator.bundles.items()} | dict(
        estimator.descriptions
    )


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a comparison: a policy on a seed."""

    policy: str
    seed: int

    def __str__(self) -> str:
        return f"{self.policy}-{self.seed}"


def compare(
    scenarios: Callable[[int], World],
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    out: Path | None = None,
    where: str = HERE,
    keep: Keep | None = None,
    progress: Callable[[Task], None] | None = None,
    world: Figures | None = None,
) -> Comparison:
    """Simulate every policy with every seed. Return the comparison of the policies.

    Args:
        scenarios: returns the world of a seed; picklable unless everything runs in this process.
        out: folder in which to write the comparison (compare.json) and to record the runs of
            the first seed, one folder per policy; of the other seeds, only the outcome of each
            job is written (`jobs-SEED.parquet`).
        where: place to run them, see `pipeline.cluster.mapped`.
        keep: the kept results of finished runs, which are not run again.
        world: the options, besides the seed, with which the same worlds can be opened again; stored
            with the records.
        progress: called with each run that is done.
    """
    meter = Meter()
    tasks = [Task(policy, seed) for seed in seeds for policy in policies]
    rows: dict[Task, Figures] = {}
    with mapped(where, keep) as over:
        found = over(_Sweep(scenarios, seeds[0], out, world), tasks)
        for task, figures in zip(tasks, found, strict=True):
            rows[task] = figures
            if progress is not None:
                progress(task)
    result: Comparison = {
        "track": rows[tasks[0]]["scenario"],
        "seeds": list(seeds),
        "loop": rows[tasks[0]]["loop"],
        "notes": [
            *dict.fromkeys(note for task in tasks for note in rows[task]["notes"]),
            *(note for one in policies if (note := not_over([rows[Task(one, s)] for s in seeds]))),
        ],
        "policies": [
            _aggregate(policy, [rows[Task(policy, seed)] for seed in seeds]) for policy in policies
        ],
        "paired": _paired(rows, policies, seeds),
        **_rounded(meter.read()),
    }
    if where != HERE or keep is not None:  # what was spent is the runs' own CPU time
        result["cpu_s"] = round(sum(row["cpu_s"] for row in rows.values()), 3)
    if out is not None:
        write_json(out / "compare.json", lasting(result))
    return result


def lasting(result: Comparison) -> Figures:
    """Return a comparison without the measured run time and memory, so that equal inputs give equal
    records."""
    spent = tuple(Spent.__annotations__)
    return {key: value for key, value in result.items() if key not in spent} | {
        "policies": [
            {key: value for key, value in row.items() if not key.startswith(spent)}
            for row in result["policies"]
        ]
    }


class _Sweep:
    """A callable that makes one run of a comparison and can be sent to another process. For
    successive runs of one seed it makes the scenario only once."""

    def __init__(
        self,
        scenarios: Callable[[int], World],
        first: int,
        out: Path | None,
        world: Figures | None = None,
    ):
        self.scenarios, self.first, self.out, self.opened = scenarios, first, out, world
        self._world: World | None = None

    def __call__(self, task: Task) -> Figures:
        if self._world is None or self._world.seed != task.seed:
            self._world = self.scenarios(task.seed)
        folder = self.out / task.policy if self.out else None
        if folder and task.seed != self.first:
            jobs = folder / f"jobs-{task.seed}.parquet"
            return run(self._world, task.policy, jobs=jobs)
        world = None if self.opened is None else {**self.opened, "seed": task.seed}
        return run(self._world, task.policy, folder, world=world)

    def __getstate__(self) -> Figures:
        return self.__dict__ | {"_world": None}


def not_over(rows: Sequence[Figures]) -> str:
    """Return a note that some jobs of a policy had not ended at the end of its runs; "" if all
    but the refused ones had.

    Args:
        rows: figures of the policy's runs, one per seed.
    """
    left = sorted({row["jobs"] - row["ended"] - row["refused"] for row in rows})
    if not left[-1]:
        return ""
    few = f"{left[0]:,} to {left[-1]:,}" if len(left) > 1 else f"{left[0]:,}"
    which, jobs = f"{rows[0]['policy']}, {rows[0]['loop']} loop", rows[0]["jobs"]
    return (
        f"{which}: {few} of {jobs:,} jobs were not over when the run ended. They are in no "
        "average, so it does not compare."
    )


_NOT_FIGURES = {"policy", "scenario", "seed", "loop", "durations", "notes"}


def _aggregate(policy: str, rows: list[Figures]) -> Figures:
    out: Figures = {"policy": policy, "durations": rows[0]["durations"], "runs": len(rows)}
    for key in rows[0]:
        if key in _NOT_FIGURES:
            continue
        if any(row[key] is None for row in rows):  # it means nothing in this world
            out[f"{key}_mean"] = out[f"{key}_sd"] = None
            continue
        values = np.array([row[key] for row in rows], dtype=float)
        out[f"{key}_mean"] = float(values.mean())
        out[f"{key}_sd"] = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        out[f"{key}_each"] = values.tolist()
    several = len(rows) > 1
    out["avg_jct_se_s"] = out["avg_jct_s_sd"] / sqrt(len(rows)) if several else None
    return out


def _paired(rows: dict[Task, Figures], policies: Sequence[str], seeds: Sequence[int]) -> list[Pair]:
    """Return the differences in mean JCT, seconds, on the same seeds, of every policy less every
    later one, with standard errors (None with one seed)."""
    out = list[Pair]()
    for i, a in enumerate(policies):
        for b in policies[i + 1 :]:
            d = np.array(
                [rows[Task(a, s)]["avg_jct_s"] - rows[Task(b, s)]["avg_jct_s"] for s in seeds]
            )
            error = float(d.std(ddof=1) / np.sqrt(len(d))) if len(d) > 1 else None
            out.append(
                {
                    "policy": a,
                    "against": b,
                    "avg_jct_s_difference_mean": float(d.mean()),
                    "avg_jct_s_difference_se": error,
                }
            )
    return out
