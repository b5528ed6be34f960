"""What is particular to each CSV format and to PAI's tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.testing.samples import rows, samples
from pipeline.traces import IngestSummary, TraceError, ingest, read_dataset
from pipeline.traces.base import Options
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column
from pipeline.traces.tables import TableAdapter
from tests.pipeline.traces.samples import (
    write_acme,
    write_helios,
    write_helios_full,
    write_openb,
    write_pai,
    write_philly_csv,
)


def load(source: Path, **options: Any) -> tuple[IngestSummary, list[dict[str, Any]]]:
    out = source.parent / "dataset"
    summary = ingest(source, out, **options)
    return summary, read_dataset(out).to_pylist()


def text_file(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


class TestHelios:
    def test_states(self, tmp_path: Path) -> None:
        source = write_helios(tmp_path, samples(4))
        names = iter(["NODE_FAIL", "TIMEOUT", "SUSPENDED", ""])
        lines = source.read_text().splitlines()
        for i, line in enumerate(lines[1:], 1):
            fields = line.split(",")
            fields[6] = next(names)
            lines[i] = ",".join(fields)
        source.write_text("\n".join(lines))
        summary, jobs = load(source)
        assert [job["state"] for job in jobs] == ["node_fail", "timeout", "unknown", "unknown"]
        assert summary.warnings == {"unknown_state:SUSPENDED": 1, "missing_state": 1}

    def test_missing_start_is_kept_and_counted(self, tmp_path: Path) -> None:
        jobs = samples(4)
        jobs[2] = jobs[2].with_raw(start="None")
        summary, kept = load(write_helios(tmp_path, jobs))
        assert summary.kept == 4
        assert summary.missing_starts == 1
        assert kept[2]["start_time"] is None
        assert kept[2]["duration_s"] == jobs[2].duration  # as recorded

    def test_recorded_duration_is_kept_apart(self, tmp_path: Path) -> None:
        jobs = samples(4)
        jobs[1] = jobs[1].with_raw(duration=str(jobs[1].duration + 500))
        summary, kept = load(write_helios(tmp_path, jobs))
        assert summary.warnings == {"duration_differs": 1}
        assert kept[1]["duration_s"] == jobs[1].duration
        assert kept[1]["recorded_duration_s"] == jobs[1].duration + 500

    def test_same_id_twice_with_other_content(self, tmp_path: Path) -> None:
        source = write_helios(tmp_path, samples(4))
        edit(source, "7001,", "7000,")
        summary, _ = load(source)
        assert summary.kept == 4
        assert summary.duplicates == 0
        assert summary.repeated_job_ids == 1

    def test_quoted_values(self, tmp_path: Path) -> None:
        source = write_helios_full(tmp_path, samples(4))
        lines = source.read_text().splitlines()
        lines[1] = lines[1].replace(",,", ',"train, ""big"", all",', 1)
        lines[3] = lines[3].replace(",,", ',"never closed,', 1)
        summary, jobs = load(text_file(source, "\n".join(lines) + "\n"))
        assert [job["name"] for job in jobs] == ['train, "big", all', None, None]
        assert summary.quarantined == {"bad_quoting": 1}

    def test_workload_of_the_full_log(self, tmp_path: Path) -> None:
        _, jobs = load(write_helios_full(tmp_path, samples(2)))
        job = jobs[0]
        assert (job["dataset"], job["model"], job["batch_size"]) == ("CIFAR-10", "ResNet18", 64)
        assert job["amp"] is True
        assert (job["gpu_util_pct"], job["gpu_mem_util_pct"]) == (62.0, 34.5)
        assert job["gpu_mem_mib"] == 3642.0


class TestPhillyFlat:
    def test_gpu_time_is_checked(self, tmp_path: Path) -> None:
        source = write_philly_csv(tmp_path, samples(4))
        lines = source.read_text().splitlines()
        fields = lines[2].split(",")
        fields[3] = "1.0"
        lines[2] = ",".join(fields)
        summary, jobs = load(text_file(source, "\n".join([*lines, "", ""])))
        assert summary.warnings == {"gpu_time_differs": 1}
        assert summary.rows_in == 4
        assert [job["job_id"] for job in jobs] == ["line-2", "line-3", "line-4", "line-5"]


class TestAcme:
    # The two rows that the README of AcmeTrace shows for Kalos.
    KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,\
start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,\
2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,\
2023-05-17 11:28:54+00:00,2023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0
"""

    def test_duration_of_kalos_counts_waiting(self, tmp_path: Path) -> None:
        summary, jobs = load(text_file(tmp_path / "trace_kalos.csv", self.KALOS))
        assert summary.warnings == {"duration_counts_waiting": 2}
        assert [job["recorded_duration_s"] for job in jobs] == [18, 82]
        assert [job["duration_s"] for job in jobs] == [8, 70]
        assert jobs[0]["memory_mib"] == 8 * 1000 * 1024
        assert jobs[0]["submit_time"] == datetime(2023, 5, 17, 11, 0, 58, tzinfo=UTC)
        assert jobs[0]["name"] == "Other"

    def test_zone_is_in_the_file(self, tmp_path: Path) -> None:
        _, seren = load(write_acme(tmp_path, samples()))
        _, kalos = load(write_acme(tmp_path, samples(), zone="+00:00"))
        assert seren == kalos
        with pytest.raises(TraceError, match="timezone"):
            load(write_acme(tmp_path, samples()), timezone="UTC")

    def test_what_never_started_or_still_runs_has_no_duration(self, tmp_path: Path) -> None:
        """The recorded one counts the queue, or up to the day of the export."""
        head = (
            "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
            "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time"
        )
        submit, start = "2023-05-17 10:00:00+00:00", "2023-05-17 10:01:00+00:00"
        common = "u1,1,8,96,100,10.0,Other"
        (tmp_path / "trace_kalos.csv").write_text(
            f"{head}\n"
            f"a,{common},RUNNING,{submit},{start},,,,18,10.0,1.0\n"
            f"b,{common},CANCELLED,{submit},,2023-05-17 10:30:00+00:00,,,1800,,0.0\n"
            f"c,{common},OUT_OF_MEMORY,{submit},{start},2023-05-17 10:02:00+00:00,,,60,,0.0\n"
        )
        summary, jobs = load(tmp_path / "trace_kalos.csv")
        assert [job["state"] for job in jobs] == ["running", "cancelled", "out_of_memory"]
        assert [job["duration_s"] for job in jobs] == [None, None, 60]
        assert summary.warnings == {}


