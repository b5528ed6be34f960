"""Gavel's artifact: traces of training jobs, and tables of their throughput by GPU type.

A trace is a text file without header, ten columns separated by tabs:

    job type, command, working directory, steps flag, needs data (0/1), total steps, GPUs,
    priority weight, SLO (multiple of the duration; negative: none), arrival (seconds)

A throughput table is a JSON file {GPU type: {"('model', GPUs)": {"null": steps per second,
"('partner', GPUs)": [own steps per second, the partner's]}}}.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from features.given import LARGE, read_text
from features.job import Job
from pipeline.errors import UserError
from reproductions.allocation.allocation import Node
from reproductions.allocation.policy import AllocationPolicy
from reproductions.allocation.throughputs import (
    Kind,
    StepWork,
    TableGroundTruth,
    Terms,
    ThroughputTable,
)
from reproductions.allocation.workload import AllocationWorkload

COLUMNS = 10
OLD_COLUMNS = 7  # model, command, steps flag, needs data, steps, arrival, GPUs
TABLE = "simulation_throughputs.json"
UNCONSOLIDATED = "_unconsolidated"

# GPUs of each type, and GPUs per node, of the runs that were published
REFERENCE_CLUSTER = {"v100": (8, 8), "p100": (16, 4), "k80": (24, 8)}


# the type on which durations of synthetic jobs are counted
REFERENCE_TYPE = "v100"


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One line of a trace. Its SLO is checked and left out, since no policy here keeps
    deadlines.
    """

    job: Job
    steps: int
    weight: float = 1.0

    @property
    def kind(self) -> Kind:
        return Kind(self.job.name, self.job.gpus)

    @property
    def work(self) -> StepWork:
        """Return the truth about the job."""
        return StepWork(self.kind, self.steps, Terms(self.weight))


