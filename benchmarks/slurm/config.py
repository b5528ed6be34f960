"""Configuration of a private cluster: the site files of `deploy/slurm` and what a test adds."""

from __future__ import annotations

import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slurm import university

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
SITE_FILES = (
    "job_submit.lua",
    "pellucid.lua",
    "pellucid-task-prolog",
    "slurm.conf.pellucid",
    "gres.conf.pellucid",
)
SLURM_USER = "slurm"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the cluster looks like.

    Attributes:
        nodes: how many, named n1, n2, ...
        gpus: fake GPUs on each: plain files, two slots each.
        open_nodes: so many of them, the last, are in partition `open`, which the plugin leaves
            alone and where jobs ask for `gpu` as they always did. The others are in `main`, and
            the last of those in `profile` too; both are governed.
        accounting: slurmdbd on MariaDB, and slurmrestd with JWT.
        university: instead, six nodes as a university has them (`university`), and no plugin.
    """

    nodes: int = 4
    gpus: int = 8
    open_nodes: int = 0
    accounting: bool = False
    university: bool = False


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the daemons listen, on the loopback."""

    controller: int
    nodes: tuple[int, ...]
    database: int
    rest: int


def write(folder: Path, name: str, shape: Shape, ports: Ports) -> None:
    """Write slurm.conf, gres.conf and slurmdbd.conf, and the site's files beside them."""
    for index in range(shape.gpus):
        (folder / f"gpu{index}").touch()  # Slurm wants a path that exists, and no more
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    if shape.university:
        (folder / "gres.conf").write_text(university.gres(folder))
        lines = _daemons(folder, name, shape, ports) + university.lines(ports.nodes)
        (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        return
    for file in SITE_FILES:
        text = (DEPLOY / file).read_text()
        if shape.accounting:
            text = text.replace("#Accounting", "Accounting")
        (folder / file).write_text(text.replace("/etc/slurm", str(folder)))
        shutil.copymode(DEPLOY / file, folder / file)
    gpus = f"Name=gpu File={folder}/gpu[0-{shape.gpus - 1}]\n"
    slots = (folder / "gres.conf.pellucid").read_text().splitlines(keepends=True)
    wanted = tuple(f"Name=slot Type=g{index} " for index in range(shape.gpus))
    slots = [line for line in slots if line.startswith(wanted)]
    (folder / "gres.conf").write_text(gpus + "".join(slots))
    (folder / "slurm.conf").write_text(_slurm_conf(folder, name, shape, ports))


def _daemons(folder: Path, name: str, shape: Shape, ports: Ports) -> list[str]:
    """Lines of slurm.conf that every cluster has."""
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
            "AuthAltTypes=auth/jwt",
            f"AuthAltParameters=jwt_key={folder}/state/jwt.key",
        ]
    return lines


def _slurm_conf(folder: Path, name: str, shape: Shape, ports: Ports) -> str:
    host = socket.gethostname()
    slots = ",".join(f"slot:g{index}:2" for index in range(shape.gpus))
    governed = shape.nodes - shape.open_nodes
    lines = _daemons(folder, name, shape, ports)
    for index, port in enumerate(ports.nodes):
        gres = f"gpu:{shape.gpus}" + (f",{slots}" if index < governed else "")
        lines.append(
            f"NodeName=n{index + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs=32 RealMemory=128000 Gres={gres}"
        )
    if governed:
        lines += [
            f"PartitionName=main Nodes=n[1-{governed}] Default=YES MaxTime=INFINITE State=UP",
            f"PartitionName=profile Nodes=n{governed} MaxNodes=1 MaxTime=10 State=UP",
        ]
    if shape.open_nodes:
        default = "NO" if governed else "YES"
        lines.append(
            f"PartitionName=open Nodes=n[{governed + 1}-{shape.nodes}] Default={default} State=UP"
        )
    lines.append(f"include {folder}/slurm.conf.pellucid")
    return "\n".join(lines) + "\n"