class TestOpenb:
    def test_shares_and_phases(self, tmp_path: Path) -> None:
        header = (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
            "creation_time,deletion_time,scheduled_time"
        )
        lines = [
            ("a", 6000, 12288, 1, 460, "", "LS", "Running", 10, 500, 20),
            ("b", 6000, 12288, 8, 1000, "G2|T4", "BE", "Pending", 30, 40, ""),
            ("c", 1000, 1024, 0, 0, "", "BE", "Running", 50, 60, 55),
            ("d", 1000, 1024, 1, 1500, "", "BE", "Running", 50, 60, 55),
        ]
        summary, jobs = load(text_file(tmp_path / "pods.csv", rows(header, lines)))
        assert summary.quarantined == {"no_gpu": 1, "bad_gpu_share": 1}
        assert summary.warnings == {"ended_after_snapshot": 1}
        assert [job["gpus"] for job in jobs] == [1, 8]
        assert [job["gpu_share"] for job in jobs] == [pytest.approx(0.46), 1.0]
        assert [job["gpu_type"] for job in jobs] == [None, "G2|T4"]
        assert [job["state"] for job in jobs] == ["running", "pending"]
        assert jobs[0]["cpus"] == 6
        assert jobs[0]["duration_s"] == 480
        assert (jobs[1]["start_time"], jobs[1]["duration_s"]) == (None, None)

    def test_an_origin_has_a_zone(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no zone"):
            load(write_openb(tmp_path, samples(2)), origin=datetime(2024, 1, 1))


class TestSpot:
    def test_workers(self, tmp_path: Path) -> None:
        header = (
            ",job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,"
            "submit_time,duration,job_type"
        )
        lines = [
            (0, 1, 13, "A10", 20, 1, 1, 0, 2764799, "HP"),
            (1, 2, 57, "A100-SXM4-80GB", 15, 1, 94, 9589663, 71718, "Spot"),
            (2, 3, 57, "A10", 15, 0.25, 4, 9589663, 71718, "Spot"),
            (3, 4, 57, "A10", 15, 0, 4, 9589663, 71718, "Spot"),
            (4, 5, 57, "A10", 15, 1, 1.5, 9589663, 71718, "Spot"),
        ]
        summary, jobs = load(text_file(tmp_path / "job_info_df.csv", rows(header, lines)))
        assert summary.quarantined == {"no_gpu": 1, "bad_workers": 1}
        assert [job["gpus"] for job in jobs] == [1, 94, 4]
        assert [job["gpu_share"] for job in jobs] == [1.0, 1.0, 0.25]
        assert [job["cpus"] for job in jobs] == [20, 15 * 94, 60]
        assert [(job["vc"], job["qos"]) for job in jobs][1] == ("57", "Spot")


class TestPai:
    def folder(self, tmp_path: Path, jobs: str, tasks: str, tags: str | None = None) -> Path:
        folder = tmp_path / "pai"
        folder.mkdir()
        text_file(folder / "pai_job_table.csv", jobs)
        text_file(folder / "pai_task_table.csv", tasks)
        if tags is not None:
            text_file(folder / "pai_group_tag_table.csv", tags)
        return folder

    def test_a_job_is_its_tasks(self, tmp_path: Path) -> None:
        source = self.folder(
            tmp_path,
            "j1,i1,u1,Terminated,100.0,900.0\nj2,i2,u1,Waiting,200.0,\nj3,i3,u1,Failed,5.0,9.0\n",
            "j1,ps,1.0,Terminated,150.0,900.0,600.0,29.0,,\n"
            "j1,worker,2.0,Terminated,140.0,900.0,400.0,1.5,50.0,T4\n"
            "j1,chief,1.0,Terminated,160.0,900.0,400.0,1.0,200.0,T4\n"
            "j2,worker,1.0,Waiting,,,400.0,1.0,100.0,P100\n"
            "j2,evaluator,1.0,Waiting,,,400.0,1.0,100.0,V100\n",
            "i1,u1,V100,group9,bert\n",
        )
        summary, jobs = load(source)
        assert summary.quarantined == {"missing_gpus": 1}
        assert summary.skipped == {"group_tag": 1, "task": 5}
        assert summary.warnings == {"mixed_gpu_types": 1}
        assert summary.rows_in == 9
        first, second = jobs
        assert first["gpus"] == 4
        assert first["gpu_share"] == 0.75
        assert first["cpus"] == 6 + 8 + 4
        assert first["memory_mib"] == (29 + 2 * 1.5 + 1) * 1024
        assert (first["end_time"] - first["submit_time"]).total_seconds() == 800
        assert first["duration_s"] == 760
        assert (first["gpu_type"], first["name"], first["model"]) == ("T4", "group9", "bert")
        assert (second["state"], second["start_time"], second["gpu_type"]) == (
            "pending",
            None,
            None,
        )

    def test_hour_and_weekday_are_those_of_the_site(self, tmp_path: Path) -> None:
        source = write_pai(tmp_path, samples(1))
        job_table = source / "pai_job_table.csv"
        fields = job_table.read_text().strip().split(",")
        fields[4:] = ["4550879.0", "4551416.0"]
        job_table.write_text(",".join(fields))
        (source / "pai_task_table.csv").write_text("7000,w,1.0,Terminated,4550880.0,,1,1,100.0,T4")
        _, jobs = load(source)
        published = datetime.fromtimestamp(4550879, UTC)
        read = jobs[0]["submit_time"]
        assert (read.time(), read.weekday()) == (published.time(), published.weekday())
        assert read.year == 2020

    def test_header_may_stand_in_the_table(self, tmp_path: Path) -> None:
        plain, jobs = load(write_pai(tmp_path, samples(3)))
        folder = tmp_path / "pai"
        headers = {
            "pai_job_table.csv": "job_name,inst_id,user,status,start_time,end_time\n",
            "pai_group_tag_table.csv": "inst_id,user,gpu_type_spec,group,workload\n",
        }
        for name, header in headers.items():
            text_file(folder / name, header + (folder / name).read_text())
        summary, again = load(folder)
        assert summary == plain
        assert [{**job, "source_line": 0} for job in again] == [
            {**job, "source_line": 0} for job in jobs
        ]

    def test_tables_must_be_there(self, tmp_path: Path) -> None:
        source = write_pai(tmp_path, samples(1))
        (source / "pai_task_table.csv").unlink()
        with pytest.raises(TraceError, match=r"pai_task_table\.csv"):
            load(source, format="pai2020")


class StartsOnly(TableAdapter):
    name, version, title = "starts-only", 1, "neither ids nor submissions"
    timezone = "UTC"
    line_ids = True
    columns = (Column("gpus", "gpus", "number"), Column("start", "start_time", "time"))

    def convert(self, draft: Draft, options: Options) -> None:
        self.localise(draft, options.timezone, "start_time")
        if draft.source == "submitted.csv":
            draft.columns["submit_time"] = draft.columns["start_time"]


def test_an_adapter_that_gives_no_submissions_is_named_what_it_lacks(tmp_path: Path) -> None:
    text = "gpus,start\n4,2026-01-01 00:00:00\n"
    format = f"{__name__}:StartsOnly"
    with pytest.raises(TypeError, match=r"^jobs\.csv: its adapter gives no column submit_time; "):
        load(text_file(tmp_path / "jobs.csv", text), format=format)
    _, [job] = load(text_file(tmp_path / "submitted.csv", text), format=format)
    assert job["job_id"] == "line-2"
