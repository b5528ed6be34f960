"""SWF in and out."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import TRACE_SCHEMA
from pipeline.testing.samples import samples
from pipeline.traces import IngestSummary, TraceError, ingest, read_dataset
from pipeline.traces.swf import write_swf
from tests.pipeline.traces.samples import write_helios

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


def test_written_by_us(tmp_path: Path) -> None:
    ingest(write_helios(tmp_path, samples()), tmp_path / "helios")
    table = read_dataset(tmp_path / "helios")
    write_swf(table, tmp_path / "out.swf", note="two\nlines")
    summary = ingest(tmp_path / "out.swf", tmp_path / "swf")
    again = read_dataset(tmp_path / "swf")
    same = ["job_id", "vc", "gpus", "submit_time", "start_time", "end_time", "duration_s", "state"]
    for name in same:
        assert again[name].to_pylist() == table[name].to_pylist(), name
    assert summary.format == "swf"
    assert "; Note: two lines\n" in (tmp_path / "out.swf").read_text()


jobs = st.builds(
    dict,
    gpus=st.integers(1, 1000),
    submit=st.integers(0, 10**10),
    wait=st.none() | st.integers(0, 10**9),
    run=st.integers(0, 10**8),
    vc=st.none() | st.sampled_from(["a", "b c", "vcEwI"]),
    user=st.none() | st.sampled_from(["x", "y"]),
    limit=st.none() | st.integers(1, 10**6),
    state=st.sampled_from(["completed", "failed", "cancelled", "unknown"]),
)


@settings(max_examples=40)
@given(st.lists(jobs, min_size=1, max_size=8))
def test_round_trip(drawn: list[dict[str, Any]]) -> None:
    """Times to the millisecond, counts, states and VCs survive; users stay distinct."""
    rows = []
    for i, job in enumerate(drawn):
        submit = START * 1000 + job["submit"]
        start = None if job["wait"] is None else submit + job["wait"]
        end = None if start is None else start + job["run"]
        rows.append(
            {
                "job_id": f"job-{i}",
                "user": job["user"],
                "vc": job["vc"],
                "gpus": job["gpus"],
                "state": job["state"],
                "submit_time": submit,
                "start_time": start,
                "end_time": end,
                "duration_s": job["run"] / 1000,
                "time_limit_s": job["limit"],
                "source_line": i,
            }
        )
    table = pa.Table.from_pylist(rows, schema=TRACE_SCHEMA)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "out.swf"
        write_swf(table, path)
        summary = ingest(path, Path(name) / "again")
        again = read_dataset(Path(name) / "again").sort_by("source_line")
    assert summary.kept + summary.duplicates == len(rows)
    if summary.duplicates:
        return
    for column in ("vc", "gpus", "state", "submit_time", "start_time", "end_time", "time_limit_s"):
        assert again[column].to_pylist() == table[column].to_pylist(), column
    assert again["duration_s"].to_pylist() == pytest.approx(table["duration_s"].to_pylist())
    pairs = set(zip(again["user"].to_pylist(), table["user"].to_pylist(), strict=True))
    assert len(pairs) == len({read for read, _ in pairs}) == len({given for _, given in pairs})


def test_nothing_to_write(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        write_swf(TRACE_SCHEMA.empty_table(), tmp_path / "out.swf")
    assert not list(tmp_path.iterdir())


def test_cannot_write(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(
        [{"job_id": "1", "gpus": 1, "state": "failed", "submit_time": 10**12}], schema=TRACE_SCHEMA
    )
    with pytest.raises(TraceError, match="cannot be written"):
        write_swf(table, tmp_path / "nowhere" / "out.swf")
