"""Reads what `pellucid compare` wrote: its figures, and the runs of its first seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.explain.run import DECISIONS, JOBS, RunError, RunFolder, read_object, seconds
from pipeline.report.paired import Paired, paired
from pipeline.tables import Floats, filled

COMPARE = "compare.json"
OURS = "pellucid"
_COLUMNS = [
    "job_id", "user", "vc", "gpus", "duration_s", "submit_time", "end_time", "jct_s", "queue_s",
    "ran_s", "estimate_s", "pairings", "ended_in_profiling",
]  # fmt: skip


@dataclass
class PolicyRun:
    """The runs of one policy in a comparison: that of the first draw (seed), and the figures of all
    draws.

    Attributes:
        name: name of the policy.
        oracle: whether the policy knows true durations. Such a policy gives a bound, and is not
            ranked with the others.
        preemptive: whether the policy may stop running jobs.
        estimates: whether the policy uses predicted durations.
        folder: the folder of the run.
        jobs: table with one row per job of the first draw; times in seconds since the epoch (null:
            never).
        draws: such tables of all recorded draws, including the first.
        figures: figures of the comparison: `NAME_mean`, `NAME_sd` and `NAME_each` over the draws.
    """

    name: str
    oracle: bool
    preemptive: bool
    estimates: bool
    folder: RunFolder
    jobs: pa.Table
    draws: list[pa.Table]
    figures: Mapping[str, Any]

    def mean(self, figure: str) -> float | None:
        """Return the mean of a figure over the draws; None if it was not recorded."""
        value = self.figures.get(f"{figure}_mean", self.folder.summary.get(figure))
        return None if value is None else float(value)

    def each(self, figure: str) -> Floats:
        """Return the values of a figure in all draws for which it was recorded, (draws,)."""
        each = self.figures.get(f"{figure}_each")
        if each is None and (one := self.mean(figure)) is not None:
            each = [one]
        return np.array(each or [], dtype=np.float64)

    @property
    def ended(self) -> pa.Table:
        """Return the jobs of the first draw (seed) that ended."""
        return _ended(self.jobs)

    def ended_each(self) -> list[pa.Table]:
        """Return, for each draw (seed), the jobs that ended."""
        return [_ended(jobs) for jobs in self.draws]

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the whole cluster; 0 if it was not recorded."""
        return sum(self.gpus_by_vc.values())

    @property
    def gpus_by_vc(self) -> dict[str, int]:
        """Return the number of GPUs by virtual cluster; {} if it was not recorded."""
        recorded = self.folder.summary.get("gpus_by_vc", {})
        return {str(vc): int(gpus) for vc, gpus in recorded.items()}

    def decisions(self, columns: list[str], actions: list[str]) -> pa.Table:
        """Return the decisions with one of these actions, in the order in which they were made;
        times are seconds since the epoch."""
        where = pc.field("action").isin(actions)
        return seconds(self.folder.table(DECISIONS, columns, where)).sort_by("seq")


@dataclass
class Comparison:
    """The runs of a comparison, in the order in which the user named the policies.

    Attributes:
        coming: number of draws of the comparison that are still running.
    """

    track: str
    seeds: list[int]
    runs: list[PolicyRun]
    coming: int = 0

    def run(self, name: str) -> PolicyRun | None:
        """Return the run of the policy with this name, or None."""
        return next((r for r in self.runs if r.name == name), None)

    def ranked(self, *, oracle: bool) -> list[PolicyRun]:
        """Return the runs of oracles (policies that know true durations), or those of the other
        policies, the lowest average JCT first."""
        chosen = [r for r in self.runs if r.oracle is oracle and r.mean("avg_jct_s") is not None]
        return sorted(chosen, key=lambda r: r.mean("avg_jct_s") or 0.0)

    @property
    def best(self) -> PolicyRun:
        """Return the run with the lowest average JCT among policies that are no oracles (do not
        know true durations), or among oracles if there are no others. If no average is known,
        return the first run."""
        return [*self.ranked(oracle=False), *self.ranked(oracle=True), *self.runs][0]

    @property
    def own(self) -> PolicyRun:
        """Return the run of the policy that the report is about: Pellucid's, or else the best."""
        return self.run(OURS) or self.best

    def paired(self, other: PolicyRun, key: str, better: int = -1) -> Paired | None:
        """Return a figure of the report's own policy compared with that of another, on the same
        draws. `key` names the figure; `better` is -1 if less is better, +1 if more is."""
        return paired(self.own.each(key), other.each(key), better, coming=self.coming)


def read_comparison(folder: Path, coming: int = 0) -> Comparison:
    """Read what `pellucid compare --out` (or one `simulate --out`) wrote. Return the comparison.

    Raises RunError, which names the file that is missing or unreadable.

    Args:
        coming: number of draws that are still running.
    """
    if (folder / DECISIONS).is_file():
        run = _read_run(folder, {})
        track = str(run.folder.summary.get("scenario", run.folder.summary.get("track", "")))
        return Comparison(track, [int(run.folder.summary.get("seed", 0))], [run], coming)
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder; give the --out folder of pellucid compare")
    document = read_object(folder / COMPARE)
    try:
        rows = list(document["policies"])
        seeds = document.get("seeds", [0])
        chosen = [int(s) for s in seeds] if isinstance(seeds, list) else list(range(int(seeds)))
        runs = [_read_run(folder / str(row["policy"]), row, chosen[1:]) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{folder / COMPARE} does not follow the format ({error})") from None
    if not runs:
        raise RunError(f"{folder / COMPARE} compares no policy")
    return Comparison(str(document.get("track", "")), chosen, runs, coming)


def _read_run(folder: Path, figures: Mapping[str, Any], more: Sequence[int] = ()) -> PolicyRun:
    run = RunFolder(folder)
    name = str(figures.get("policy", run.summary.get("policy", folder.name)))
    traits = run.summary.get("traits", {})
    names = [JOBS, *(f"jobs-{seed}.parquet" for seed in more)]
    draws = [_read_jobs(run, name) for name in names if (folder / name).is_file()]
    return PolicyRun(
        name,
        oracle=bool(traits.get("oracle")),
        preemptive=bool(traits.get("preemptive")),
        estimates=bool(traits.get("estimates")),
        folder=run,
        jobs=draws[0] if draws else _read_jobs(run, JOBS),
        draws=draws,
        figures=figures,
    )


def _read_jobs(run: RunFolder, name: str) -> pa.Table:
    return filled(seconds(run.table(name, _COLUMNS)), user="(none)", vc="(none)")


def _ended(jobs: pa.Table) -> pa.Table:
    return jobs.filter(jobs["end_time"].is_valid())
