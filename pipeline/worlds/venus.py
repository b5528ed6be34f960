"""Reads the Venus folder: a trace, its virtual clusters, measured pairs of jobs on one GPU, and
published predictions.

The folder is read in place and never copied. Its times are seconds since the first GPU job, written
as dates. The wall clock was 152 s later, but nothing here depends on that.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from features.given import opened_text
from features.job import Job, Profile
from features.schema import State
from scheduler.core.arrivals import TableForecaster
from scheduler.core.cluster import ClusterSpec
from scheduler.simulation.work import Configuration, Work, Workload


class TrackError(ValueError):
    """Raised if a track's folder lacks a file, or an option or file of a world is wrong. The
    message is one line for the user."""


@dataclass(slots=True)
class Venus:
    """The content of the Venus folder: trace, cluster and measured pairs.

    Attributes:
        workload: the jobs in file order (sorted by submit time), the truth about them, and the
            cluster.
        pair_speeds: (configuration, other configuration) -> measured speed of the first beside the
            other, relative to running alone.
        labels: configuration -> the sharing score that the artifact's authors gave it.
        folder: the folder that it was read from.
    """

    workload: Workload
    pair_speeds: dict[tuple[Configuration, Configuration], float]
    labels: dict[Configuration, int]
    folder: Path

    def predictions(self, name: str) -> dict[str, float]:
        """Return the published predictions of durations, seconds by job id. `name` is that of the
        model, `ebm` or `lgb`."""
        rows = read_rows(self.folder / f"peer_duration_{name}.csv")
        return {row["job_id"]: float(row["priority"]) for row in rows}

    def forecast(self, compress: float = 1.0) -> TableForecaster:
        """Return the published forecast of arrivals, adapted to times between submissions that
        are multiplied by `compress`."""
        rows = read_rows(self.folder / "peer_throughput_pred.csv")
        bins = range(round(len(rows) * compress))
        played = [rows[min(int(i / compress), len(rows) - 1)] for i in bins]
        return TableForecaster(
            _seconds(rows[0]["time"]),
            [float(row["pred_gpu_job"]) / compress for row in played],
            [float(row["pred_gpu_num"]) / compress for row in played],
        )


def load(folder: Path) -> Venus:
    """Return the content of the Venus folder and of the folder `packing/` beside it. Raises
    TrackError if a file is missing or malformed."""
    try:
        return _load(folder)
    except KeyError as error:
        raise TrackError(f"{folder}: column or value {error} is missing or unknown") from None
    except TrackError:
        raise
    except (TypeError, ValueError) as error:  # a row too short, a number or a time that is none
        raise TrackError(f"{folder}: {error}") from None


def _load(folder: Path) -> Venus:
    vcs = {row[""]: int(row["num"]) for row in read_rows(folder / "vc_config.csv")}
    jobs: list[Job] = []
    work: dict[str, Work] = {}
    for row in read_rows(folder / "cluster_full_log.csv"):
        job_id = row["job_id"]
        jobs.append(
            Job(
                job_id=job_id,
                submit_time=_seconds(row["submit_time"]),
                gpus=int(row["gpu_num"]),
                user=row["user"],
                vc=row["vc"],
                cpus=float(row["cpu_num"]),
            )
        )
        work[job_id] = Work(
            float(row["duration"]),
            _STATES[row["state"]],
            _configuration(row),
            _profile(row),
        )
    packing = folder.parent / "packing"
    workload = Workload("venus", jobs, work, ClusterSpec(vcs, name="venus"))
    return Venus(workload, pair_speeds(packing), _labels(packing), folder)


_STATES = {
    "COMPLETED": State.COMPLETED,
    "CANCELLED": State.CANCELLED,
    "FAILED": State.FAILED,
    "TIMEOUT": State.TIMEOUT,
    "NODE_FAIL": State.NODE_FAIL,
}


def configurations(packing: Path) -> list[tuple[Configuration, Profile]]:
    """Return the training configurations that were measured in the folder `packing/`, each with its
    profile."""
    return [(_configuration(row), _profile(row)) for row in read_rows(packing / "single_data.csv")]


def pair_speeds(packing: Path) -> dict[tuple[Configuration, Configuration], float]:
    """Return the measured speeds in the folder `packing/`: {(configuration, other): speed of the
    first beside the other, relative to running alone}."""
    speeds: dict[tuple[Configuration, Configuration], float] = {}
    for row in read_rows(packing / "colocate_info.csv"):
        a, b = _configuration(row, "1"), _configuration(row, "2")
        first, second = float(row["speed1"]), float(row["speed2"])
        if a == b:  # two of a kind: nobody can tell which of the two speeds is whose
            first = second = (first + second) / 2
        speeds.setdefault((a, b), first)
        speeds.setdefault((b, a), second)
    return speeds


def _labels(packing: Path) -> dict[Configuration, int]:
    return {
        _configuration(row): int(row["label"]) for row in read_rows(packing / "single_data.csv")
    }


def _configuration(row: dict[str, str], side: str = "") -> Configuration:
    return Configuration(
        row[f"model{side}"],
        row[f"dataset{side}"],
        int(row[f"batchsize{side}"]),
        row[f"amp{side}"] == "1",
    )


def _profile(row: dict[str, str]) -> Profile:
    return Profile(
        float(row["gpu_util"]), float(row["gmem_util"]), float(row["gmem"]), row["amp"] == "1"
    )


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file: {column: text}. Raise TrackError if the file is missing, is
    not CSV or has no rows."""
    try:
        with opened_text(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise TrackError(f"{path} is missing; a track needs the whole folder") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise TrackError(f"{path}: not CSV ({error})") from None
    if not rows:
        raise TrackError(f"{path} holds no row")
    return rows


def jitter(
    workload: Workload,
    seed: int,
    *,
    compress: float = 1.0,
    permute: bool = True,
    most_s: float = 60.0,
) -> Workload:
    """Return the workload as it is replayed with this seed: what jobs train permuted, and
    submit times slightly moved.

    The eight columns that say what a job trains are permuted over the jobs, so that a profile
    reveals nothing about a duration. Without `permute`, every job keeps its own. Seed 0 keeps
    exact submit times; other seeds move each by a random 0 to `most_s` seconds, and sort the
    jobs again. `compress` multiplies the times since the first submission (below 1: a busier
    month)."""
    rng = np.random.default_rng(seed)
    jobs = workload.jobs
    permutation = rng.permutation(len(jobs))
    first = jobs[0].submit_time if jobs else 0.0
    moved = np.array([first + (job.submit_time - first) * compress for job in jobs])
    if seed:
        moved = moved + rng.uniform(0, most_s, len(jobs))
    order = np.argsort(moved, kind="stable")
    work: dict[str, Work] = {}
    for job, source in zip(jobs, permutation if permute else range(len(jobs)), strict=True):
        own, other = workload.work[job.job_id], workload.work[jobs[source].job_id]
        work[job.job_id] = Work(own.duration_s, own.state, other.configuration, other.profile)
    shuffled = [replace(jobs[i], submit_time=float(moved[i])) for i in order]
    return replace(workload, jobs=shuffled, work=work)
