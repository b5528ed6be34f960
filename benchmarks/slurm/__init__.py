"""A private Slurm cluster on one machine: real daemons, fake GPUs."""

from benchmarks.slurm.cluster import SlurmCluster
from benchmarks.slurm.processes import SlurmError

__all__ = ["SlurmCluster", "SlurmError"]
