"""Builds `why`, `eta` and `queue` as one file, which asks a site's Slurm without a service (`make
why`)."""
