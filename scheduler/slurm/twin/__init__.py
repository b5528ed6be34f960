"""Policy `slurm`: decides as a site's own slurmctld would."""
