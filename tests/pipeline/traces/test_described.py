"""Traces by a description: columns, units, zones, states, whatever the file is written in."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.traces import TraceError, ingest, read_dataset
from pipeline.traces.described import MAPS, _mebibytes, described, shipped
from pipeline.traces.preview import lines_of

SITE = """\
name: site
columns:
  job_id: id
  user: owner.name
  gpus: {product: [nodes, each]}
  submit_time: {column: submitted, unit: ms}
  start_time: {column: started, unit: unix}
  duration: {column: ran, unit: min}
  time_limit: {column: limit, unit: clock}
  memory_mib: {column: mem, unit: gib, required: false}
  state: status
  vc: {value: main}
states: {DONE: completed, KILL: cancelled}
origin: 2023-01-01T00:00:00Z
"""
ROWS: list[dict[str, Any]] = [
    {"id": 1, "owner.name": "ann", "nodes": 2, "each": 8, "submitted": 60_000, "status": "DONE",
     "started": 1672531320, "ran": 2.5, "limit": "1-00:00:00", "mem": 64},
    {"id": 2, "owner.name": "bob", "nodes": 1, "each": 4, "submitted": 90_000, "status": "KILL",
     "started": None, "ran": None, "limit": None, "mem": None},
]  # fmt: skip


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def nested(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "owner": {"name": row["owner.name"]}, "owner.name": None} for row in rows]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    found = [{k: v for k, v in row.items() if k != "owner.name"} for row in nested(rows)]
    return "".join(json.dumps(row) + "\n" for row in found).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


WAYS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "csv": as_csv,
    "jsonl": as_lines,
    "json": lambda rows: json.dumps(rows).encode(),
    "parquet": as_parquet,
    "csv.gz": lambda rows: gzip.compress(as_csv(rows)),
    "jsonl.gz": lambda rows: gzip.compress(as_lines(rows)),
}


def load(folder: Path, data: bytes, description: str = SITE) -> tuple[Any, list[dict[str, Any]]]:
    (folder / "site.yaml").write_text(description)
    (folder / "jobs").write_bytes(data)
    summary = ingest(folder / "jobs", folder / "out", format=str(folder / "site.yaml"))
    return summary, read_dataset(folder / "out").to_pylist()


@pytest.mark.parametrize("way", WAYS)
def test_a_trace_is_read_by_its_description(way: str, tmp_path: Path) -> None:
    summary, [first, second] = load(tmp_path, WAYS[way](ROWS))
    assert summary.quarantined == {}
    assert (first["job_id"], first["user"], first["gpus"], first["vc"]) == ("1", "ann", 16, "main")
    assert first["submit_time"] == datetime(2023, 1, 1, 0, 1, tzinfo=UTC)
    assert first["start_time"] == datetime(2023, 1, 1, 0, 2, tzinfo=UTC)
    assert (first["duration_s"], first["time_limit_s"]) == (150, 86_400)
    assert first["memory_mib"] == 65_536
    assert (first["state"], second["state"]) == ("completed", "cancelled")
    assert (second["start_time"], second["duration_s"]) == (None, None)


def test_what_is_wrong_in_a_row_costs_that_row(tmp_path: Path) -> None:
    wrong = [{**ROWS[0], "id": 3, "submitted": "noon"}, {**ROWS[0], "id": 4, "each": "x"}]
    summary, jobs = load(tmp_path, as_csv([*ROWS, *wrong]))
    assert summary.quarantined == {"bad_gpus": 1, "bad_submit_time": 1}
    assert len(jobs) == 2
    summary, jobs = load(tmp_path, as_lines(ROWS) + b"{no json\n[1]\n")
    assert summary.quarantined == {"wrong_column_count": 2}
    assert len(jobs) == 2


def test_clock_times_lists_in_documents_and_files_without_a_header(tmp_path: Path) -> None:
    text = """
