"""SWF in and out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.traces import IngestSummary, ingest, read_dataset

START = 1_600_000_000


def load(folder: Path, text: str, **options: Any) -> tuple[IngestSummary, list[dict[str, Any]]]:
    source = folder / "log.swf"
    source.write_text(text)
    summary = ingest(source, folder / "out", **options)
    return summary, read_dataset(folder / "out").to_pylist()


def line(job: int = 1, **change: float) -> str:
    values = {
        "job": job,
        "submit": 10,
        "wait": 5,
        "run": 100,
        "processors": 4,
        "cpu_time": -1,
        "memory_kb": -1,
        "requested": 4,
        "requested_time": 600,
        "requested_memory_kb": 2048,
        "status": 1,
        "user": 3,
        "group": 1,
        "executable": 7,
        "queue": 2,
        "partition": 1,
        "preceding": -1,
        "think_time": -1,
    }
    assert set(change) <= set(values)
    return " ".join(str(value) for value in (values | change).values())


def log(*lines: str, header: str = f"; UnixStartTime: {START}") -> str:
    return "\n".join([header, *lines]) + "\n"


def test_fields(tmp_path: Path) -> None:
    _, [job] = load(tmp_path, log(line()))
    assert job["submit_time"] == datetime.fromtimestamp(START + 10, UTC)
    assert job["start_time"] == datetime.fromtimestamp(START + 15, UTC)
    assert job["end_time"] == datetime.fromtimestamp(START + 115, UTC)
    assert (job["gpus"], job["time_limit_s"], job["memory_mib"]) == (4, 600, 8)
    assert (job["user"], job["name"], job["vc"], job["gpu_type"]) == ("3", "7", "2", None)


def test_minus_one_is_unknown(tmp_path: Path) -> None:
    summary, jobs = load(
        tmp_path,
        log(
            line(1, wait=-1),
            line(2, run=-1, status=-1),
            line(3, requested=-1, processors=8, queue=-1),
            line(4, requested=-1, processors=-1),
        ),
    )
    assert [job["start_time"] is None for job in jobs] == [True, False, False]
    assert [job["duration_s"] for job in jobs] == [100, None, 100]
    assert [job["state"] for job in jobs] == ["completed", "unknown", "completed"]
    assert (jobs[2]["gpus"], jobs[2]["vc"]) == (8, "1")
    assert summary.quarantined == {"missing_gpus": 1}


def test_parts_of_swapped_jobs_are_left_out(tmp_path: Path) -> None:
    parts = [line(1, status=status) for status in (2, 3, 4)]
    summary, jobs = load(tmp_path, log(line(1), *parts, line(2, status=5), line(3, status=9)))
    assert [job["state"] for job in jobs] == ["completed", "cancelled", "unknown"]
    assert summary.skipped == {"part_of_job": 3}
    assert summary.warnings == {"unknown_state": 1}


def test_fractions_comments_and_tabs(tmp_path: Path) -> None:
    text = log("  " + line(1, run=0.25).replace(" ", "\t"), "", " ; a remark", line(2) + "  ")
    summary, jobs = load(tmp_path, text)
    assert [job["duration_s"] for job in jobs] == [0.25, 100]
    assert summary.rows_in == 2
    assert [job["source_line"] for job in jobs] == [2, 5]


def test_names_of_queues_and_partitions(tmp_path: Path) -> None:
    header = f"; UnixStartTime: {START}\n; Queue: 2 big jobs\n; Partition: 1 V100"
    _, [job] = load(tmp_path, log(line(), header=header))
    assert (job["vc"], job["gpu_type"]) == ("big jobs", "V100")


def test_no_start_time(tmp_path: Path) -> None:
    summary, _ = load(tmp_path, log(line(), header="; Version: 2.2"))
    assert summary.warnings == {"origin_assumed": 1}
    origin = datetime(2010, 1, 1, tzinfo=UTC)
    summary, [job] = load(tmp_path, log(line(), header="; Version: 2.2"), origin=origin)
    assert summary.warnings == {}
    assert job["submit_time"] == datetime(2010, 1, 1, 0, 0, 10, tzinfo=UTC)


@pytest.mark.parametrize("header", ["; UnixStartTime: 0", "; UnixStartTime: 1500000000"])
def test_a_declared_origin_holds_whatever_the_header_has(header: str, tmp_path: Path) -> None:
    origin = datetime(2023, 1, 1, tzinfo=UTC)
    summary, [job] = load(tmp_path, log(line(), header=header), origin=origin)
    assert job["submit_time"] == datetime(2023, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert summary.warnings == {}


def test_a_start_of_0_is_no_start(tmp_path: Path) -> None:
    summary, [job] = load(tmp_path, log(line(), header="; UnixStartTime: 0"))
    assert job["submit_time"].year == 2000
    assert summary.warnings == {"origin_assumed": 1}


@pytest.mark.parametrize("origin", [None, datetime(1970, 1, 1, tzinfo=UTC)])
@pytest.mark.parametrize("header", [f"; UnixStartTime: {START}", "; Version: 2.2"])
def test_submissions_that_are_instants_are_taken_as_these(
    header: str, origin: datetime | None, tmp_path: Path
) -> None:
    text = log(line(submit=1_672_531_800), header=header)
    summary, [job] = load(tmp_path, text, origin=origin)
    assert job["submit_time"] == datetime(2023, 1, 1, 0, 10, tzinfo=UTC)
    assert summary.warnings == {"absolute_times": 1}


@pytest.mark.parametrize("run", [0, -1])
def test_what_was_cancelled_in_the_queue_never_started(run: int, tmp_path: Path) -> None:
    never = line(1, run=run, status=5, processors=-1)
    summary, jobs = load(tmp_path, log(never, line(2, status=5, processors=-1)))
    assert (jobs[0]["start_time"], jobs[0]["duration_s"]) == (None, None)
    assert jobs[0]["end_time"] == datetime.fromtimestamp(START + 15, UTC)
    assert jobs[1]["duration_s"] == 100
    assert summary.warnings == {"never_started": 1}
