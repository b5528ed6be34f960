"""Workloads of the Pollux artifact (OSDI'21): measured applications, jobs that train them.

data/pollux/traces/APPLICATION/...           what was measured
data/pollux/workloads/workload-6.csv         name, time, application, num_replicas, batch_size
data/pollux/results-jobload/*/summary.json   recorded completion times
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

from features.given import LARGE, opened_text, read_text
from features.job import Job
from pipeline.errors import UserError
from reproductions.allocation.allocation import Node
from reproductions.allocation.policy import AllocationPolicy
from reproductions.allocation.workload import AllocationWorkload
from reproductions.workloads.pollux.applications import Application
from reproductions.workloads.pollux.nature import GPUS_PER_NODE, TrainingGroundTruth

NODES = 16
# one boundary between two queues, after 16 GPU-hours; queues stay in order of arrival
SETTINGS = {"tiresias-las": {"limits": [57_600.0], "round_s": 60.0, "running_first": False}}
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def applications(folder: Path) -> dict[str, Application]:
    """Return every application under `traces/`."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; it should hold a folder per application")
    return {path.name: Application(path) for path in sorted(folder.iterdir()) if path.is_dir()}


def open_workload(
    path: Path,
    *,
    apps: Mapping[str, Application] | None = None,
    interference: float = 0.0,
) -> AllocationWorkload:
    """Return the workload of a CSV of the artifact, on its cluster of 16 nodes with 4 GPUs.

    Args:
        path: path of the CSV; `traces/` is looked for beside its folder.
        apps: what was measured, when it is already read.
        interference: see `TrainingGroundTruth`.

    Raises:
        UserError: the file or a column is missing, or a row cannot be read.
    """
    jobs, trains = _read(path)
    known = apps if apps is not None else applications(path.resolve().parent.parent / "traces")

    def ground_truth(policy: AllocationPolicy) -> TrainingGroundTruth:
        return TrainingGroundTruth(known, trains, interference=interference)

    nodes = tuple(Node(i, GPUS_PER_NODE, "T4") for i in range(NODES))
    return AllocationWorkload(f"pollux {path.stem}", jobs, nodes, ground_truth, settings=SETTINGS)


def _read(path: Path) -> tuple[list[Job], dict[str, tuple[str, int]]]:
    """Return the jobs by submission (ties as in the file), and (application, batch size) by job
    id. Raises UserError.
    """
    try:
        with opened_text(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not CSV ({error})") from None
    jobs, trains = [], {}
    for line, row in enumerate(rows, start=2):
        try:
            name, application = row["name"], row["application"]
            submit_time, gpus = float(row["time"]), int(row["num_replicas"])
            batch = int(row["batch_size"])
        except KeyError as error:
            raise UserError(
                f"{path}: no column {error.args[0]}; it has to have {', '.join(COLUMNS)}"
            ) from None
        except (TypeError, ValueError) as error:
            raise UserError(f"{path}, line {line}: {error}") from None
        if name in trains:
            raise UserError(f"{path}, line {line}: job {name} is there twice")
        jobs.append(Job(name, submit_time, gpus, user=application, vc="pollux", name=application))
        trains[name] = (application, batch)
    if not jobs:
        raise UserError(f"{path}: no job in it; it has to have {', '.join(COLUMNS)}")
    return sorted(jobs, key=lambda job: job.submit_time), trains


def recorded(folder: Path, policy: str) -> dict[str, dict[str, float]]:
    """Return the completion times (s) that the artifact recorded, by workload and job. Raises
    UserError if they cannot be read.

    Args:
        folder: `results-jobload`.
        policy: pollux, optimus or tiresias.
    """
    path = folder / f"{policy}-1.0" / "summary.json"
    try:
        jcts: dict[str, dict[str, float]] = json.loads(read_text(path, LARGE))["jcts"]
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
    return jcts
