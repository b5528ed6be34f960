"""The outside of the Slurm backend: a private cluster with real daemons."""

from __future__ import annotations

from benchmarks.slurm import SlurmCluster
from scheduler.backends.slurm.client import Slurm


def client(cluster: SlurmCluster) -> Slurm:
    return Slurm(cluster.environment)
