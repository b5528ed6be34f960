"""Reads a user's ended jobs from `sacct`."""

from __future__ import annotations

import secrets

from scheduler.slurm.read.client import Slurm
from scheduler.slurm.read.job_states import OVER
from scheduler.slurm.read.parse import SlurmJob, moment
from scheduler.slurm.read.tres import gpu_types

_COLUMNS = "JobID,User,Partition,Submit,Start,End,State,TimelimitRaw,AllocCPUS,AllocTRES,JobName"


def past(slurm: Slurm, user: str, days: int) -> list[SlurmJob]:
    """Return the jobs of `user` ("" for all users) that ran and ended in the last `days` days, as
    far as `sacct` shows them. Lines that cannot be read are left out, and so are those within a
    job's name. Raise SlurmDown or SlurmError where `sacct` does not answer or fails."""
    since, who = f"now-{days}days", ("-u", user) if user else ("-a",)
    mark = secrets.token_hex(8)  # a name with a line end in it forges no job, of another user's
    how = f"--delimiter={mark}", "-o", _COLUMNS
    text = slurm.read("sacct", "-n", "-P", "-X", *who, "-S", since, *how)
    found = (_job(line, mark) for line in text.splitlines())
    return [job for job in found if job is not None]


def _job(line: str, mark: str) -> SlurmJob | None:
    try:
        job_id, user, partition, submit, start, end, state, limit, cpus, tres, name = line.split(
            mark, 10
        )
        times = [moment(one) for one in (submit, start, end)]
        types = gpu_types(tres) or {}
        word = (state.split() or [""])[0]
        if word not in OVER or None in times:
            return None
        return SlurmJob(
            id=job_id,
            state=word,
            user=user,
            name=name,
            partition=partition,
            submit=times[0] or 0.0,
            start=times[1],
            end=times[2],
            gpus=sum(types.values()),
            gpu_type=next(iter(types)) if len(types) == 1 else "",
            cpus=int(cpus or 1),
            time_limit_s=60.0 * int(limit) if limit.isdecimal() else None,
        )
    except (ValueError, OverflowError):
        return None
