"""A job as its submitter describes it, and its profile once it has one.

Nothing here says how long the job runs: that is known only when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from features.amounts import Work

# of the profile's fields: what the driver counts where the GPU has the counters, with their most
COUNTERS = {
    "sm_active_pct": 100.0,
    "sm_occupancy_pct": 100.0,
    "dram_pct": 100.0,
    "tensor_pct": 100.0,
    "power_w": 5_000.0,
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of a short profiling run of a job: means per GPU over the steady part of the
    run.

    Attributes:
        gpu_util_pct: share of time a kernel was running, percent (0-100).
        gpu_mem_util_pct: share of time the memory was read or written, percent (0-100).
        gpu_mem_mib: peak memory in use on one GPU, MiB.
        amp: whether mixed precision is in use; None when it could not be inferred.
        sm_active_pct: share of cycles in which an SM had a warp, mean over SMs, percent (0-100).
        sm_occupancy_pct: warps resident on the SMs, percent of the most there can be (0-100).
        dram_pct: share of cycles in which memory was read or written, percent (0-100).
        tensor_pct: share of cycles in which tensor cores worked, percent (0-100).
        power_w: power drawn, watts. `power_w`, `sm_active_pct`, `sm_occupancy_pct`, `dram_pct` and
            `tensor_pct` are None if the GPU does not count them.
    """

    gpu_util_pct: float
    gpu_mem_util_pct: float
    gpu_mem_mib: float
    amp: bool | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    dram_pct: float | None = None
    tensor_pct: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job when it is submitted.

    Attributes:
        job_id: unique in its trace or cluster.
        submit_time: seconds since the Unix epoch (UTC).
        gpus: number of GPUs; the job holds all of them at the same time.
        user, vc: submitting user and virtual cluster.
        name: job name as given; empty when there is none.
        cpus: CPU cores asked for; None when unknown.
        memory_mib: host memory asked for, MiB; None when unknown.
        gpu_type: required GPU type; None when any will do.
        time_limit_s: time limit that the user asked for, seconds; None when there is none.
        share: may share its GPUs with another job; False is the user's opt-out.
        profile: may be profiled before it runs; False is the user's opt-out.
        after, after_any: ids of jobs, separated by commas, that must end before this job starts:
            successfully, or in any way.
        work: the amount of training that its command states; None if unknown, or if the command may
            not be read.
        like: digest of its command and working directory, equal if both are; "" if unknown, or if
            the command may not be read.
        expect: how long its owner expects it to run: seconds, "test" or "full"; "" for no answer.
    """

    job_id: str
    submit_time: float
    gpus: int
    user: str = ""
    vc: str = ""
    name: str = ""
    cpus: float | None = None
    memory_mib: float | None = None
    gpu_type: str | None = None
    time_limit_s: float | None = None
    share: bool = True
    profile: bool = True
    after: str = ""
    after_any: str = ""
    work: Work | None = None
    like: str = ""
    expect: str = ""


def of_trace(row: Mapping[str, Any], submit_time: float) -> Job:
    """Return the job in a row of a trace (`features.schema`), as its submitter described it. What
    is known only later is left out: state, start, end and duration.

    Args:
        submit_time: time of its submission, seconds since the Unix epoch.
    """
    return Job(
        job_id=row["job_id"],
        submit_time=submit_time,
        gpus=row["gpus"],
        user=row["user"] or "",
        vc=row["vc"] or "",
        name=row["name"] or "",
        cpus=row["cpus"],
        memory_mib=row["memory_mib"],
        gpu_type=row["gpu_type"],
        time_limit_s=row["time_limit_s"],
    )
