"""`sacct --json` of 22.05 and of 23.11: the same jobs as in the text, and none is lost."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.replay.extra import read_extra
from pipeline.traces import IngestSummary, TraceError, ingest, read_dataset
from pipeline.traces import sacct_json as module
from pipeline.traces.registry import adapter_for
from pipeline.traces.sacct_json import SacctText

T = 1_704_448_800  # 2024-01-05T10:00:00 UTC
FIRST: Mapping[str, Any] = {  # as 22.05 prints a job
    "account": "physics",
    "comment": {"administrator": None, "job": None, "system": None},
    "allocation_nodes": 1,
    "array": {"job_id": 0, "limits": {}, "task": None, "task_id": None},
    "association": {"account": "physics", "cluster": "c", "partition": None, "user": "alice"},
    "cluster": "c",
    "derived_exit_code": {"status": "SUCCESS", "return_code": 0},
    "time": {
        "elapsed": 3600, "eligible": T + 300, "end": T + 7200, "start": T + 3600,
        "submission": T, "suspended": 0, "limit": 1440,
    },
    "exit_code": {"status": "SUCCESS", "return_code": 0},
    "flags": ["CLEAR_SCHEDULING", "STARTED_ON_BACKFILL"],
    "het": {"job_id": 0, "job_offset": None},
    "job_id": 100,
    "name": "train",
    "nodes": "n1",
    "partition": "gpu",
    "priority": 4242,
    "qos": "normal",
    "reservation": {"id": 0, "name": 0},
    "state": {"current": "COMPLETED", "reason": "None"},
    "steps": [{"step": {"id": "100.batch", "name": "a } b"}}],
    "tres": {
        "allocated": [
            {"type": "cpu", "name": None, "id": 1, "count": 8},
            {"type": "mem", "name": None, "id": 2, "count": 65536},
            {"type": "energy", "name": None, "id": 3, "count": None},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 2},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 2},
        ],
        "requested": [{"type": "gres", "name": "gpu", "id": 1001, "count": 2}],
    },
    "user": "alice",
}  # fmt: skip


def number(value: int | None, *, infinite: bool = False) -> Mapping[str, Any]:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def later(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job as 23.11 and later print it."""
    found = deepcopy(dict(job))
    code, limit = found["exit_code"], found["time"].get("limit")
    signal = code.get("signal", {}).get("signal_id")
    found["exit_code"] = {
        "status": [code["status"]],
        "return_code": number(code["return_code"]),
        "signal": {"id": number(signal), "name": ""},
    }
    endless = limit is None
    found["time"]["limit"] = number(limit, infinite=endless)
    found["priority"] = number(found["priority"])
    found["state"]["current"] = [found["state"]["current"]]
    found["array"]["task_id"] = number(found["array"]["task_id"])
    found["het"] = {"job_id": found["het"]["job_id"], "job_offset": number(None)}
    found["reservation"]["name"] = ""
    found["submit_line"] = "sbatch --gpus=2 a.sh | tee x"
    return found


SHAPES = {
    "22.05": (lambda job: dict(job), {"plugin": {"type": "openapi/dbv0.0.38"}}),
    "24.11": (later, {"plugin": {"type": "", "data_parser": "data_parser/v0.0.42"}}),
}


def written(folder: Path, text: bytes) -> Path:
    path = folder / "dump.json"
    path.write_bytes(text)
    return path


def dump(shape: str, *jobs: Mapping[str, Any]) -> bytes:
    """Jobs that differ from `FIRST` as they say; ids count up."""
    as_printed, meta = SHAPES[shape]
    all_of = [FIRST | {"job_id": 100 + i} | job for i, job in enumerate(jobs)]
    whole = {"meta": meta, "errors": [], "jobs": [as_printed(job) for job in all_of]}
    return json.dumps(whole, indent=2, ensure_ascii=False).encode()


