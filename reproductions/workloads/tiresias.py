"""Workloads of Tiresias (NSDI'19): gangs of known duration, with the model each of them trains.

    job_id,num_gpu,submit_time,iterations,model_name,duration,interval

Times are seconds from the start of the workload.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TypeVar

from features.given import opened_text
from features.job import Job
from pipeline.errors import UserError
from reproductions.allocation.allocation import Node
from reproductions.allocation.nature import GangGroundTruth
from reproductions.allocation.policy import AllocationPolicy
from reproductions.allocation.statistics import Statistic
from reproductions.allocation.workload import AllocationWorkload
from reproductions.tiresias_las import TENSOR_SKEW

T = TypeVar("T")

TRACE = "60_job.csv"
_COLUMNS = ("job_id", "num_gpu", "submit_time", "model_name", "duration")
# Share of the largest tensor in the size of a model: Tiresias' profiles, and for googlenet, which
# they lack, its architecture.
SKEW: Mapping[str, float] = {
    "vgg11": 0.774,
    "vgg16": 0.744,
    "vgg19": 0.717,
    "alexnet": 0.611,
    "googlenet": 0.146,
    "inception3": 0.138,
    "resnet50": 0.112,
    "resnet101": 0.075,
    "resnet152": 0.060,
    "inception4": 0.044,
}


@dataclass(frozen=True, slots=True)
class GangJob:
    """A row: a job, its duration (seconds), and the model it trains (empty when not said)."""

    job: Job
    duration_s: float
    model: str = ""


class TiresiasGroundTruth(GangGroundTruth):
    """A truth in which jobs run for their duration on the GPUs they ask for, wherever these are."""

    def __init__(self, jobs: Sequence[GangJob]):
        super().__init__({row.job.job_id: row.duration_s for row in jobs})
        self._skew = {row.job.job_id: SKEW[row.model] for row in jobs if row.model in SKEW}
        if len(self._skew) == len(jobs):
            self.offers = self.offers | {TENSOR_SKEW}

    def report(self, statistic: Statistic[T], job_id: str, now: float) -> T:
        if statistic == TENSOR_SKEW:
            return self._skew[job_id]  # type: ignore[return-value]
        return super().report(statistic, job_id, now)


def read_trace(path: Path, *, stretch: float = 1.0) -> tuple[list[GangJob], list[str]]:
    """Return the jobs of a trace in order of submission, and one line on each row that was left
    out.

    Args:
        stretch: factor on submit times and durations.

    Raises UserError for a file that is no such trace.
    """
    jobs: list[GangJob] = []
    wrong: list[str] = []
    seen: set[str] = set()
    for line, row in _rows(path, _COLUMNS):
        try:
            gpus, submit = _number(row, "num_gpu"), _number(row, "submit_time")
            duration = _number(row, "duration")
            if gpus < 1 or gpus != int(gpus) or submit < 0 or duration <= 0:
                raise ValueError("GPUs, submission and duration must be positive")
            if row["job_id"] in seen:
                raise ValueError(f"job {row['job_id']} is there twice")
        except ValueError as error:
            wrong.append(f"line {line}: {error}")
            continue
        seen.add(row["job_id"])
        model = row["model_name"] or ""
        job = Job(row["job_id"], submit * stretch, int(gpus), name=model)
        jobs.append(GangJob(job, duration * stretch, model))
    if not jobs:
        raise UserError(f"{path}: no job in it" + (f" ({wrong[0]})" if wrong else ""))
    return sorted(jobs, key=lambda row: row.job.submit_time), wrong


def workload(
    rows: Sequence[GangJob],
    *,
    name: str = "tiresias",
    nodes: int = 4,
    gpus_per_node: int = 4,
    left_out: int = 0,
) -> AllocationWorkload:
    """Return jobs on a cluster of equal nodes."""

    def ground_truth(policy: AllocationPolicy) -> TiresiasGroundTruth:
        return TiresiasGroundTruth(rows)

    cluster = tuple(Node(i, gpus_per_node) for i in range(nodes))
    return AllocationWorkload(
        name=name,
        jobs=[row.job for row in rows],
        nodes=cluster,
        ground_truth=ground_truth,
        left_out=left_out,
    )


def open_tiresias(path: Path, *, stretch: float = 1.0) -> AllocationWorkload:
    """Return the workload of a trace file, or of the release's folder, on four nodes of four
    GPUs.
    """
    trace = path / TRACE if path.is_dir() else path
    if not trace.exists():
        raise UserError(f"{path}: there is no {TRACE} in this folder")
    jobs, wrong = read_trace(trace, stretch=stretch)
    return workload(jobs, name=f"tiresias {trace.name}", left_out=len(wrong))


def _number(row: Mapping[str, str], column: str) -> float:
    text = row[column]
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is {text!r}, not a number") from None
    if not isfinite(value):
        raise ValueError(f"{column} is {text}")
    return value


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (number of the line, row) of a CSV file with these columns. Raises UserError."""
    try:
        with opened_text(path, newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"{path} has no column {missing[0]!r}; it is no Tiresias trace")
            for row in reader:
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
