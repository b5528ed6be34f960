"""The outside of the Slurm backend: a private cluster with real daemons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.slurm import SlurmCluster
from scheduler.slurm.read.client import Slurm


def client(cluster: SlurmCluster) -> Slurm:
    return Slurm(cluster.environment)


@contextmanager
def physics(user: str) -> Iterator[SlurmCluster]:
    """A university's cluster; its user of account physics may take one job at a time by a QOS."""
    with SlurmCluster(university=True, accounting=True) as slurm:
        slurm.account(
            "add account physics",
            f"add user {user} Account=physics",
            "add qos high Priority=100",
            "add qos limited MaxJobsPerUser=1",
            "modify account physics set qos=normal,high,limited",
        )
        yield slurm