def load(folder: Path, text: bytes) -> tuple[IngestSummary, list[dict[str, Any]]]:
    source = written(folder, text)
    assert adapter_for(source).name == "sacct"
    summary = ingest(source, folder / "out", timezone="Europe/Berlin")
    return summary, read_dataset(folder / "out").to_pylist()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_is_what_the_text_would_have_made_of_it(tmp_path: Path, shape: str) -> None:
    array = {"job_id": 90, "limits": {}, "task": None, "task_id": 3}
    killed = {
        "state": {"current": "FAILED", "reason": "None"},
        "exit_code": {"status": "SIGNALED", "return_code": None, "signal": {"signal_id": 9}},
    }
    endless = {"time": {**FIRST["time"], "limit": None if shape != "22.05" else 0xFFFFFFFF}}
    summary, jobs = load(tmp_path, dump(shape, {}, {"array": array}, killed, endless))
    assert (summary.kept, sum(summary.quarantined.values())) == (4, 0)
    first, task, dead, forever = jobs
    after = {"submit_time": 0, "eligible_time": 300, "start_time": 3600, "end_time": 7200}
    at = {name: datetime.fromtimestamp(T + s, UTC) for name, s in after.items()}
    assert {name: first[name] for name in at} == at, "instants, whatever zone is declared"
    assert (first["gpus"], first["gpu_type"], first["user"]) == (2, "a100", "alice")
    assert (first["time_limit_s"], first["exit_code"]) == (86_400.0, 0)
    assert (task["job_id"], dead["job_id"]) == ("90_3", "102")
    assert (dead["state"], dead["exit_code"]) == ("failed", 128 + 9)
    assert forever["time_limit_s"] is None


@pytest.mark.parametrize("shape", SHAPES)
def test_no_job_is_lost_to_free_text_or_other_encodings(tmp_path: Path, shape: str) -> None:
    text = dump(shape, {}, {"name": "a|b\n}, {c"}, {"name": "OLD"}, {"name": 'say "x" \\'})
    text = text.replace(b"OLD", "Gr\xf6\xdfe\t\x01".encode("latin-1"))
    summary, jobs = load(tmp_path, text)
    assert (summary.kept, sum(summary.quarantined.values())) == (4, 0)
    assert [job["name"] for job in jobs] == ["train", "a|b }, {c", "Größe \x01", 'say "x" \\']


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_it_is_read_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole = dump("24.11", {"name": "Grö}ße"}, {"name": 'a"{'})
    want = SacctText(io.BytesIO(whole), "x").read(1 << 20)
    monkeypatch.setattr(module, "CHUNK", chunk)
    got, text = b"", SacctText(io.BytesIO(whole), "x")
    while piece := text.read(10):
        got += piece
    assert got == want
    assert want.count(b"\n") == 3


@pytest.mark.parametrize("shape", SHAPES)
def test_a_job_that_is_broken_costs_itself_and_is_counted(tmp_path: Path, shape: str) -> None:
    text = dump(shape, {}, {"name": "BROKEN"}, {}, {"time": {}}, {})
    summary, jobs = load(tmp_path, text.replace(b'"BROKEN"', b'"a"b"'))
    assert [job["job_id"] for job in jobs] == ["100", "102", "104"]
    assert sum(summary.quarantined.values()) == 2
    (tmp_path / "cut").mkdir()
    cut, kept = load(tmp_path / "cut", text[: text.index(b"BROKEN")])
    assert ([job["job_id"] for job in kept], sum(cut.quarantined.values())) == (["100"], 1)


def test_what_a_replay_reads_beside_the_schema(tmp_path: Path) -> None:
    source = written(tmp_path, dump("24.11", {}, {"account": "chem", "qos": "high"}))
    ingest(source, tmp_path / "out", timezone="UTC")
    lines = np.array([job["source_line"] for job in read_dataset(tmp_path / "out").to_pylist()])
    extra = read_extra(source, lines)
    assert extra.of("Account") == ["physics", "chem"]
    assert extra.of("QOS") == ["normal", "high"]
    assert extra.of("Priority") == ["4242", "4242"]
    assert extra.of("SubmitLine") == ["sbatch --gpus=2 a.sh | tee x"] * 2
    assert extra.of("AllocTRES")[0] == "cpu=8,mem=65536M,gres/gpu=2,gres/gpu:a100=2"


def test_json_without_jobs_is_refused_in_a_line(tmp_path: Path) -> None:
    source = written(tmp_path, b'{"meta": {"plugin": {"type": "openapi/dbv0.0.38"}}, "x": 1}')
    with pytest.raises(TraceError, match='this JSON has no list "jobs"'):
        ingest(source, tmp_path / "out", timezone="UTC")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at", [b'"jobs": [', b'"account"', b'"name": "tra', b'"requested"'])
def test_a_file_that_is_cut_within_its_first_job_says_so(
    tmp_path: Path, shape: str, at: bytes
) -> None:
    text = dump(shape, {})
    source = written(tmp_path, text[: text.index(at) + len(at)])
    with pytest.raises(TraceError, match=r"ends (before|within) its first job: it was cut"):
        ingest(source, tmp_path / "out", format="sacct", timezone="UTC")


def test_a_dump_of_no_job_is_not_cut(tmp_path: Path) -> None:
    source = written(tmp_path, dump("24.11"))
    with pytest.raises(TraceError, match="no job in it"):
        ingest(source, tmp_path / "out", format="sacct", timezone="UTC")
