"""The policy `slurm`, which decides as a site's own slurmctld would (a twin of Slurm)."""
