"""`why`, `eta` and `queue` as one file that asks a site's own Slurm (`make why`)."""