header: [when, n, tres]
delimiter: "|"
timezone: America/New_York
columns:
  submit_time: when
  gpus: {column: tres, pattern: 'gpu=(\\d+)', default: 0}
"""
    data = b"2024-05-01 09:00:00|a|cpu=4,gpu=2\n2024-05-01 09:00:00|b|cpu=4\n"
    summary, [job] = load(tmp_path, data, text)
    assert job["submit_time"] == datetime(2024, 5, 1, 13, tzinfo=UTC)
    assert (job["gpus"], job["job_id"]) == (2, "line-1")
    assert summary.quarantined == {"no_gpu": 1}
    text = "rows: trace.jobs\ncolumns: {submit_time: at, gpus: res}\n"
    body = {"nodes": 4, "trace": {"jobs": [{"at": "2024-05-01T09:00:00+02:00", "res": 3}]}}
    _, [job] = load(tmp_path, json.dumps(body).encode(), text)
    assert job["submit_time"] == datetime(2024, 5, 1, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "no description"),
        ("[]", "needs `columns:`"),
        ("columns: {gpus: n}", "submit_time is missing"),
        ("columns: {gpus: n, submit_time: t, colour: c}", "'colour' is none of"),
        ("columns: {gpus: n, submit_time: {column: t, unit: fortnight}}", "unit is 'fortnight'"),
        ("columns: {gpus: n, submit_time: {unit: s}}", "give a column"),
        ("columns: {gpus: n, submit_time: t}\nstates: {A: asleep}", "states: each is one of"),
        ("columns: {gpus: n, submit_time: t}\ntimezone: Mars", "'Mars' is not known"),
        ("columns: {gpus: n, submit_time: t}\nunit: s", "'unit' is none of"),
    ],
)
def test_a_wrong_description_is_one_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(TraceError, match=words) as error:
        described(tmp_path / "a.yaml")
    assert "\n" not in str(error.value)


# files in the shape of public ones, with figures of our own
SHAPES = {
    "muri": "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"
    "0,4,60000,10,net,16,7200000\n",
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
    "0,4,60,10,net,7200,0\n",
    "sia": "name,time,application,num_replicas,batch_size\nnet-0,60,net,4,128\n",
    "batsim": '{"nb_res": 8, "jobs": [{"id": "0", "subtime": 60, "walltime": 7200, "res": 4, '
    '"profile": "a"}], "profiles": {}}',
    "supercloud": "id_job,id_user,partition,cpus_req,timelimit,time_submit,time_start,time_end,"
    "state,gres_alloc\n0,9,main,40,120,946684860,946684900,946692100,3,gpu:volta:4\n",
    "dlrm2025": "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,creation_time,"
    "scheduled_time,deletion_time\n0,CN,a,8,4,32.5,60,100,7300\n",
    "pm100": "job_id,user_id,partition,num_gpus_alloc,num_nodes_alloc,num_cores_alloc,submit_time,"
    "start_time,end_time,run_time,job_state\n0,1,1,4,1,32,2000-01-01 00:01:00+00:00,"
    "2000-01-01 00:01:40+00:00,2000-01-01 02:01:40+00:00,7200,COMPLETED\n",
    "elasticflow": "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,"
    "real_duration,duration,iteration\n0,60,900,net,9000,64,4,7200,7200,900\n",
    "kestrel": "id,user_hash,account_hash,partition,qos,gpus_requested,nodes_req,processors_req,"
    "memory_req,submit_time,start_time,end_time,wallclock_req,wallclock_used,queue_wait,"
    "state_simple\n0,u,a,gpu-h100,normal,4,1,32,240G,1999-12-31 17:01:00,1999-12-31 17:01:40,"
    "1999-12-31 19:01:40,14400,7200,40,COMPLETED\n",
    "cloudbrain": "Task Name,Request GPU,Request CPU,Request Host Memory,Submit Time,Start Time,"
    "End Time,Job Type,Scheduled Node,GPU Utilization,GPU Memory,CPU Usage,Host Memory Average\n"
    "u-0-0,4,32,65536,946684860,946684900,946692100,dgx,n-1,81.5,20480,10.5,4096\n",
    "batsim-jobs": "job_id,workload_name,profile,submission_time,requested_number_of_resources,"
    "requested_time,success,final_state,starting_time,execution_time,finish_time,waiting_time,"
    "turnaround_time,stretch,allocated_resources,consumed_energy,metadata\n0,w,p,60,4,9000,1,"
    "COMPLETED_SUCCESSFULLY,100,7200,7300,40,7240,1.006,0-3,-1,\n",
    "gavel": "net (batch size 8)\tpython m.py\tdir\t-n\t1\t1000\t4\t1\t-1.0\t60\n",
}


@pytest.mark.parametrize("name", SHAPES)
def test_shipped_descriptions_read_the_shapes_they_are_of(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(SHAPES[name])
    summary = ingest(
        tmp_path / "file", tmp_path / "out", format=name if name == "gavel" else "auto"
    )
    [job] = read_dataset(tmp_path / "out").to_pylist()
    assert summary.format == name
    assert job["gpus"] == 4
    assert job["submit_time"] == datetime(2000, 1, 1, 0, 1, tzinfo=UTC)
    assert job["duration_s"] in (7200, None)


def _many(name: str, jobs: list[tuple[int, int, int]]) -> str:
    """The same file with other jobs: GPUs, second of submission, how long they ran."""
    ran = (lambda t, d: (f"{t * 1000}", f"{d * 1000}")) if name == "muri" else (
        lambda t, d: (f"{t}", f"{d}")
    )  # fmt: skip
    rows = []
    for i, (gpus, at, took) in enumerate(jobs):
        when, lasts = ran(at, took)
        rows.append({
            "muri": f"{i},{gpus},{when},10,net,16,{lasts}",
            "tiresias": f"{i},{gpus},{when},10,net,{lasts},0",
            "elasticflow": f"{i},{when},900,net,9000,64,{gpus},{lasts},{lasts},900",
            "dlrm2025": f"{i},CN,a,8,{gpus},32.5,{at},{at + 40},{at + 40 + took}",
            "supercloud": f"{i},9,main,40,120,{946684800 + at},{946684840 + at},"
            f"{946684840 + at + took},3,gpu:volta:{gpus}",
        }[name])  # fmt: skip
    return "\n".join([SHAPES[name].splitlines()[0], *rows]) + "\n"


@pytest.mark.parametrize("name", ["muri", "tiresias", "elasticflow", "dlrm2025", "supercloud"])
def test_rows_gpu_hours_and_means_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    jobs = [(1 + i % 8, 600 * i, 1800 + 977 * (i % 13)) for i in range(60)]
    (tmp_path / "file").write_text(_many(name, jobs))
    summary = ingest(tmp_path / "file", tmp_path / "out")
    assert (summary.format, summary.rows_in, summary.kept) == (name, 60, 60)
    table = read_dataset(tmp_path / "out")
    hours = sum(gpus * took for gpus, _, took in jobs) / 3600
    found = zip(table["gpus"].to_pylist(), table["duration_s"].to_pylist(), strict=True)
    assert sum(gpus * took for gpus, took in found) / 3600 == pytest.approx(hours)
    mean = sum(took for _, _, took in jobs) / 60
    lines = lines_of(tmp_path / "out", datetime(2030, 1, 1, tzinfo=UTC))
    assert lines[0] == f"{hours:,.0f} GPU-hours"
    assert f"mean {mean:,.0f} s" in lines[1]


def test_parquet_of_kestrel_holds_durations_sizes_and_zones(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=-7))
    begin = datetime(2025, 4, 1, 12, tzinfo=zone)
    starts = [begin + timedelta(seconds=40), None]
    ends, instant = [begin + timedelta(hours=2), begin], pa.timestamp("us", "-07:00")
    limits = [timedelta(hours=4), timedelta(minutes=30)]
    jobs = pa.table(
        {
            "id": ["1", "2"],
            "user_hash": ["u", "v"],
            "account_hash": ["a", "a"],
            "partition": ["gpu-h100", "standard"],
            "qos": ["normal", "high"],
            "gpus_requested": [8, None],
            "nodes_req": [2, 1],
            "processors_req": [256, 104],
            "memory_req": ["256G", "250000M"],
            "submit_time": pa.array([begin, begin], instant),
            "start_time": pa.array(starts, instant),
            "end_time": pa.array(ends, instant),
            "wallclock_req": pa.array(limits, pa.duration("us")),
            "wallclock_used": pa.array([timedelta(hours=2), None], pa.duration("us")),
            "queue_wait": pa.array([timedelta(seconds=40), None], pa.duration("us")),
            "state_simple": ["COMPLETED", "CANCELLED"],
        }
    )
    pq.write_table(jobs, tmp_path / "jobs.parquet")
    summary = ingest(tmp_path / "jobs.parquet", tmp_path / "out")
    kept = {job["job_id"]: job for job in read_dataset(tmp_path / "out").to_pylist()}
    assert (summary.format, summary.rows_in) == ("kestrel", 2)
    assert (kept["1"]["gpus"], kept["1"]["memory_mib"]) == (8, 256 * 1024)
    assert kept["1"]["submit_time"] == datetime(2025, 4, 1, 19, tzinfo=UTC)
    assert (kept["1"]["duration_s"], kept["1"]["time_limit_s"]) == (7160, 14_400)


def test_every_description_has_a_shape_here() -> None:
    assert {path.stem for path in MAPS.glob("*.yaml")} == {*shipped()} == {*SHAPES}


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({}, ""),
        ({"submit_time": {"column": "t", "unit": "s"}, "origin": "2090-01-01"}, "in the future"),
        ({"duration": {"column": "d", "unit": "h"}}, "durations are above 20 days"),
        ({"duration": {"column": "d", "unit": "ms"}}, "under 5 s"),
        ({"submit_time": {"column": "t", "unit": "ms"}}, "within a minute"),
        ({"submit_time": {"column": "t", "unit": "h"}}, "10 days apart"),
    ],
)
def test_a_wrong_unit_is_doubted_aloud(change: dict[str, Any], doubt: str, tmp_path: Path) -> None:
    columns = {
        "gpus": "n",
        "submit_time": {"column": "t", "unit": "s"},
        "duration": {"column": "d", "unit": "s"},
    }
    more = {name: value for name, value in change.items() if name == "origin"}
    columns |= {name: value for name, value in change.items() if name != "origin"}
    rows = "".join(f"1,{600 * i},{600 + i}\n" for i in range(50))
    load(tmp_path, b"n,t,d\n" + rows.encode(), json.dumps({"columns": columns, **more}))
    doubts = [line for line in lines_of(tmp_path / "out", datetime(2030, 1, 1, tzinfo=UTC))
              if line.startswith("doubt")]  # fmt: skip
    assert len(doubts) == bool(doubt)
    assert all(doubt in line for line in doubts)


def test_totals_are_those_of_the_rows(tmp_path: Path) -> None:
    load(tmp_path, as_csv(ROWS))
    found = lines_of(tmp_path / "out", datetime(2030, 1, 1, tzinfo=UTC))
    assert found[0] == "1 GPU-hours"  # 16 GPUs for 150 s
    assert found[1].startswith("duration: mean 150 s, median 150 s")
    assert found[2].startswith("wait: mean 60 s")


def test_sizes_with_a_suffix_are_mebibytes() -> None:
    sizes = {"512": 512.0, "2048K": 2.0, "1M": 1.0, "256Gn": 262_144.0, "1.5Tc": 1_572_864.0,
             "1p": 1024.0**3, "x": None, "1X": None, "": None}  # fmt: skip
    assert {text: _mebibytes(text) for text in sizes} == sizes
