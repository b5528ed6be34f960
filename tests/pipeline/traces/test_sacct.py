"""Slurm's accounting: states, ids, resources, durations, bars."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.clock import parse_elapsed
from pipeline.testing.samples import samples
from pipeline.traces import IngestSummary, TraceError, ingest, read_dataset
from pipeline.traces.sacct import parse_tres
from tests.pipeline.traces.samples import write_sacct

DEFAULTS = {
    "JobID": "100",
    "JobName": "train",
    "User": "alice",
    "Partition": "gpu",
    "Submit": "2024-01-05T10:00:00",
    "Eligible": "2024-01-05T10:05:00",
    "Start": "2024-01-05T11:00:00",
    "End": "2024-01-05T12:00:00",
    "Elapsed": "01:00:00",
    "Timelimit": "1-00:00:00",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "NNodes": "1",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
}
NEVER_RAN = {
    "Start": "None",
    "End": "2024-01-05T10:30:00",
    "Elapsed": "00:00:00",
    "AllocTRES": "",
}


def load(
    folder: Path, *lines: dict[str, str], without: tuple[str, ...] = (), **options: Any
) -> tuple[IngestSummary, list[dict[str, Any]]]:
    """Ingest lines that differ from ``DEFAULTS`` as said; ids count up where none is given."""
    more = [key for line in lines for key in line if key not in DEFAULTS]
    header = [key for key in (*DEFAULTS, *dict.fromkeys(more)) if key not in without]
    text = ["|".join(header)]
    for i, line in enumerate(lines):
        values = DEFAULTS | {"JobID": str(100 + i)} | line
        text.append("|".join(values.get(key, "") for key in header))
    source = folder / "sacct.txt"
    source.write_text("\n".join(text) + "\n")
    summary = ingest(source, folder / "out", **{"timezone": "UTC", **options})
    return summary, read_dataset(folder / "out").to_pylist()


def test_submit_eligible_and_start_are_kept_apart(tmp_path: Path) -> None:
    _, [job] = load(tmp_path, {})
    assert job["submit_time"] == datetime(2024, 1, 5, 10, 0, tzinfo=UTC)
    assert job["eligible_time"] == datetime(2024, 1, 5, 10, 5, tzinfo=UTC)
    assert job["start_time"] == datetime(2024, 1, 5, 11, 0, tzinfo=UTC)
    assert job["duration_s"] == job["recorded_duration_s"] == 3600
    assert job["time_limit_s"] == 86_400


def test_gpus_are_not_counted_twice(tmp_path: Path) -> None:
    _, jobs = load(
        tmp_path,
        {},
        {"AllocTRES": "cpu=8,gres/gpu:a100=2,gres/gpu:h100=1,mem=1T,node=2"},
        {"AllocTRES": "cpu=8,gres/gpu=3,mem=2048M,node=1"},
        {"AllocTRES": "cpu=8,mem=64G,node=1", "ReqTRES": "cpu=8,mem=64G,gres/gpu=5"},
    )
    assert [job["gpus"] for job in jobs] == [2, 3, 3, 5]
    assert [job["gpu_type"] for job in jobs] == ["a100", "a100|h100", None, None]
    assert [job["memory_mib"] for job in jobs] == [65536, 1048576, 2048, 65536]
    assert jobs[0]["cpus"] == 8


def test_old_gres_columns(tmp_path: Path) -> None:
    header = ("ReqTRES", "AllocTRES")
    _, jobs = load(
        tmp_path, {"AllocGRES": "gpu:v100:4"}, {"AllocGRES": "gres:gpu:2"}, without=header
    )
    assert [job["gpus"] for job in jobs] == [4, 2]
    assert [job["gpu_type"] for job in jobs] == ["v100", None]


def test_states(tmp_path: Path) -> None:
    known = {
        "CANCELLED by 1001": "cancelled",
        "CANCELLED": "cancelled",
        "CANCELLED+": "cancelled",
        "OUT_OF_MEMORY": "out_of_memory",
        "PREEMPTED": "preempted",
        "DEADLINE": "timeout",
        "BOOT_FAIL": "node_fail",
        "REVOKED": "cancelled",
        "SUSPENDED": "running",
        "MADE_UP": "unknown",
    }
    summary, jobs = load(tmp_path, *({"State": state} for state in known))
    assert [job["state"] for job in jobs] == list(known.values())
    assert summary.warnings == {"unknown_state:MADE_UP": 1}


def test_steps_are_left_out_and_counted(tmp_path: Path) -> None:
    steps = ("100.batch", "100.extern", "100.0", "123_4.batch", "200+1.0")
    summary, jobs = load(tmp_path, {}, *({"JobID": step} for step in steps))
    assert len(jobs) == 1
    assert summary.skipped == {"step": 5}
    assert summary.rows_in == 6


def test_arrays_and_heterogeneous_jobs(tmp_path: Path) -> None:
    ids = ("123_4", "123_5", "200+0", "200+1", "300_[6-9%2]")
    summary, jobs = load(tmp_path, *({"JobID": job} for job in ids))
    assert [job["job_id"] for job in jobs] == list(ids)
    assert summary.warnings == {"het_component": 2, "pending_array": 1}


@pytest.mark.parametrize("state", ["CANCELLED by 5", "FAILED", "DEADLINE"])
def test_over_before_it_started(tmp_path: Path, state: str) -> None:
    """What sbatch refuses is a FAILED line (EnforcePartLimits): it was replayed as a job that had
    not waited."""
    as_cancelled = NEVER_RAN | {"Start": "2024-01-05T10:30:00"}
    cancelled = {"State": state}
    summary, jobs = load(tmp_path, NEVER_RAN | cancelled, as_cancelled | cancelled)
    assert [job["start_time"] for job in jobs] == [None, None]
    assert [job["gpus"] for job in jobs] == [2, 2]  # as requested
    assert [job["duration_s"] for job in jobs][1] is None
    assert summary.missing_starts == 2
    assert summary.warnings["over_before_start"] == 1


def test_pending_and_running(tmp_path: Path) -> None:
    pending = {"State": "PENDING", "Start": "Unknown", "End": "Unknown", "AllocTRES": ""}
    running = {"State": "RUNNING", "End": "Unknown", "Elapsed": "2-03:04:05"}
    _, jobs = load(tmp_path, pending | {"Elapsed": "00:00:00"}, running)
    assert [job["duration_s"] for job in jobs] == [None, None]
    assert jobs[1]["recorded_duration_s"] == 2 * 86400 + 3 * 3600 + 4 * 60 + 5


def test_bars_in_names(tmp_path: Path) -> None:
    names = ("a|b", "|", "plain", "x||y|z", 'with "quotes')
    summary, jobs = load(tmp_path, *({"JobName": name} for name in names))
    assert [job["name"] for job in jobs] == list(names)
    assert summary.quarantined == {}


def test_bars_that_may_stand_elsewhere(tmp_path: Path) -> None:
    rows = {"JobName": "a|b", "Comment": "x"}, {"Comment": "p|q"}, {"Comment": "fine"}
    summary, jobs = load(tmp_path, *(row | {"Cluster": "c"} for row in rows))
    assert [job["name"] for job in jobs] == ["a|b", "train", "train"]
    assert summary.quarantined == {}
    summary, jobs = load(tmp_path, *rows)  # a free text at the end takes what is over
    assert [job["name"] for job in jobs] == ["a|b", "train", "train"]
    assert summary.quarantined == {}


def test_parsable_has_a_bar_at_the_end(tmp_path: Path) -> None:
    plain = ingest(write_sacct(tmp_path, samples()), tmp_path / "a")
    trailing = ingest(write_sacct(tmp_path, samples(), trailing="|"), tmp_path / "b")
    assert trailing == plain
    assert read_dataset(tmp_path / "a").equals(read_dataset(tmp_path / "b"))


def test_zone(tmp_path: Path) -> None:
    summary, [job] = load(tmp_path, {}, timezone="Europe/Berlin")
    assert job["submit_time"] == datetime(2024, 1, 5, 9, 0, tzinfo=UTC)
    assert summary.warnings == {}
    assumed, _ = load(tmp_path, {}, timezone=None)
    assert assumed.warnings == {"zone_assumed": 1}
    with pytest.raises(TraceError, match="Europe/Berlim"):
        load(tmp_path, {}, timezone="Europe/Berlim")


def test_limits_and_exit_codes(tmp_path: Path) -> None:
    _, jobs = load(
        tmp_path,
        {"Timelimit": "UNLIMITED", "ExitCode": "3:0"},
        {"Timelimit": "Partition_Limit", "ExitCode": "0:9"},
        {"Timelimit": "02:30:00", "TimelimitRaw": "150"},
    )
    assert [job["time_limit_s"] for job in jobs] == [None, None, 9000]
    assert [job["exit_code"] for job in jobs] == [3, 137, 0]


def test_needed_columns(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="AllocTRES"):
        load(tmp_path, {}, without=("AllocTRES", "ReqTRES"))
    with pytest.raises(TraceError, match="Submit"):
        load(tmp_path, {}, without=("Submit",), format="sacct")
    _, [job] = load(tmp_path, {"JobIDRaw": "77"}, without=("JobID",))
    assert job["job_id"] == "77"


@given(st.integers(0, 400 * 86_400))
def test_elapsed_round_trip(seconds: int) -> None:
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    assert parse_elapsed(f"{days}-{clock}") == seconds
    if not days:
        assert parse_elapsed(clock) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("05:30", 330),
        ("90:00", 5400),
        ("2-03", 183_600),
        ("x", None),
        ("12", None),
        ("1:2:3:4", None),
        ("25:99", None),
        ("1:60:00", None),
        ("1-24", None),
        ("1-02:60", None),
    ],
)
def test_elapsed_forms(text: str, seconds: float | None) -> None:
    assert parse_elapsed(text) == seconds


@given(st.text(max_size=40))
def test_tres_takes_any_text(text: str) -> None:
    parsed = parse_tres(text)
    assert parsed is None or parsed.gpus >= 0
