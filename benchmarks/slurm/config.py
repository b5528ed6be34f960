"""Writes the configuration files of a private cluster."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.slurm import university
from scheduler.slurm.read.versions import OLDEST, Release, release_in

SLURM_USER = "slurm"


@dataclass(frozen=True, slots=True)
class Own:
    """Nodes and partitions that replace the default ones of a private cluster.

    Attributes:
        nodes: number of nodes, named n1, n2, ...
        gres: function that takes the cluster's folder and returns the text of gres.conf.
        lines: function that takes the ports of the nodes and returns lines of slurm.conf.
    """

    nodes: int
    gres: Callable[[Path], str]
    lines: Callable[[Sequence[int]], list[str]]


UNIVERSITY = Own(len(university.NODES), university.gres, university.lines)


@dataclass(frozen=True, slots=True)
class Shape:
    """The size and kind of a private cluster.

    Attributes:
        nodes: number of nodes, named n1, n2, ...
        gpus: fake GPUs on each node; each is a plain file.
        accounting: whether slurmdbd and MariaDB run.
        own: nodes and partitions in place of equal nodes in one partition; None: the latter.
    """

    nodes: int = 4
    gpus: int = 8
    accounting: bool = False
    own: Own | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of the loopback interface on which the daemons listen."""

    controller: int
    nodes: tuple[int, ...]
    database: int


@cache
def release() -> Release:
    """Return the Slurm release of the daemons that are found first in PATH."""
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False).stdout
    return release_in(said) or OLDEST


def write(folder: Path, name: str, shape: Shape, ports: Ports) -> None:
    """Write slurm.conf and gres.conf into the folder of a cluster."""
    for index in range(shape.gpus):
        (folder / f"gpu{index}").touch()  # Slurm wants a path that exists, and no more
    # without groups of processes, which a host may keep to itself
    plain = "CgroupPlugin=disabled\n" if release() >= (23, 11) else "CgroupAutomount=no\n"
    (folder / "cgroup.conf").write_text(plain)
    lines = _daemons(folder, name, shape, ports)
    if shape.own is not None:
        gres, more = shape.own.gres(folder), shape.own.lines(ports.nodes)
    else:
        gres, more = f"Name=gpu File={folder}/gpu[0-{shape.gpus - 1}]\n", _plain(shape, ports)
    (folder / "gres.conf").write_text(gres)
    (folder / "slurm.conf").write_text("\n".join(lines + more) + "\n")


def _daemons(folder: Path, name: str, shape: Shape, ports: Ports) -> list[str]:
    """Return the lines of slurm.conf that are the same for every shape of cluster."""
    host = socket.gethostname()
    lines = [
        f"ClusterName={name}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports.controller}",
        f"SlurmUser={SLURM_USER}",
        "CommunicationParameters=NoCtldInAddrAny",
        f"AuthInfo=socket={folder}/munge/socket,cred_expire=5",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/state/slurmctld.pid",
        f"SlurmctldLogFile={folder}/state/slurmctld.log",
        f"SlurmdSpoolDir={folder}/spool/%n",
        f"SlurmdPidFile={folder}/spool/%n.pid",
        f"SlurmdLogFile={folder}/spool/%n.log",
        # Several slurmd on one host, which has fewer processors than the nodes say.
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=task=1",
        "JobAcctGatherParams=OverMemoryKill",
        "SwitchType=switch/none",
        "MailProg=/bin/true",
        "MpiDefault=none",
        "ReturnToService=2",
        "SlurmdTimeout=10",
        "KillWait=2",
        "MinJobAge=600",
        "MaxJobCount=20000",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        "DefMemPerCPU=100",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={folder}/state/jobcomp.log",
    ]
    if shape.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={ports.database}",
            f"AccountingStoragePass={folder}/munge/socket",
        ]
    return lines


def _plain(shape: Shape, ports: Ports) -> list[str]:
    """Return the lines of slurm.conf for nodes that are all alike, in one partition."""
    host = socket.gethostname()
    lines = ["GresTypes=gpu", "SchedulerParameters=bf_interval=1,sched_interval=1"]
    lines.append("PriorityType=priority/basic")  # later releases have multifactor by default
    if shape.accounting:
        lines.append("AccountingStorageTRES=gres/gpu")
    for index, port in enumerate(ports.nodes):
        lines.append(
            f"NodeName=n{index + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs=32 RealMemory=128000 Gres=gpu:{shape.gpus}"
        )
    return [*lines, f"PartitionName=main Nodes=n[1-{shape.nodes}] Default=YES State=UP"]
