"""A writer of invented jobs in each format."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.testing.samples import BASE, Sample, clock, rows


def write_helios(folder: Path, jobs: Sequence[Sample], zone: str = "Asia/Shanghai") -> Path:
    header = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,"
        "submit_time,start_time,end_time,duration,queue"
    )
    lines = [
        (
            *(j.job_id, j.user, j.vc, j.raw.get("gpus", j.gpus), 4, -(-j.gpus // 8)),
            j.state.upper(),
            j.raw.get("submit", clock(j.submit, zone)),
            j.raw.get("start", clock(j.start, zone)),
            j.raw.get("end", clock(j.end, zone)),
            j.raw.get("duration", j.duration),
            int((j.start - j.submit).total_seconds()),
        )
        for j in jobs
    ]
    return _write(folder / "cluster_log.csv", rows(header, lines))


def write_helios_full(folder: Path, jobs: Sequence[Sample]) -> Path:
    header = (
        "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,"
        "dataset,model,batchsize,amp,speed,gpu_util,gmem_util,gmem"
    )
    lines = [
        (
            *(j.job_id, j.user, j.vc, "", j.raw.get("gpus", j.gpus), 4, j.state.upper()),
            j.raw.get("submit", clock(j.submit, "UTC")),
            j.raw.get("duration", j.duration),
            *("CIFAR-10", "ResNet18", 64, 1, 4038.5, 62.0, 34.5, 3642.0),
        )
        for j in jobs
    ]
    return _write(folder / "cluster_full_log.csv", rows(header, lines))


def write_philly(folder: Path, jobs: Sequence[Sample]) -> Path:
    zone = "America/Los_Angeles"
    status = {"completed": "Pass", "failed": "Failed", "cancelled": "Killed"}
    content = []
    for j in jobs:
        names = [f"gpu{i}" for i in range(int(j.raw.get("gpus", j.gpus)))]
        nodes = [{"ip": f"m{i}", "gpus": names[i : i + 8]} for i in range(0, len(names) or 1, 8)]
        attempt = {
            "start_time": j.raw.get("start", clock(j.start, zone)),
            "end_time": j.raw.get("end", clock(j.end, zone)),
            "detail": nodes,
        }
        content.append(
            {
                "status": status[j.state],
                "vc": j.vc,
                "jobid": j.job_id,
                "attempts": [attempt],
                "submitted_time": j.raw.get("submit", clock(j.submit, zone)),
                "user": j.user,
            }
        )
    return _write(folder / "cluster_job_log", json.dumps(content, indent=4))


def write_philly_csv(folder: Path, jobs: Sequence[Sample]) -> Path:
    lines = [
        (
            j.raw.get("submit", clock(j.submit, "America/Los_Angeles")),
            j.raw.get("duration", f"{j.duration}.0"),
            j.raw.get("gpus", j.gpus),
            j.duration * j.gpus,
            j.vc,
        )
        for j in jobs
    ]
    header = "timestamp,duration,num_gpus,gpu_time,cluster"
    return _write(folder / "philly.csv", rows(header, lines))


def _offset(when: datetime, origin: datetime) -> int:
    return int((when - origin).total_seconds())


def write_pai(folder: Path, jobs: Sequence[Sample]) -> Path:
    origin = datetime(2020, 7, 2, tzinfo=UTC)
    status = {"completed": "Terminated", "failed": "Failed", "cancelled": "Failed"}
    job_lines, task_lines, tag_lines = [], [], []
    for j in jobs:
        kind = _kind(j, "V100", "T4")
        submit = j.raw.get("submit", f"{_offset(j.submit, origin)}.0")
        end = j.raw.get("end", f"{_offset(j.end, origin)}.0")
        start = j.raw.get("start", f"{_offset(j.start, origin)}.0")
        state = status[j.state]
        job_lines.append((j.job_id, f"inst{j.job_id}", j.user, state, submit, end))
        gpus = j.raw.get("gpus")
        plan = str(float(gpus) * 100) if gpus is not None else "100.0"
        count = "1.0" if gpus is not None else f"{j.gpus}.0"
        task_lines.append((j.job_id, "ps", "1.0", state, start, end, "200.0", "8.0", "", ""))
        task_lines.append(
            (j.job_id, "worker", count, state, start, end, "600.0", "29.3", plan, kind)
        )
        tag_lines.append((f"inst{j.job_id}", j.user, kind, f"group-{j.user}", "bert"))
    folder = folder / "pai"
    folder.mkdir(exist_ok=True)
    _write(folder / "pai_task_table.csv", rows("", task_lines))
    _write(folder / "pai_group_tag_table.csv", rows("", tag_lines))
    _write(folder / "pai_job_table.csv", rows("", job_lines))
    return folder


def write_openb(folder: Path, jobs: Sequence[Sample]) -> Path:
    origin = datetime(2023, 1, 1, tzinfo=UTC)
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time"
    )
    kinds = ("V100M16|V100M32", "T4", "", "V100M32|G3")
    phase = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Failed"}
    lines = [
        (
            *(j.job_id, 4000, 12288, j.raw.get("gpus", j.gpus), 1000, _kind(j, *kinds), "LS"),
            phase[j.state],
            j.raw.get("submit", _offset(j.submit, origin)),
            j.raw.get("end", _offset(j.end, origin)),
            j.raw.get("start", _offset(j.start, origin)),
        )
        for j in jobs
    ]
    return _write(folder / "openb_pod_list_default.csv", rows(header, lines))


def write_spot(folder: Path, jobs: Sequence[Sample]) -> Path:
    origin = datetime(2025, 1, 1, tzinfo=UTC)
    header = (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,"
        "submit_time,duration,job_type"
    )
    lines = [
        (
            *(j.job_id, j.vc, _kind(j, "A100-SXM4-80GB", "H800"), 12, j.raw.get("gpus", j.gpus), 1),
            j.raw.get("submit", _offset(j.submit, origin)),
            j.raw.get("duration", j.duration),
            "HP",
        )
        for j in jobs
    ]
    return _write(folder / "job_info_df.csv", rows(header, lines))


def write_acme(folder: Path, jobs: Sequence[Sample], zone: str = "+08:00") -> Path:
    name = {"+08:00": "Asia/Shanghai", "+00:00": "UTC"}[zone]
    header = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
        "duration,queue,gpu_time"
    )
    lines = [
        (
            *(j.job_id, j.user, -(-j.gpus // 8), j.raw.get("gpus", j.gpus), 16, "Evaluation"),
            j.state.upper(),
            j.raw.get("submit", clock(j.submit, name) + zone),
            j.raw.get("start", clock(j.start, name) + zone),
            j.raw.get("end", clock(j.end, name) + zone),
            j.raw.get("duration", j.duration),
            int((j.start - j.submit).total_seconds()),
            float(j.duration * j.gpus),
        )
        for j in jobs
    ]
    return _write(folder / "trace_seren.csv", rows(header, lines))


def write_swf_lines(folder: Path, jobs: Sequence[Sample]) -> Path:
    origin = int(BASE.timestamp())
    status = {"completed": 1, "failed": 0, "cancelled": 5}
    lines = ["; Version: 2.2", f"; UnixStartTime: {origin}", "; MaxJobs: -1", ";", ""]
    for j in jobs:
        wait = int((j.start - j.submit).total_seconds())
        gpus = j.raw.get("gpus", j.gpus)
        submit = j.raw.get("submit", _offset(j.submit, BASE))
        run = j.raw.get("duration", j.duration)
        values = (
            *(j.job_id, submit, wait, run, gpus, -1, -1, gpus, 3600, -1, status[j.state]),
            *(j.user[1:], 1, 3, j.vc[2:], -1, -1, -1),
        )
        lines.append("".join(f"{value:>8} " for value in values))
    return _write(folder / "log.swf", "\n".join(lines) + "\n")


def write_sacct(folder: Path, jobs: Sequence[Sample], trailing: str = "") -> Path:
    header = (
        "JobID|JobName|User|Partition|QOS|Submit|Eligible|Start|End|Elapsed|Timelimit|State|"
        "ExitCode|ReqTRES|AllocTRES"
    )
    names = {"completed": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED by 1001"}
    lines = []
    for j in jobs:
        gpus = j.raw.get("gpus", j.gpus)
        kind = _kind(j, "a100", "v100")
        tres = f"billing=4,cpu=4,gres/gpu={gpus},gres/gpu:{kind}={gpus},mem=64G,node=1"
        hours, seconds = divmod(j.duration, 3600)
        elapsed = f"{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}"
        lines.append(
            (
                *(j.job_id, "train", j.user, j.vc, "normal"),
                j.raw.get("submit", clock(j.submit, "UTC", "T")),
                clock(j.submit, "UTC", "T"),
                j.raw.get("start", clock(j.start, "UTC", "T")),
                j.raw.get("end", clock(j.end, "UTC", "T")),
                j.raw.get("duration", elapsed),
                *("1-00:00:00", names[j.state], "0:0", tres, tres + trailing),
            )
        )
    return _write(folder / "sacct.txt", rows(header + trailing, lines, "|"))


def _kind(job: Sample, *kinds: str) -> str:
    """The kind of GPU of a job: one of these, the same whenever it is asked."""
    return kinds[sum(job.job_id.encode()) % len(kinds)]


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


WRITERS: dict[str, Callable[[Path, Sequence[Sample]], Path]] = {
    "helios": write_helios,
    "helios-full": write_helios_full,
    "philly": write_philly,
    "philly-csv": write_philly_csv,
    "pai2020": write_pai,
    "openb": write_openb,
    "spot2026": write_spot,
    "acme": write_acme,
    "swf": write_swf_lines,
    "sacct": write_sacct,
}
