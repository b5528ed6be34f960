"""Philly's JSON: attempts, GPUs from detail, clock changes, broken elements."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.traces import IngestSummary, ingest, read_dataset


def attempt(start: str | None, end: str | None, *nodes: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(nodes)]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(
    number: int, *attempts: dict[str, Any], submitted: str = "2017-10-07 01:11:39", **more: Any
) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": f"application_{number}",
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ce2f4c",
    } | more


RAN = attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 2)


def load(folder: Path, content: str) -> tuple[IngestSummary, list[dict[str, Any]]]:
    source = folder / "cluster_job_log"
    source.write_text(content, encoding="utf-8")
    summary = ingest(source, folder / "out")
    return summary, read_dataset(folder / "out").to_pylist()


def load_jobs(folder: Path, *jobs: Any) -> tuple[IngestSummary, list[dict[str, Any]]]:
    return load(folder, json.dumps(list(jobs), indent=4))


def test_attempts_are_kept(tmp_path: Path) -> None:
    second = attempt("2017-10-07 01:13:30", "2017-10-09 06:53:12", 8, 8)
    _, [read] = load_jobs(
        tmp_path, job(1, attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8, 8), second)
    )
    assert read["gpus"] == 16
    assert read["nodes"] == 2
    assert read["submit_time"] == datetime(2017, 10, 7, 8, 11, 39, tzinfo=UTC)
    assert read["start_time"] == datetime(2017, 10, 7, 8, 12, 9, tzinfo=UTC)
    assert read["end_time"] == datetime(2017, 10, 9, 13, 53, 12, tzinfo=UTC)
    assert read["duration_s"] == (read["end_time"] - read["start_time"]).total_seconds()
    assert [a["gpus"] for a in read["attempts"]] == [16, 16]
    assert read["attempts"][1]["start_time"] == datetime(2017, 10, 7, 8, 13, 30, tzinfo=UTC)


def test_last_end_missing_means_running(tmp_path: Path) -> None:
    running = attempt("2017-10-07 01:13:30", None, 1)
    logged = attempt("2017-10-07 01:13:30", "None", 1)
    _, jobs = load_jobs(tmp_path, job(1, RAN, running), job(2, logged, status="Killed"))
    assert [read["state"] for read in jobs] == ["running", "running"]
    assert [read["duration_s"] for read in jobs] == [None, None]


def test_missing_times_of_an_attempt(tmp_path: Path) -> None:
    summary, [read] = load_jobs(tmp_path, job(1, attempt(None, "2017-10-07 01:13:23", 4)))
    assert read["start_time"] is None
    assert read["state"] == "completed"
    assert summary.missing_starts == 1


def test_gpus_are_counted_in_detail(tmp_path: Path) -> None:
    unknown = {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23"}
    fewer = attempt("2017-10-07 01:13:30", "2017-10-07 01:14:30", 1)
    summary, jobs = load_jobs(
        tmp_path,
        job(1, RAN),
        job(2),
        job(3, unknown | {"detail": []}),
        job(4, attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 0)),
        job(5, RAN, fewer),
    )
    assert [read["gpus"] for read in jobs] == [2, 2]
    assert summary.quarantined == {"missing_gpus": 2, "no_gpu": 1}
    assert summary.warnings == {"gpu_count_varies": 1}


def test_states(tmp_path: Path) -> None:
    jobs = [job(i, RAN, status=s) for i, s in enumerate(["Pass", "Killed", "Failed", "Odd"])]
    summary, read = load_jobs(tmp_path, *jobs)
    assert [r["state"] for r in read] == ["completed", "cancelled", "failed", "unknown"]
    assert summary.warnings == {"unknown_state:Odd": 1}


def test_the_repeated_hour_follows_the_order_of_events(tmp_path: Path) -> None:
    """01:50 PDT, then 01:10: that can only be PST, twenty minutes later."""
    summary, [read] = load_jobs(
        tmp_path,
        job(
            1,
            attempt("2017-11-05 01:10:00", "2017-11-05 01:20:00", 1),
            submitted="2017-11-05 01:50:00",
        ),
    )
    assert read["submit_time"] == datetime(2017, 11, 5, 8, 50, tzinfo=UTC)
    assert read["start_time"] == datetime(2017, 11, 5, 9, 10, tzinfo=UTC)
    assert read["end_time"] == datetime(2017, 11, 5, 9, 20, tzinfo=UTC)
    assert summary.warnings == {"clock_change_time": 3}


def test_wrong_types(tmp_path: Path) -> None:
    summary, jobs = load_jobs(
        tmp_path,
        job(1, RAN),
        3,
        job(2, RAN, user=5),
        job(3, submitted="2017-10-07 01:11:39", attempts={"a": 1}),
        job(4, RAN | {"detail": [{"ip": "m1", "gpus": "gpu0"}]}),
        job(5, RAN, jobid=None),
        job(6, attempt("2017-10-07 01:12:09", "2017-10-07 01:12:00", 1), RAN),
        job(7, RAN, user="\ud800"),
    )
    assert [read["job_id"] for read in jobs] == ["application_1"]
    assert summary.quarantined == {
        "not_an_object": 1,
        "bad_user": 1,
        "bad_attempts": 2,
        "missing_job_id": 1,
        "end_before_start": 1,
        "bad_encoding": 1,
    }


def test_broken_element_loses_only_itself(tmp_path: Path) -> None:
    parts = [json.dumps(job(i, RAN), indent=4) for i in range(5)]
    parts[2] = parts[2].replace('"vc":', '"vc"')
    summary, jobs = load(tmp_path, "[" + ",\n".join(parts) + "]")
    assert [read["job_id"] for read in jobs] == [f"application_{i}" for i in (0, 1, 3, 4)]
    assert summary.quarantined == {"not_json": 1}
    assert [read["source_line"] for read in jobs] == [1, 2, 4, 5]


def test_a_list_cut_off_and_one_with_more_behind_it(tmp_path: Path) -> None:
    whole = json.dumps([job(i, RAN) for i in range(3)])
    for text, kept, reason in (
        (whole[:-40], 2, "truncated"),
        (whole + "\n[1]", 3, "after_the_list"),
    ):
        summary, jobs = load(tmp_path, text)
        assert len(jobs) == kept
        assert summary.quarantined == {reason: 1}


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    deep = '{"status": ' + "[" * 100_000 + "]" * 100_000 + "}"
    good = json.dumps(job(1, RAN))
    summary, jobs = load(tmp_path, f"[{good}, {deep}, {good.replace('_1', '_2')}]")
    assert len(jobs) == 2
    assert summary.quarantined == {"not_json": 1}