def read_trace(path: Path) -> list[TraceJob]:
    """Return jobs in order of arrival.

    Raises:
        UserError: the file cannot be read, or a line is not as described above.
    """
    try:
        lines = read_text(path, LARGE).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    jobs = [_job(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not jobs:
        raise UserError(f"{path}: no jobs in it")
    return sorted(jobs, key=lambda found: found.job.submit_time)


def _job(path: Path, number: int, line: str) -> TraceJob:
    where = f"{path}, line {number}"
    cells = line.split("\t")
    if len(cells) == OLD_COLUMNS:
        raise UserError(
            f"{where}: {OLD_COLUMNS} columns, the format of older traces (traces/msr), which have "
            f"no priority weight, SLO or job type in the table; {COLUMNS} are needed"
        )
    if len(cells) != COLUMNS:
        raise UserError(f"{where}: {len(cells)} columns; a Gavel trace has {COLUMNS}")
    model, steps, gpus, weight, slo, arrival = (cells[i].strip() for i in (0, 5, 6, 7, 8, 9))
    total, gang = _number(where, "total steps", steps, 1), _number(where, "GPUs", gpus, 1)
    priority = _number(where, "priority weight", weight, 1e-9)
    _number(where, "SLO", slo)
    submit_time = _number(where, "arrival", arrival, 0)
    job = Job(f"{number - 1}", submit_time, int(gang), name=model)
    return TraceJob(job, int(total), priority)


def _number(where: str, column: str, text: str, least: float = float("-inf")) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        wanted = "a number" if least == float("-inf") else f"a number, at least {least:g}"
        raise UserError(f"{where}: {column} is {text!r}; it must be {wanted}")
    return value


def read_table(path: Path, *, consolidated: bool = True) -> ThroughputTable:
    """Return a throughput table.

    Args:
        consolidated: rates of gangs on the fewest nodes; else of scattered gangs.

    Raises:
        UserError: the file cannot be read, or is no such table.
    """
    try:
        raw = json.loads(read_text(path, LARGE))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a throughput table: {error}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path}: a throughput table is an object with one entry per GPU type")
    alone: dict[str, dict[Kind, float]] = {}
    pairs: dict[str, dict[tuple[Kind, Kind], tuple[float, float]]] = {}
    for name, rows in raw.items():
        gpu_type = name.removesuffix(UNCONSOLIDATED)
        if consolidated == (gpu_type == name):
            try:
                alone[gpu_type], pairs[gpu_type] = _rates(rows)
            except (ValueError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{path}: the rates of {name} are not as expected: {error}"
                ) from error
    return ThroughputTable(alone, pairs)


def _rates(
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[Kind, float], dict[tuple[Kind, Kind], tuple[float, float]]]:
    alone: dict[Kind, float] = {}
    pairs: dict[tuple[Kind, Kind], tuple[float, float]] = {}
    for key, row in rows.items():
        kind = _kind(key)
        for other, rates in row.items():
            if other == "null":
                alone[kind] = float(rates)
            else:
                own, partner = rates
                pairs[kind, _kind(other)] = float(own), float(partner)
    return alone, pairs


def _kind(key: str) -> Kind:
    try:
        model, gpus = ast.literal_eval(key)
        return Kind(str(model), int(gpus))
    except (ValueError, TypeError, SyntaxError):
        raise ValueError(f"{key!r} is not of the form ('model', GPUs)") from None


def cluster(gpus: Mapping[str, tuple[int, int]]) -> tuple[Node, ...]:
    """Return nodes by type, given (GPUs in all, GPUs per node) for each."""
    nodes: list[Node] = []
    for gpu_type, (total, per_node) in gpus.items():
        for left in range(total, 0, -per_node):
            nodes.append(Node(len(nodes), min(left, per_node), gpu_type))
    return tuple(nodes)


def workload(
    name: str,
    jobs: Sequence[TraceJob],
    table: ThroughputTable,
    nodes: tuple[Node, ...],
    *,
    restart_s: float = 0.0,
) -> AllocationWorkload:
    """Return jobs of a trace on a cluster. Policies that work by leases get them."""
    work = {found.job.job_id: found.work for found in jobs}

    def ground_truth(policy: AllocationPolicy) -> TableGroundTruth:
        return TableGroundTruth(work, table, nodes, restart_s=restart_s, lease_s=policy.lease_s)

    return AllocationWorkload(name, [found.job for found in jobs], nodes, ground_truth)


def read_workload(
    trace: Path,
    table: Path | None = None,
    gpus: Mapping[str, tuple[int, int]] = REFERENCE_CLUSTER,
) -> AllocationWorkload:
    """Return a trace on a cluster of given GPUs.

    Args:
        table: throughputs; None takes `simulation_throughputs.json` beside the trace.

    Raises:
        UserError: a file is missing or wrong, or a GPU type is not in the table.
    """
    jobs = read_trace(trace)
    rates = read_table(table or trace.with_name(TABLE))
    unknown = set(gpus) - set(rates.gpu_types)
    if unknown:
        raise UserError(f"no throughputs of GPU type {', '.join(sorted(unknown))} in the table")
    return workload(trace.stem, jobs, rates, cluster(gpus))


SCALES = (1, 2, 4, 8)
SCALE_SHARES = (0.70, 0.10, 0.15, 0.05)


def synthetic(
    table: ThroughputTable,
    jobs: int,
    *,
    per_hour: float | None,
    seed: int = 0,
    gangs: bool = True,
    priorities: bool = False,
) -> list[TraceJob]:
    """Return jobs drawn as Gavel's evaluation draws them.

    Args:
        per_hour: mean arrivals (Poisson); None: all at time 0.
        gangs: some jobs want 2, 4 or 8 GPUs; else all want one.
        priorities: one in five has weight 5.
    """
    rng = np.random.default_rng(seed)
    kinds = [kind for kind in table.kinds if table.rate(REFERENCE_TYPE, kind)]
    now = 0.0
    drawn = []
    for number in range(jobs):
        gpus = int(rng.choice(SCALES, p=SCALE_SHARES)) if gangs else 1
        low, high = (1.5, 3.0) if rng.random() < 0.8 else (3.0, 4.0)
        duration_s = 60 * 10 ** rng.uniform(low, high)
        fitting = [kind for kind in kinds if kind.gpus == gpus]
        kind = fitting[rng.integers(len(fitting))]
        steps = max(1, round(duration_s * table.rate(REFERENCE_TYPE, kind)))
        weight = 5.0 if priorities and rng.random() < 0.2 else 1.0
        drawn.append(TraceJob(Job(str(number), now, gpus, name=kind.model), steps, weight))
        now += rng.exponential(3600 / per_hour) if per_hour else 0.0
    return drawn
