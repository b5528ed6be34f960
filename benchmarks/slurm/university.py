"""The configuration of a cluster as universities have them: three types of GPU, nodes that differ,
nodes without GPUs, partitions that overlap, multifactor priority, a licence.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

# CPUs, MiB, GPUs by type, further options
NODES: tuple[tuple[int, int, dict[str, int], str], ...] = (
    (16, 64_000, {"2080ti": 8}, "Feature=turing Weight=10"),
    (16, 64_000, {"2080ti": 8}, "Feature=turing Weight=10"),
    (32, 128_000, {"a100": 4}, "Feature=ampere,big Weight=20"),
    (32, 128_000, {"a100": 2, "a100_3g.20gb": 2}, "Feature=ampere Weight=20"),
    (32, 96_000, {}, "Weight=1"),
    (8, 32_000, {}, "Weight=1"),
)
PARTITIONS = (
    "PartitionName=short Nodes=n[1-6] Default=YES MaxTime=60 DefaultTime=10 PriorityTier=10 "
    "PriorityJobFactor=100 State=UP",
    "PartitionName=long Nodes=n[2-4] MaxTime=7-0 DefaultTime=60 PriorityTier=5 "
    "PriorityJobFactor=50 State=UP",
    "PartitionName=cpu Nodes=n[5-6] MaxTime=1-0 DefaultTime=60 PriorityTier=5 "
    "PriorityJobFactor=10 State=UP",
)
PRIORITY = (
    "PriorityType=priority/multifactor",
    "PriorityDecayHalfLife=1-0",
    "PriorityCalcPeriod=1",
    "PriorityMaxAge=1-0",
    "PriorityFavorSmall=NO",
    "PriorityWeightAge=100000",
    "PriorityWeightFairshare=50000",
    "PriorityWeightJobSize=20000",
    "PriorityWeightPartition=10000",
    "PriorityWeightQOS=30000",
    "PriorityWeightAssoc=1000",
    "PriorityWeightTRES=CPU=1000,Mem=500,GRES/gpu=3000",
)


Nodes = Sequence[tuple[int, int, dict[str, int], str]]


def gres(folder: Path, nodes: Nodes = NODES) -> str:
    """Return the text of a gres.conf that names plain files in `folder` as the GPUs of each
    node.
    """
    lines = []
    for index, (_, _, gpus, _) in enumerate(nodes):
        first = 0
        for kind, count in gpus.items():
            files = f"{folder}/gpu[{first}-{first + count - 1}]"
            lines.append(f"NodeName=n{index + 1} Name=gpu Type={kind} File={files}")
            first += count
    return "\n".join(lines) + "\n"


def lines(ports: Sequence[int]) -> list[str]:
    """Return the lines of slurm.conf that define nodes, partitions, priorities and limits."""
    said = [
        "GresTypes=gpu",
        "Licenses=matlab:2",
        "SchedulerParameters=bf_interval=2,sched_interval=5,bf_continue,bf_window=1440",
        "AccountingStorageEnforce=associations,limits,qos,safe",
        "AccountingStorageTRES=gres/gpu,gres/gpu:a100,license/matlab",
        *PRIORITY,
    ]
    return [*said, *of_nodes(ports, NODES), *PARTITIONS]


def of_nodes(ports: Sequence[int], nodes: Nodes) -> list[str]:
    """Return a line of slurm.conf for each node."""
    host, said = socket.gethostname(), []
    for index, ((cpus, memory, gpus, more), port) in enumerate(zip(nodes, ports, strict=True)):
        has = ",".join(f"gpu:{kind}:{count}" for kind, count in gpus.items())
        said.append(
            f"NodeName=n{index + 1} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={cpus} RealMemory={memory} {f'Gres={has} ' if has else ''}{more}"
        )
    return said
