"""A launch as `sbatch` options, a batch script and one `scontrol update`."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from pathlib import Path

from scheduler.backends.base import Launch, Purpose
from scheduler.backends.local.host import PLAIN, HostError, check_command, own_user, printable
from scheduler.backends.slurm.attempt import Key
from scheduler.backends.slurm.client import SlurmError, quoted, word
from scheduler.backends.slurm.parse import SlurmJob
from scheduler.backends.slurm.shape import Shape


def mark(launch: Launch, site: str) -> str:
    """Names an attempt in the comment of its job: who repeats a launch finds it by this.

    Args:
        site: names the journal, since one Slurm may have several services in front of it.
    """
    return f"pellucid:{site}:{launch.job_id}/{launch.attempt}"


def marked(job: SlurmJob, site: str) -> Key | None:
    """The attempt that a job was submitted for, by its comment and its name."""
    match = re.fullmatch(rf"pellucid:{re.escape(site)}:(\S+)/(\d{{1,9}})", job.comment)
    if match is None or job.name != f"{match[1]}.{match[2]}":
        return None
    return match[1], int(match[2])


def limit_s(launch: Launch) -> float | None:
    """How long it may run, seconds."""
    looked = launch.limit_s if launch.purpose is Purpose.PROFILE else None
    return min((s for s in (launch.time_limit_s, looked) if s is not None), default=None)


def options(launch: Launch, shape: Shape, output: Path, site: str) -> list[str]:
    """Options of `sbatch`: held, and without GPUs, which are set once and for all when it is
    placed (a changed type of a pending job is added to the old one: 22.05)."""
    nodes, user = len(launch.nodes), launch.user
    found = [
        "--hold",
        "--no-requeue",
        "--export=NIL",
        f"--job-name={word(launch.job_id)}.{launch.attempt}",
        f"--comment={mark(launch, site)}",
        f"--partition={shape.partition(launch.nodes[0], launch.purpose)}",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        f"--chdir={launch.workdir or '/'}",
    ]
    if user in ("", own_user()):
        found.append(f"--output={output}")
    else:
        found += [f"--uid={word(user)}", f"--output=pellucid-{launch.job_id}.{launch.attempt}.log"]
    if launch.memory_mib is not None:
        found.append(f"--mem={math.ceil(launch.memory_mib)}M")
    return found


def script(launch: Launch) -> str:
    """The batch script: the environment, then the command in the place of the shell.

    Raises HostError: it is none, or there is no such command.
    """
    check_command(launch)
    environment = dict(PLAIN)
    for name, value in launch.environment.items():
        if not (name.isascii() and name.isidentifier()) or "\0" in value:
            raise HostError(f"environment: {name!r} is no name, or its value holds a NUL byte")
        environment[name] = value
    program = launch.command[0]
    if shutil.which(program, path=environment["PATH"]) is None:  # as `sbatch` looks for a script
        raise HostError(f"{program}: no such command on the host of the service")
    environment |= {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PELLUCID_JOB_ID": printable(launch.job_id),
        "PELLUCID_ATTEMPT": str(launch.attempt),
        "PELLUCID_NODES": ",".join(map(str, launch.nodes)),
    }
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    home = ': "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"; export HOME'
    return "\n".join(["#!/bin/sh", *exports, home, f"exec {shlex.join(launch.command)}", ""])


def placement(launch: Launch, shape: Shape) -> str:
    """``n1:0,1;n2:0``: the GPUs of a launch by node."""
    pairs = zip(launch.nodes, launch.gpus, strict=True)
    return ";".join(f"{shape.names[node]}:{','.join(map(str, gpus))}" for node, gpus in pairs)


def update(slurm_id: str, launch: Launch, shape: Shape, why: str, *, ours: bool) -> str:
    """The one command that places a job. Slots are the same on every node of a job: a gang that
    wants other GPUs on its last node takes the slots of all of them there, too."""
    if not all(0 <= node < len(shape.names) for node in launch.nodes):
        raise SlurmError(f"there are no nodes {launch.nodes}")
    indices = sorted({gpu for gpus in launch.gpus for gpu in gpus})
    nodes = ",".join(shape.names[node] for node in launch.nodes)
    slots = ",".join(f"slot:g{index}:1" for index in indices)
    limit = limit_s(launch)
    parts = [
        f"update jobid={word(slurm_id)} NumNodes={len(launch.nodes)} "
        f"ReqNodeList={nodes} Gres={slots} Requeue=0",
        f"AdminComment={quoted(why)}",
    ]
    if ours and limit is not None:  # Slurm counts in minutes: the backend is there first
        parts.append(f"TimeLimit={math.ceil(limit / 60) + 1}")
    return " ".join(parts)
